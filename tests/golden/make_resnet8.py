#!/usr/bin/env python3
"""Writes resnet8/*.npy: ten training steps of resnet8 on small images, computed by PyTorch in float64.

The initial weights are halfstep's own, He-normal from the seed SEED, drawn here by another Philox (make_dropout.py), so
the test checks them too.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

from golden import STEPS, check_follows, save, sgd
from make_dropout import philox

SEED = 33  # one that keeps the inputs of ReLU away from zero, so that float32 can follow
BATCH, SIDE = 4, 12
MEAN, STD = 0.45, 0.25
INIT = 1  # the purpose of the random numbers

# Name, kernel size, channels in and out, stride; in the order of construction, which is that of the layers' numbers.
CONVS = [("conv", 3, 3, 16, 1),
         ("block1.conv1", 3, 16, 16, 1), ("block1.conv2", 3, 16, 16, 1),
         ("block2.conv1", 3, 16, 32, 2), ("block2.conv2", 3, 32, 32, 1), ("block2.shortcut", 1, 16, 32, 2),
         ("block3.conv1", 3, 32, 64, 2), ("block3.conv2", 3, 64, 64, 1), ("block3.shortcut", 1, 32, 64, 2)]


def he_normal(seed, layer, shape):
    """halfstep's Init::he_normal, for a weight (fan_in, out), as float32."""
    deviation = math.sqrt(2 / shape[0]) / 0.87962566103423978
    block = np.arange(shape[0] * shape[1], dtype=np.uint64)
    normal = np.full(len(block), 3.0)
    for attempt in range(100):
        again = np.abs(normal) > 2
        if not again.any(): break
        zero = np.zeros(again.sum(), np.uint64)
        words = philox((block[again], zero + np.uint64(attempt), zero, zero + np.uint64(INIT << 24 | layer)), (seed, 0))
        first, second = (np.floor(word / 256.0) * 2.0**-24 for word in words[:2])
        normal[again] = np.sqrt(-2 * np.log(1 - first)) * np.cos(2 * np.pi * second)
    return (deviation * normal).astype(np.float32).reshape(shape)


def initial_parameters(seed):
    """Trained parameters by name, in halfstep's order and layout: convolutions (KH*KW*C, OC), linear (in, out)."""
    parameters, last = {}, {}
    for layer, (name, size, channels, out, _) in enumerate(CONVS, 1):
        parameters[name + ".weight"] = he_normal(seed, layer, (size * size * channels, out))
        parameters[name + ".bias"] = np.zeros(out, np.float32)
        if "shortcut" not in name:
            norm = name.replace("conv", "bn")
            last = {norm + ".weight": np.ones(out, np.float32), norm + ".bias": np.zeros(out, np.float32)}
        if layer == len(CONVS) or "shortcut" not in CONVS[layer][0]:  # a block's last norm is behind its shortcut
            parameters |= last
    parameters["linear.weight"] = he_normal(seed, len(CONVS) + 1, (64, 10))
    parameters["linear.bias"] = np.zeros(10, np.float32)
    return parameters


def to_torch(name, array):
    """halfstep's layout -> PyTorch's: convolutions (OC, C, KH, KW), linear (out, in)."""
    if array.ndim == 1: return torch.tensor(array)
    if name == "linear.weight": return torch.tensor(array.T.copy())
    size = {conv[0]: conv[1] for conv in CONVS}[name.removesuffix(".weight")]
    return torch.tensor(array.reshape(size, size, -1, array.shape[1]).transpose(3, 2, 0, 1).copy())


def to_halfstep(name, tensor):
    """The inverse of to_torch."""
    array = tensor.detach().numpy()
    if array.ndim == 1: return array.copy()
    return (array.T if array.ndim == 2 else array.transpose(2, 3, 1, 0).reshape(-1, len(array))).copy()


def make_images():
    """(STEPS * BATCH, SIDE, SIDE, 3) uint8 and labels int32: a colour and a direction for each class, and noise."""
    random = np.random.RandomState(2027)
    row, column = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    colour, slope = random.uniform(60, 190, (10, 3)), random.uniform(-90, 90, (10, 2, 3))
    labels = random.randint(0, 10, STEPS * BATCH).astype(np.int32)
    images = [colour[c] + row[..., None] * slope[c, 0] + column[..., None] * slope[c, 1] +
              random.uniform(-40, 40, (SIDE, SIDE, 3)) for c in labels]
    return np.clip(np.floor(images), 0, 255).astype(np.uint8), labels


def forward(p, statistics, x, training):
    """Logits. torch.nn.functional's batch_norm updates the statistics."""
    strides = {conv[0]: conv[4] for conv in CONVS}
    sizes = {conv[0]: conv[1] for conv in CONVS}

    def conv(name, x):
        return F.conv2d(x, p[name + ".weight"], p[name + ".bias"], strides[name], sizes[name] // 2)

    def norm(name, x):
        mean, variance = statistics[name + ".running_mean"], statistics[name + ".running_var"]
        return F.batch_norm(x, mean, variance, p[name + ".weight"], p[name + ".bias"], training, 0.1, 1e-5)

    x = F.relu(norm("bn", conv("conv", x)))
    for block in ("block1.", "block2.", "block3."):
        y = F.relu(norm(block + "bn1", conv(block + "conv1", x)))
        y = norm(block + "bn2", conv(block + "conv2", y))
        x = F.relu(y + (x if block == "block1." else conv(block + "shortcut", x)))
    return F.linear(x.mean((2, 3)), p["linear.weight"], p["linear.bias"])


def train(parameters, images, labels, dtype):
    """Losses, gradients by step (in halfstep's layout), statistics at the end, and the first batch's logits with them."""
    p = {name: to_torch(name, array).to(dtype).requires_grad_() for name, array in parameters.items()}
    statistics = {}
    for name, array in parameters.items():
        if ".bn" in name and name.endswith("weight") or name == "bn.weight":
            statistics[name.replace("weight", "running_mean")] = torch.zeros(len(array), dtype=dtype)
            statistics[name.replace("weight", "running_var")] = torch.ones(len(array), dtype=dtype)
    x = ((torch.tensor(images).to(dtype) / 255 - MEAN) / STD).permute(0, 3, 1, 2)

    def loss_of(step):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        return F.cross_entropy(forward(p, statistics, x[batch], True), torch.tensor(labels[batch]).long())

    losses, gradients = sgd(p, 0.02, loss_of, to_halfstep)
    with torch.no_grad(): logits = forward(p, statistics, x[:BATCH], False).numpy()
    return losses, gradients, statistics, logits


def main():
    images, labels = make_images()
    parameters = initial_parameters(SEED)
    losses, gradients, statistics, logits = exact = train(parameters, images, labels, torch.float64)
    assert sum(array.size for array in parameters.values()) == 78186 and sum(map(len, statistics.values())) == 480
    check_follows(train(parameters, images, labels, torch.float32), exact)
    join = lambda arrays: np.concatenate([array.ravel() for array in arrays])
    arrays = {"images": images, "labels": labels, "losses": np.array(losses),
              "gradients": np.stack([join(gradients[step].values()) for step in (0, STEPS - 1)]).astype("<f4"),
              "statistics": join(t.numpy() for t in statistics.values()).astype("<f4"), "logits": logits}
    save("resnet8", arrays)


if __name__ == "__main__":
    main()

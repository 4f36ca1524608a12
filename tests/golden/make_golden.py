#!/usr/bin/env python3
"""Writes mnist_cnn/*.npy: ten training steps of mnist_cnn (without dropout), computed by PyTorch in float64.

The weights come from a frozen random stream and are rounded to float32 before anything is computed; the images are
drawn here. So the files do not depend on the PyTorch version beyond float64 rounding. All arrays are in halfstep's
layout (see to_halfstep).
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

from golden import STEPS, check_follows, save, sgd

SEED = 46  # one that keeps the inputs of ReLU and the pixels of a window apart, so that float32 can follow
BATCH = 8
MEAN, STD = 0.1307, 0.3081

# halfstep's shapes. A convolution's weight is (KH*KW*C, OC), a linear layer's (in, out) with in ordered (h, w, c).
SHAPES = {
    "conv1.weight": (9 * 1, 32), "conv1.bias": (32,),
    "conv2.weight": (9 * 32, 64), "conv2.bias": (64,),
    "linear.weight": (5 * 5 * 64, 10), "linear.bias": (10,),
}
FAN_IN = {"conv1": 9, "conv2": 288, "linear": 1600}


def make_images():
    """(80, 28, 28, 1) uint8 and labels (80) int32: each class is three soft strokes on black, shaken a little, like a
    digit. Only + - * / and sqrt are used, which IEEE rounds the same everywhere."""
    random = np.random.RandomState(2024)
    row, column = np.mgrid[0:28, 0:28].astype(np.float64)
    strokes = random.uniform(5, 23, (10, 3, 2, 2))  # class, stroke, end, (row, column)
    labels = random.randint(0, 10, STEPS * BATCH).astype(np.int32)
    images = np.zeros((len(labels), 28, 28, 1), np.uint8)
    for image, label in zip(images, labels):
        ink = np.zeros((28, 28))
        for (r0, c0), (r1, c1) in strokes[label] + random.uniform(-2, 2, (3, 2, 2)):
            width, blackness = random.uniform(1.0, 2.0), random.uniform(170, 255)
            dr, dc = r1 - r0, c1 - c0
            along = np.clip(((row - r0) * dr + (column - c0) * dc) / (dr * dr + dc * dc), 0, 1)
            distance = np.sqrt((row - r0 - along * dr) ** 2 + (column - c0 - along * dc) ** 2)
            ink = np.maximum(ink, blackness * np.clip(1.5 - distance / width, 0, 1))
        noise = random.uniform(-12, 12, (28, 28)) * (ink > 0)
        image[:, :, 0] = np.clip(np.floor(ink + noise), 0, 255)
    return images, labels


def initial_weights(seed):
    """Uniform in +-1/sqrt(fan_in), rounded to float32."""
    random = np.random.RandomState(seed)
    bound = {name: 1 / math.sqrt(FAN_IN[name.split(".")[0]]) for name in SHAPES}
    return {name: random.uniform(-bound[name], bound[name], shape).astype(np.float32) for name, shape in SHAPES.items()}


def to_torch(name, array):
    """halfstep's layout -> PyTorch's: convolutions (OC, C, KH, KW), linear (out, in) with in ordered (c, h, w)."""
    if name.endswith("bias"): return torch.tensor(array)
    if name.startswith("conv"): array = array.reshape(3, 3, -1, array.shape[1]).transpose(3, 2, 0, 1)
    else: array = array.reshape(5, 5, 64, 10).transpose(3, 2, 0, 1).reshape(10, 1600)
    return torch.tensor(array.copy())


def to_halfstep(name, tensor):
    """The inverse of to_torch."""
    array = tensor.detach().cpu().numpy()
    if name.endswith("bias"): return array.copy()
    if name.startswith("conv"): return array.transpose(2, 3, 1, 0).reshape(SHAPES[name]).copy()
    return array.reshape(10, 64, 5, 5).transpose(2, 3, 1, 0).reshape(SHAPES[name]).copy()


def forward(p, x):
    x = F.max_pool2d(F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"])), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, p["conv2.weight"], p["conv2.bias"])), 2)
    return F.linear(x.flatten(1), p["linear.weight"], p["linear.bias"])  # (N, 1600), ordered (c, h, w)


def train(weights, images, labels, dtype):
    """Returns losses, gradients by step and final weights (in halfstep's layout)."""
    p = {name: to_torch(name, w).to(dtype).requires_grad_() for name, w in weights.items()}

    def loss_of(step):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        x = (torch.tensor(images[batch]).to(dtype) / 255 - MEAN) / STD
        return F.cross_entropy(forward(p, x.permute(0, 3, 1, 2)), torch.tensor(labels[batch]).long())

    return *sgd(p, 0.01, loss_of, to_halfstep), {name: to_halfstep(name, t) for name, t in p.items()}


def main():
    torch.set_num_threads(1)
    images, labels = make_images()
    weights = initial_weights(SEED)
    assert sum(w.size for w in weights.values()) == 34826
    for name, w in weights.items(): assert (to_halfstep(name, to_torch(name, w)) == w).all()
    losses, gradients, final = exact = train(weights, images, labels, torch.float64)
    check_follows(train(weights, images, labels, torch.float32), exact)
    arrays = {"images": images, "labels": labels.astype("<i4"), "losses": np.array(losses, "<f8")}
    for name in SHAPES:
        for what, tensors in (("initial", weights), ("gradient1", gradients[0]), ("gradient10", gradients[-1]), ("final", final)):
            arrays[f"{what}.{name}"] = tensors[name].astype("<f4")
    save("mnist_cnn", arrays)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes mnist_cnn/*.npy: ten training steps of mnist_cnn (without dropout), computed by PyTorch in float64.

The weights come from a frozen random stream and are rounded to float32 before anything is computed; the images are
drawn here. So the files do not depend on the PyTorch version beyond float64 rounding. All arrays are in halfstep's
layout (see to_halfstep). Before a file counts, the script proves it: plain numpy must get the same first loss and the
same gradients from the files read back, and a float32 run must follow the float64 run.
"""
import argparse
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

SEED = 46  # chosen by --search for its distance from kinks; see kink_margin()
BATCHES, BATCH = 10, 8
LEARNING_RATE, MOMENTUM = 0.01, 0.9
MEAN, STD = 0.1307, 0.3081
TOLERANCE = 2e-6  # float32 against float64: losses absolute, gradients relative (Frobenius)
TIE = 1e-13  # a gap below this is an exact tie: equal patches of the blank background, harmless whoever wins

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
    labels = random.randint(0, 10, BATCHES * BATCH).astype(np.int32)
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
    """Logits, and the two pre-activations for kink_margin."""
    z1 = F.conv2d(x, p["conv1.weight"], p["conv1.bias"])
    z2 = F.conv2d(F.max_pool2d(F.relu(z1), 2), p["conv2.weight"], p["conv2.bias"])
    flat = F.max_pool2d(F.relu(z2), 2).flatten(1)  # (N, 1600), ordered (c, h, w)
    return F.linear(flat, p["linear.weight"], p["linear.bias"]), z1, z2


def kink_margin(z):
    """(smallest |pre-activation|, smallest gap between the winner of a pooling window and a lower value, ties): the
    distances at which a rounding error would change which way a gradient flows. Windows without a positive value do
    not count: their gradient is zero whoever wins."""
    n, c, h, w = z.shape
    windows = z[:, :, :h // 2 * 2, :w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 2, 4, 3, 5)
    best = windows.reshape(-1, 4).sort(dim=1, descending=True).values
    gaps = (best[:, :1] - best[:, 1:])[best[:, 0] > 0]
    return z.abs().min().item(), gaps[gaps > TIE].min().item(), int((gaps[:, 0] <= TIE).sum())


def train(weights, images, labels, dtype):
    """Ten steps of SGD. Returns losses, gradients by step, final weights (in halfstep's layout), pre-activations."""
    p = {name: to_torch(name, w).to(dtype).requires_grad_() for name, w in weights.items()}
    optimizer = torch.optim.SGD(list(p.values()), lr=LEARNING_RATE, momentum=MOMENTUM)
    losses, gradients, pre_activations = [], {}, []
    for step in range(BATCHES):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        x = (torch.tensor(images[batch]).to(dtype) / 255 - MEAN) / STD
        logits, z1, z2 = forward(p, x.permute(0, 3, 1, 2))
        loss = F.cross_entropy(logits, torch.tensor(labels[batch]).long())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        gradients[step + 1] = {name: to_halfstep(name, t.grad) for name, t in p.items()}
        pre_activations += [z1.detach(), z2.detach()]
        optimizer.step()
    return losses, gradients, {name: to_halfstep(name, t) for name, t in p.items()}, pre_activations


def numpy_loss(p, images, labels):
    """The same loss in halfstep's layout without PyTorch: NHWC, im2col, one matrix product per layer."""
    x = (images.astype(np.float64) / 255 - MEAN) / STD
    for layer in ("conv1", "conv2"):
        n, h, w, c = x.shape
        col = np.stack([x[:, kh:kh + h - 2, kw:kw + w - 2] for kh in range(3) for kw in range(3)], axis=3)
        y = col.reshape(-1, 9 * c) @ p[layer + ".weight"] + p[layer + ".bias"]  # column (kh*KW + kw)*C + c
        y = np.maximum(y, 0).reshape(n, h - 2, w - 2, -1)
        oh, ow = (h - 2) // 2, (w - 2) // 2
        x = y[:, :oh * 2, :ow * 2].reshape(n, oh, 2, ow, 2, -1).max(axis=(2, 4))
    logits = x.reshape(len(x), -1) @ p["linear.weight"] + p["linear.bias"]
    top = logits.max(axis=1)
    log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return (log_sum - logits[np.arange(len(labels)), labels]).mean()


def frobenius(a, b):
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b))


def check_files(folder):
    """Reads the files back and proves layout and values with numpy alone."""
    load = lambda name: np.load(folder / f"{name}.npy")
    images, labels, losses = load("images")[:BATCH], load("labels")[:BATCH], load("losses")
    p = {name: load(f"initial.{name}").astype(np.float64) for name in SHAPES}
    first = numpy_loss(p, images, labels)
    print(f"numpy's first loss {first:.15f}, PyTorch's {losses[0]:.15f}")
    assert abs(first - losses[0]) < 1e-12
    # The derivative of the loss along the saved gradient is its squared length, or an entry is in the wrong place.
    for name in SHAPES:
        g = load(f"gradient1.{name}").astype(np.float64)
        h = 1e-7 / np.linalg.norm(g)
        slope = (numpy_loss({**p, name: p[name] + h * g}, images, labels) -
                 numpy_loss({**p, name: p[name] - h * g}, images, labels)) / (2 * h)
        print(f"  {name:14s} slope / |gradient|^2 - 1 = {slope / (g * g).sum() - 1:+.1e}")
        assert abs(slope / (g * g).sum() - 1) < 1e-5
    for file in sorted(folder.glob("*.npy")):
        with open(file, "rb") as f: assert f.read(8) == b"\x93NUMPY\x01\x00"
        assert file.stat().st_size < 300 << 10, file
    assert sum(file.stat().st_size for file in folder.iterdir()) < 1 << 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--search", type=int, metavar="N", help="print the best of N weight seeds and write nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = make_images()

    if arguments.search:
        found = []
        for seed in range(1, arguments.search + 1):
            pre_activations = train(initial_weights(seed), images, labels, torch.float64)[3]
            found.append((min(min(kink_margin(z)[:2]) for z in pre_activations), seed))
        for margin, seed in sorted(found, reverse=True)[:5]: print(f"seed {seed}: distance from a kink {margin:.2e}")
        return

    weights = initial_weights(SEED)
    assert sum(w.size for w in weights.values()) == 34826
    for name, w in weights.items(): assert (to_halfstep(name, to_torch(name, w)) == w).all()
    losses, gradients, final, z = train(weights, images, labels, torch.float64)
    print(f"PyTorch {torch.__version__}, numpy {np.__version__}, Python {sys.version.split()[0]}, seed {SEED}")
    print("losses", " ".join(f"{loss:.9f}" for loss in losses))
    smallest_z, smallest_gap, ties = zip(*map(kink_margin, z))
    print(f"smallest |pre-activation| {min(smallest_z):.2e}, smallest winner gap {min(smallest_gap):.2e}, "
          f"exact ties (blank background) {sum(ties)}")

    losses32, gradients32, final32, z32 = train(weights, images, labels, torch.float32)
    loss_error = max(abs(a - b) for a, b in zip(losses32, losses))
    gradient_errors = {(step, name): frobenius(gradients32[step][name], gradients[step][name])
                       for step in gradients for name in SHAPES}
    worst = max(gradient_errors, key=gradient_errors.get)
    final_error = max(frobenius(final32[name], final[name]) for name in SHAPES)
    print(f"float32 run: loss error {loss_error:.1e}, worst gradient error {gradient_errors[worst]:.1e} "
          f"(step {worst[0]}, {worst[1]}), final weights {final_error:.1e}")
    moved = max((a - b).abs().max().item() for a, b in zip(z32, z))
    flips = sum(int(((a > 0) != (b > 0)).sum()) for a, b in zip(z32, z))
    print(f"float32 moved pre-activations by at most {moved:.1e}, which flipped {flips} of "
          f"{sum(a.numel() for a in z)} ReLUs")
    assert loss_error < TOLERANCE and max(gradient_errors.values()) < TOLERANCE

    arrays = {"images": images, "labels": labels.astype("<i4"), "losses": np.array(losses, "<f8")}
    for name in SHAPES:
        arrays[f"initial.{name}"] = weights[name]
        arrays[f"gradient1.{name}"] = gradients[1][name]
        arrays[f"gradient10.{name}"] = gradients[10][name]
        arrays[f"final.{name}"] = final[name]
    folder = pathlib.Path(__file__).resolve().parent / "mnist_cnn"
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        if "." in name: array = array.astype("<f4")
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array))
    check_files(folder)
    total = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{len(arrays)} files, {total} bytes in {folder.name}/")


if __name__ == "__main__":
    main()

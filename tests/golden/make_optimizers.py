#!/usr/bin/env python3
"""Writes optimizers/*.npy: ten steps of each optimizer that PyTorch has, computed by PyTorch in float64.

The model is one linear layer with softmax, which is smooth, so that float32 follows float64 closely whatever the optimizer. Its
weight is (in, out), as halfstep stores it; Muon, which is for matrices (out, in), gets the transpose, and its products, which
PyTorch always computes in bfloat16, are float64 here. A case is a row of CASES; where biases do not decay, PyTorch gets two groups of
parameters. Before a file counts, the script proves that a float32 run follows.
"""
import numpy as np
import torch
import torch.nn.functional as F

from golden import STEPS, TOLERANCE, save

BATCH, INPUTS, CLASSES = 8, 20, 10
OPTIMIZERS = ["sgd", "nesterov", "adam", "adamw", "muon"]
SCHEDULES = ["constant", "linear", "cosine", "step", "one-cycle"]
EVERY, FACTOR = 3, 0.5  # of "step"
CASES = [  # optimizer, learning rate, momentum, weight decay, whether biases decay, schedule, label smoothing
    ("sgd", 0.1, 0, 0, 1, "constant", 0),
    ("sgd", 0.05, 0.9, 0.02, 1, "constant", 0),
    ("sgd", 0.05, 0.9, 0.02, 0, "step", 0),
    ("nesterov", 0.05, 0.9, 0, 1, "constant", 0),
    ("nesterov", 0.05, 0.9, 0.02, 1, "cosine", 0.1),
    ("nesterov", 0.05, 0.9, 0.02, 0, "one-cycle", 0),
    ("adam", 0.01, 0, 0, 1, "constant", 0),
    ("adam", 0.01, 0, 0.1, 0, "linear", 0.1),
    ("adamw", 0.01, 0, 0.5, 1, "one-cycle", 0),
    ("adamw", 0.01, 0, 0.5, 0, "constant", 0),
    ("muon", 0.05, 0.95, 0.1, 0, "cosine", 0),
]


def make_schedule(name, optimizer, rate):
    schedules = torch.optim.lr_scheduler
    if name == "linear": return schedules.LinearLR(optimizer, 1, 0, STEPS)
    if name == "cosine": return schedules.CosineAnnealingLR(optimizer, STEPS)
    if name == "step": return schedules.StepLR(optimizer, EVERY, FACTOR)
    if name == "one-cycle": return schedules.OneCycleLR(optimizer, rate, STEPS, cycle_momentum=False)
    return schedules.ConstantLR(optimizer, 1)


def take_steps(x, labels, logits, optimizers, schedules, smoothing):
    losses = []
    for step in range(STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        loss = F.cross_entropy(logits(x[batch]), labels[batch], label_smoothing=smoothing)
        for optimizer in optimizers: optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        for optimizer in optimizers: optimizer.step()
        for schedule in schedules: schedule.step()
    return losses


def train_muon(case, x, labels, weight, bias, vector_rate=0.1):
    _, rate, momentum, decay, biases_decay, schedule_name, smoothing = case
    weight = weight.detach().T.contiguous().requires_grad_()
    optimizers = [torch.optim.Muon([weight], lr=rate, momentum=momentum, weight_decay=decay),
                  torch.optim.AdamW([bias], lr=vector_rate * rate, weight_decay=decay if biases_decay else 0)]
    schedules = [make_schedule(schedule_name, each, each.param_groups[0]["lr"]) for each in optimizers]
    products, torch.bfloat16 = torch.bfloat16, x.dtype  # of Muon's products
    losses = take_steps(x, labels, lambda x: x @ weight.T + bias, optimizers, schedules, smoothing)
    torch.bfloat16 = products
    return losses, weight.detach().T.numpy(), bias.detach().numpy()


def train(case, start, dtype):
    """Returns the losses, and the final weight and bias."""
    name, rate, momentum, decay, biases_decay, schedule_name, smoothing = case
    x, labels = torch.tensor(start["inputs"]).to(dtype), torch.tensor(start["labels"]).long()
    weight, bias = (torch.tensor(start[p]).to(dtype).requires_grad_() for p in ("weight", "bias"))
    if name == "muon": return train_muon(case, x, labels, weight, bias)
    groups = [{"params": [weight], "weight_decay": decay}, {"params": [bias], "weight_decay": decay if biases_decay else 0}]
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(name)
    optimizer = make(groups, lr=rate) if make else torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=name == "nesterov")
    schedule = make_schedule(schedule_name, optimizer, rate)
    losses = take_steps(x, labels, lambda x: x @ weight + bias, [optimizer], [schedule], smoothing)
    return losses, weight.detach().numpy(), bias.detach().numpy()


def main():
    random = np.random.RandomState(2026)
    start = {"inputs": random.uniform(-1.5, 1.5, (STEPS * BATCH, INPUTS)).astype("<f4"),
             "labels": random.randint(0, CLASSES, STEPS * BATCH).astype("<i4"),
             "weight": random.uniform(-0.5, 0.5, (INPUTS, CLASSES)).astype("<f4"),
             "bias": random.uniform(-0.5, 0.5, CLASSES).astype("<f4")}
    results = {"losses": [], "final_weight": [], "final_bias": []}
    for case in CASES:
        exact, single = train(case, start, torch.float64), train(case, start, torch.float32)
        errors = [np.abs(np.array(single[0]) - exact[0]).max()]
        errors += [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(single[1:], exact[1:])]
        print(*case, "loss", f"{exact[0][0]:.6f} to {exact[0][-1]:.6f}, float32 errors", *(f"{error:.1e}" for error in errors))
        assert max(errors) < TOLERANCE
        for name, values in zip(results, exact): results[name].append(values)
    arrays = {**start, **{name: np.array(values).astype("<f8" if name == "losses" else "<f4") for name, values in results.items()},
              "cases": np.array([[OPTIMIZERS.index(c[0]), *c[1:5], SCHEDULES.index(c[5]), c[6]] for c in CASES], "<f8")}
    save("optimizers", arrays)


if __name__ == "__main__":
    main()

"""What the makers of golden files share: ten steps in float64, and the proof that float32 follows them."""
import pathlib

import numpy as np
import torch

STEPS = 10
TOLERANCE = 2e-6  # float32 against float64: losses absolute, gradients and weights relative (Frobenius)


def sgd(parameters, rate, loss_of, to_halfstep):
    """Trains parameters by name with a momentum of 0.9: the losses of the steps, and the gradients in halfstep's layout."""
    optimizer = torch.optim.SGD(parameters.values(), lr=rate, momentum=0.9)
    losses, gradients = [], []
    for step in range(STEPS):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: to_halfstep(name, parameter.grad) for name, parameter in parameters.items()})
        optimizer.step()
    return losses, gradients


def check_follows(single, exact):
    """Losses and gradients of a float32 run against those of float64. The gradient of a bias before a batch norm is zero, up to
    rounding: it is measured by that of its weight."""
    loss_error = max(abs(a - b) for a, b in zip(single[0], exact[0]))
    worst = 0
    for ours, theirs in zip(single[1], exact[1]):
        for name, reference in theirs.items():
            before_norm = name.endswith("bias") and any("bn" in other for other in theirs) and "conv" in name
            length = np.linalg.norm(theirs[name.replace("bias", "weight")] if before_norm else reference)
            worst = max(worst, np.linalg.norm(ours[name].astype(np.float64) - reference) / length)
    print(f"losses {exact[0][0]:.6f} to {exact[0][-1]:.6f}; float32: losses {loss_error:.1e}, gradients {worst:.1e}")
    assert max(loss_error, worst) < TOLERANCE


def save(name, arrays):
    """Writes the arrays as NAME/*.npy."""
    folder = pathlib.Path(__file__).resolve().parent / name
    folder.mkdir(exist_ok=True)
    for file, array in arrays.items(): np.save(folder / f"{file}.npy", np.ascontiguousarray(array))
    print(f"{name}: {len(arrays)} files, PyTorch {torch.__version__}, numpy {np.__version__}")

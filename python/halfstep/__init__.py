"""halfstep in Python: the engine's tensors, ops, layers and models, by the names they have in C++ (docs/python.md)."""
import hashlib
import sys

from ._halfstep import *
from .notebook import load_plugin

Error.__module__ = "halfstep"


def sha256(arena):
    """Of the weights in an arena: halfstep-bench's `weights_sha256` of the same training."""
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in arena.parameters().values())).hexdigest()


def _redraws():
    return sys.stdout.isatty() or "ipykernel" in sys.modules


def show_step(epochs, now):
    """A line of train() that is drawn again in a terminal and in a notebook."""
    if not _redraws(): return
    part = now["step"] / now["steps_per_epoch"]
    done = (now["epoch"] - 1 + part) / epochs
    left = round(now["seconds"] * (1 - done) / done)
    print(f"\r[{'=' * int(20 * done):20}] {done:4.0%}  epoch {now['epoch']}/{epochs}  loss {now['loss']:.4f}  "
          f"ETA {left // 60}:{left % 60:02}".ljust(79), end="", flush=True)


def show_epoch(epochs, epoch, result):
    """The line of train() that stays, of an epoch and its test."""
    accuracy = result["test"]["accuracy"]
    test = f"  test accuracy {accuracy:.2%}" if accuracy == accuracy else ""
    print(("\r" if _redraws() else "") + f"epoch {epoch}/{epochs}  loss {result['training_loss']:.4f}{test}  "
          f"{result['seconds']:.2f} s".ljust(79), flush=True)


def load_ipython_extension(shell):
    """%load_ext halfstep: the cell magic %%kernel."""
    from .notebook import kernel
    shell.register_magic_function(kernel, "cell", "kernel")

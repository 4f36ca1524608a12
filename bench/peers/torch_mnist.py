#!/usr/bin/env python3
"""Trains halfstep's models in PyTorch (1.13 or 2.x), as a peer to compare training time with. See README.md.

PyTorch is given its fastest fair way: all data in memory on the device and normalised once ahead of time, shuffled by
index, one fused Adam where there is one, no reading of the loss during training. Timed: shuffling, gathering batches,
forward, backward, optimizer. Not timed: reading files, warm-up (compiling and capturing included), evaluation.
--variant names the usual ways to run on a GPU, one or several in one go; each is a row of the JSON:
  eager-f32    as it comes, true f32          eager-tf32   the same on the tensor cores
  eager-amp    f16 autocast with loss scaling, NHWC
  compile-amp  the same, forward, loss and backward through torch.compile(mode="max-autotune")
  graph-f32, graph-tf32, graph-amp   the whole step, optimizer included, as one CUDA graph; amp is bf16, which needs no
                                     scaler, in NHWC. The only input that changes is the batch's index tensor.
Exit codes are halfstep's: 2 usage, 3 bad data, 4 a file is missing, 6 the loss is not finite, 7 not available here.
"""
import argparse
import contextlib
import gzip
import json
import math
import os
import pathlib
import platform
import re
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

# As models/models.h has them: pooling before ReLU, which gives the same numbers for less work. PyTorch's own initial
# weights are uniform in +-1/sqrt(fan_in) too.
MODELS = {
    "mnist_cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.MaxPool2d(2), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(inplace=True),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(1600, 10)),
    "mnist_cnn_large": lambda: nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(inplace=True),
        nn.Flatten(), nn.Dropout(0.25), nn.Linear(9216, 128), nn.ReLU(inplace=True),
        nn.Dropout(0.5), nn.Linear(128, 10)),
    "mlp": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 500), nn.ReLU(inplace=True), nn.Linear(500, 10)),
}
AUTOCAST = {"f32": None, "tf32": None, "bf16": torch.bfloat16, "f16": torch.float16}
VARIANTS = {  # precision, mode, channels_last
    "eager-f32": ("f32", "eager", False),
    "eager-tf32": ("tf32", "eager", False),
    "eager-amp": ("f16", "eager", True),
    "compile-amp": ("f16", "compile", True),
    "graph-f32": ("f32", "graph", False),
    "graph-tf32": ("tf32", "graph", False),
    "graph-amp": ("bf16", "graph", True),
}
WARM_UP_STEPS = 3  # of each batch size; torch.compile records its own CUDA graphs in the second


class Failure(Exception):
    """One variant cannot run; the others can."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def fail(code, sentence):
    print(f"torch_mnist: {sentence}", file=sys.stderr)
    sys.exit(code)


def read_idx(folder, stem, magic, item):
    """The payload of an IDX file: train-images-idx3-ubyte or train-images.idx3-ubyte, plain or .gz."""
    rank = magic & 255
    names = [f"{stem}{mark}idx{rank}-ubyte{end}" for mark in "-." for end in ("", ".gz")]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if not path: fail(4, f"--data {folder}: none of {', '.join(names)} is there")
    try:
        data = path.read_bytes()
        if path.suffix == ".gz": data = gzip.decompress(data)
    except (OSError, EOFError) as error:
        fail(4, f"{path}: {error}")
    header = 4 + 4 * rank
    dims = [int.from_bytes(data[i:i + 4], "big") for i in range(4, header, 4)]
    if data[:4] != magic.to_bytes(4, "big") or dims[1:] != item or len(data) != header + math.prod(dims):
        fail(3, f"{path}: not an IDX file of {'x'.join(map(str, item)) or 'single'} bytes, or damaged")
    return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8).reshape(dims)


def load(args, stem, count, flag):
    """(images f32 (N, 1, 28, 28), normalised; labels i64 (N)), the first `count` of the file, on the device."""
    images = read_idx(args.data, f"{stem}-images", 0x803, [28, 28])
    labels = read_idx(args.data, f"{stem}-labels", 0x801, [])
    if not len(images) == len(labels) >= count > 0:
        fail(2, f"{flag} {count}: there are {len(images)} images and {len(labels)} labels")
    images = (images[:count, None].float() / 255 - 0.1307) / 0.3081
    return images.to(args.device), labels[:count].long().to(args.device)


def autocast(args):
    if not AUTOCAST[args.precision]: return contextlib.nullcontext()
    # No cache of cast weights in a graph: it would keep tensors from outside the capture.
    return torch.autocast(args.device, dtype=AUTOCAST[args.precision], cache_enabled=args.mode != "graph")


def make_adam(args, model):
    options = {"lr": args.lr, "capturable": True} if args.mode == "graph" else {"lr": args.lr}
    try:
        return torch.optim.Adam(model.parameters(), fused=True, **options), "Adam fused"
    except (RuntimeError, TypeError):  # on the CPU before PyTorch 2.4
        return torch.optim.Adam(model.parameters(), **options), "Adam"


def make_scaler(args):
    enabled = args.precision == "f16"
    if hasattr(torch.amp, "GradScaler"): return torch.amp.GradScaler(args.device, enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)


def capture(step, batch):
    """The step as a CUDA graph: replaying it costs one launch."""
    index = torch.zeros(batch, dtype=torch.long, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_STEPS): step(index)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): step(index)

    def replay(new_index):
        index.copy_(new_index)
        graph.replay()

    return replay


class Trainer:
    """A model with its step, compiled or captured and warm: each run then starts from fresh weights, put in place."""

    def __init__(self, args, training):
        self.args, (self.images, self.labels) = args, training
        self.model = self.fresh_model(args.seed)
        self.optimizer, self.optimizer_name = make_adam(args, self.model)
        self.scaler = make_scaler(args)
        self.loss_sum = torch.zeros((), device=args.device)
        self.forward_and_loss = self.forward
        if args.mode == "compile":
            self.forward_and_loss = torch.compile(self.forward, dynamic=False, mode="max-autotune")

        start = time.perf_counter()
        self.steps = {}  # by the number of samples: a full batch, and what is left at the end of an epoch
        try:
            for size in {min(args.batch, len(self.images)), len(self.images) % args.batch} - {0}:
                for _ in range(WARM_UP_STEPS): self.step(torch.arange(size, device=args.device))
                self.steps[size] = capture(self.step, size) if args.mode == "graph" else self.step
            self.synchronize()
        except Exception as error:
            if args.mode == "eager": raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise Failure(7, f"--mode {args.mode} does not work here with PyTorch {torch.__version__}: {reason}")
        self.warmup_seconds = time.perf_counter() - start

    def fresh_model(self, seed):
        torch.manual_seed(seed)
        model = MODELS[self.args.model]().to(self.args.device).train()
        return model.to(memory_format=torch.channels_last) if self.args.channels_last else model

    def forward(self, x, y):
        return F.cross_entropy(self.model(x).float(), y)

    def step(self, index):
        if self.args.mode == "compile" and hasattr(torch.compiler, "cudagraph_mark_step_begin"):
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.args):
            loss = self.forward_and_loss(self.images.index_select(0, index), self.labels.index_select(0, index))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.loss_sum.add_(loss.detach(), alpha=len(index))

    def synchronize(self):
        if self.args.device == "cuda": torch.cuda.synchronize()

    def reset(self, seed):
        """In place, because a compiled or captured step is bound to these very tensors."""
        fresh = self.fresh_model(seed)
        self.model.train()
        with torch.no_grad():
            for p, value in zip(self.model.parameters(), fresh.parameters()): p.copy_(value)
            for state in self.optimizer.state.values():
                for value in state.values(): value.zero_()
        if self.scaler.is_enabled(): self.scaler.load_state_dict(make_scaler(self.args).state_dict())
        torch.manual_seed(seed)
        self.synchronize()

    def run(self, seed, test):
        """Returns what varies between runs."""
        self.reset(seed)
        start = time.perf_counter()
        for _ in range(self.args.epochs):
            self.loss_sum.zero_()
            for index in torch.randperm(len(self.images), device=self.args.device).split(self.args.batch):
                self.steps[len(index)](index)
        self.synchronize()
        seconds = time.perf_counter() - start

        final_loss = self.loss_sum.item() / len(self.images)
        if not math.isfinite(final_loss): raise Failure(6, f"seed {seed}: the loss of the last epoch is {final_loss}")
        return {"seconds": seconds, "final_loss": final_loss, "test_accuracy": evaluate(self.args, self.model, *test)}


def evaluate(args, model, images, labels):
    model.eval()
    with torch.no_grad(), autocast(args):
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
    return correct / len(labels)


def environment(args):
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
        if found: cpu = found[1]
    capability = re.search(r"CPU capability usage: (.*)", torch.__config__.show())
    result = {"cpu": cpu, "cores": cores(), "torch": torch.__version__, "python": platform.python_version(),
              "threads": torch.get_num_threads(), "cpu_capability": capability[1] if capability else None,
              "device": args.device, "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None}
    if args.device == "cuda":
        result.update(device=torch.cuda.get_device_name(), cuda=torch.version.cuda,
                      cudnn=torch.backends.cudnn.version())
        with contextlib.suppress(ImportError):
            import triton
            result["triton"] = triton.__version__
    return result


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True, metavar="DIR", help="folder with the IDX files")
    parser.add_argument("--model", choices=MODELS, default="mnist_cnn")
    parser.add_argument("--train", type=int, default=20000, help="images to train on, from the first")
    parser.add_argument("--test", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3, help="of Adam")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each repeat takes the next")
    parser.add_argument("--repeat", type=int, default=1, help="runs; their median time is reported")
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=AUTOCAST, default="f32", help="bf16, f16: by autocast")
    parser.add_argument("--mode", choices=["eager", "compile", "graph"], default="eager")
    parser.add_argument("--channels-last", action="store_true", help="convolutions in NHWC")
    parser.add_argument("--variant", action="append", choices=[*VARIANTS, "all"], metavar="NAME",
                        help=f"instead of these three, repeatable: {', '.join(VARIANTS)}, all")
    parser.add_argument("--json", metavar="FILE", help="write the results there; - is standard output")
    args = parser.parse_args()
    for name in ("train", "test", "epochs", "batch", "repeat", "threads"):
        if getattr(args, name) < 1: parser.error(f"--{name} must be at least 1")
    return args


def variants(args):
    """[arguments of one variant]"""
    if not args.variant: return [args]
    names = list(VARIANTS) if "all" in args.variant else list(dict.fromkeys(args.variant))
    result = []
    for name in names:
        precision, mode, channels_last = VARIANTS[name]
        row = {"variant": name, "precision": precision, "mode": mode, "channels_last": channels_last}
        result.append(argparse.Namespace(**{**vars(args), **row}))
    return result


def check_available(args):
    what = f"--variant {args.variant}" if args.variant else f"--precision {args.precision} --mode {args.mode}"
    if args.device == "cpu":
        if args.mode == "graph": raise Failure(7, f"{what}: CUDA graphs need --device cuda")
        if args.precision == "f16": raise Failure(7, f"{what}: f16 needs --device cuda, bf16 does not")
        if args.precision == "tf32": raise Failure(7, f"{what}: tf32 needs --device cuda")
    if args.mode == "compile" and not hasattr(torch, "compile"):
        raise Failure(7, f"{what}: PyTorch {torch.__version__} has no torch.compile, 2.0 and later have")
    if args.device == "cuda" and args.precision == "bf16" and not torch.cuda.is_bf16_supported():
        raise Failure(7, f"{what}: {torch.cuda.get_device_name()} has no bf16")


def measure(args, training, test):
    """The row of one variant."""
    check_available(args)
    # PyTorch lets "f32" convolutions use tf32 by default; here f32 is f32.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision != "f32"
    trainer = Trainer(args, training)
    runs = [trainer.run(args.seed + i, test) for i in range(args.repeat)]
    seconds = statistics.median(run["seconds"] for run in runs)
    return {"parameters": sum(p.numel() for p in trainer.model.parameters()), "optimizer": trainer.optimizer_name,
            "seconds": seconds, "seconds_all": [run["seconds"] for run in runs],
            "samples_per_second": args.train * args.epochs / seconds, "warmup_seconds": trainer.warmup_seconds,
            "test_accuracy": statistics.fmean(run["test_accuracy"] for run in runs),
            "test_accuracy_all": [run["test_accuracy"] for run in runs],
            "final_loss": statistics.fmean(run["final_loss"] for run in runs)}


def describe(args):
    name = " ".join(["torch", args.model, args.precision, args.mode] + ["channels-last"] * args.channels_last)
    keys = ("model", "variant", "device", "precision", "mode", "channels_last", "train", "test", "epochs", "batch",
            "seed", "repeat")
    return {"name": name, **{key: getattr(args, key) for key in keys}, "learning_rate": args.lr}


def line(args, row):
    return (f"{row['name']}, {args.device}, PyTorch {torch.__version__}, {args.threads} threads: "
            f"{row['seconds']:.2f} s ({row['samples_per_second']:.0f} samples/s, "
            f"warm-up {row['warmup_seconds']:.2f} s not counted), "
            f"test accuracy {row['test_accuracy']:.4f}, last epoch's loss {row['final_loss']:.4f}")


def write_json(args, report):
    if args.json == "-": print(json.dumps(report, indent=2))
    elif args.json: pathlib.Path(args.json).write_text(json.dumps(report, indent=2) + "\n")


def main():
    args = parse_arguments()
    if args.device == "cuda" and not torch.cuda.is_available():
        fail(7, f"--device cuda: PyTorch {torch.__version__} finds no GPU")
    if args.json and args.json != "-":  # before the work, not after it
        try:
            open(args.json, "a").close()
        except OSError as error:
            fail(4, f"--json {args.json}: {error.strerror}")
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    training, test = load(args, "train", args.train, "--train"), load(args, "t10k", args.test, "--test")

    # The machine is described now, so that the load average is not our own.
    report = {"schema": "halfstep-peer-1", "environment": environment(args), "rows": []}
    code = 0
    for variant in variants(args):
        row = describe(variant)
        try:
            row.update(measure(variant, training, test))
            print(line(variant, row), file=sys.stderr if args.json == "-" else sys.stdout, flush=True)
        except Failure as failure:
            code, row["error"] = failure.code, str(failure)
            print(f"torch_mnist: {failure}", file=sys.stderr)
        report["rows"].append(row)
        if args.json != "-": write_json(args, report)  # after each, so that an interruption leaves those before it
    if args.json == "-": write_json(args, report)
    sys.exit(code)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains halfstep's models in PyTorch (1.13 or 2.x), as a peer to compare training time with. See README.md.

PyTorch is given its fastest fair way: all data in memory on the device and normalised once ahead of time, shuffled by
index, one fused Adam where there is one, no reading of the loss during training. Timed: shuffling, gathering batches,
forward, backward, optimizer. Not timed: reading files, warm-up (compiling and capturing included), evaluation.
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
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


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
    if args.precision == "f32": return contextlib.nullcontext()
    return torch.autocast(args.device, dtype=DTYPES[args.precision])


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
        for _ in range(3): step(index)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): step(index)

    def replay(new_index):
        index.copy_(new_index)
        graph.replay()

    return replay


def evaluate(args, model, images, labels):
    model.eval()
    with torch.no_grad(), autocast(args):
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
    return correct / len(labels)


def train(args, seed, training, test):
    """One run from fresh weights. Returns what varies between runs."""
    synchronize = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    images, labels = training
    torch.manual_seed(seed)
    model = MODELS[args.model]().to(args.device).train()
    if args.channels_last: model = model.to(memory_format=torch.channels_last)
    optimizer, optimizer_name = make_adam(args, model)
    scaler = make_scaler(args)
    loss_sum = torch.zeros((), device=args.device)

    def forward(x, y):
        return F.cross_entropy(model(x).float(), y)

    compiled = torch.compile(forward, dynamic=False) if args.mode == "compile" else forward

    def step(index):
        optimizer.zero_grad(set_to_none=True)
        with autocast(args): loss = compiled(images.index_select(0, index), labels.index_select(0, index))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        loss_sum.add_(loss.detach(), alpha=len(index))

    # Warm-up: one step of each batch size, after which weights and optimizer state are put back in place (a compiled
    # or captured step is bound to this very model, so it cannot be done on a copy).
    start = time.perf_counter()
    before = [p.detach().clone() for p in model.parameters()]
    full_step, tail = step, len(images) % args.batch
    try:
        if len(images) >= args.batch:
            step(torch.arange(args.batch, device=args.device))
            if args.mode == "graph": full_step = capture(step, args.batch)
        if tail: step(torch.arange(tail, device=args.device))
        synchronize()
    except Exception as error:
        if args.mode == "eager": raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        fail(7, f"--mode {args.mode} does not work here with PyTorch {torch.__version__}: {reason}")
    with torch.no_grad():
        for p, value in zip(model.parameters(), before): p.copy_(value)
        for state in optimizer.state.values():
            for value in state.values(): value.zero_()
    torch.manual_seed(seed)
    synchronize()
    warmup_seconds = time.perf_counter() - start

    start = time.perf_counter()
    for _ in range(args.epochs):
        loss_sum.zero_()
        for index in torch.randperm(len(images), device=args.device).split(args.batch):
            (full_step if len(index) == args.batch else step)(index)
    synchronize()
    seconds = time.perf_counter() - start

    final_loss = loss_sum.item() / len(images)
    if not math.isfinite(final_loss): fail(6, f"seed {seed}: the loss of the last epoch is {final_loss}")
    return {"seconds": seconds, "warmup_seconds": warmup_seconds, "final_loss": final_loss,
            "test_accuracy": evaluate(args, model, *test), "optimizer": optimizer_name,
            "parameters": sum(p.numel() for p in model.parameters())}


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
                      cudnn=torch.backends.cudnn.version(), tf32_convolutions=torch.backends.cudnn.allow_tf32,
                      tf32_matrices=torch.backends.cuda.matmul.allow_tf32)
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
    parser.add_argument("--precision", choices=DTYPES, default="f32", help="bf16, f16: by autocast")
    parser.add_argument("--mode", choices=["eager", "compile", "graph"], default="eager")
    parser.add_argument("--channels-last", action="store_true", help="convolutions in NHWC")
    parser.add_argument("--json", metavar="FILE", help="write the results there; - is standard output")
    args = parser.parse_args()
    for name in ("train", "test", "epochs", "batch", "repeat", "threads"):
        if getattr(args, name) < 1: parser.error(f"--{name} must be at least 1")
    return args


def check_available(args):
    if args.device == "cuda" and not torch.cuda.is_available():
        fail(7, f"--device cuda: PyTorch {torch.__version__} finds no GPU")
    if args.device == "cpu" and args.mode == "graph": fail(7, "--mode graph: CUDA graphs need --device cuda")
    if args.device == "cpu" and args.precision == "f16": fail(7, "--precision f16 needs --device cuda; try bf16")
    if args.mode == "compile" and not hasattr(torch, "compile"):
        fail(7, f"--mode compile: PyTorch {torch.__version__} has no torch.compile, 2.0 and later have")
    if args.device == "cuda" and args.precision == "bf16" and not torch.cuda.is_bf16_supported():
        fail(7, f"--precision bf16: {torch.cuda.get_device_name()} has no bf16")


def main():
    args = parse_arguments()
    check_available(args)
    if args.json and args.json != "-":  # before the work, not after it
        try:
            open(args.json, "a").close()
        except OSError as error:
            fail(4, f"--json {args.json}: {error.strerror}")
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    training, test = load(args, "train", args.train, "--train"), load(args, "t10k", args.test, "--test")

    machine = environment(args)  # now, so that the load average is not our own
    runs = [train(args, args.seed + i, training, test) for i in range(args.repeat)]
    seconds = statistics.median(run["seconds"] for run in runs)
    mean = lambda key: statistics.fmean(run[key] for run in runs)
    row = {"name": " ".join(["torch", args.model, args.precision, args.mode] + ["channels-last"] * args.channels_last),
           "model": args.model, "parameters": runs[0]["parameters"], "device": args.device,
           "precision": args.precision, "mode": args.mode, "channels_last": args.channels_last,
           "train": args.train, "test": args.test, "epochs": args.epochs, "batch": args.batch,
           "optimizer": runs[0]["optimizer"], "learning_rate": args.lr, "seed": args.seed, "repeat": args.repeat,
           "seconds": seconds, "seconds_all": [run["seconds"] for run in runs],
           "samples_per_second": args.train * args.epochs / seconds, "warmup_seconds": mean("warmup_seconds"),
           "test_accuracy": mean("test_accuracy"), "test_accuracy_all": [run["test_accuracy"] for run in runs],
           "final_loss": mean("final_loss")}
    report = {"schema": "halfstep-peer-1", "environment": machine, "rows": [row]}

    print(f"{row['name']}, {args.device}, PyTorch {torch.__version__}, {args.threads} threads: {seconds:.2f} s "
          f"({row['samples_per_second']:.0f} samples/s, warm-up {row['warmup_seconds']:.2f} s not counted), "
          f"test accuracy {row['test_accuracy']:.4f}, last epoch's loss {row['final_loss']:.4f}",
          file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json == "-":
        print(json.dumps(report, indent=2))
    elif args.json:
        pathlib.Path(args.json).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

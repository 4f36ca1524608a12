"""What the peers share: flags, exit codes, reading MNIST's files, and the record (schema halfstep-peer-1)."""
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

NAME = pathlib.Path(sys.argv[0]).stem


class Failure(Exception):
    """One variant cannot run; the others can."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def fail(code, sentence):
    print(f"{NAME}: {sentence}", file=sys.stderr)
    sys.exit(code)


def fail_import(engine, error, how):
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    fail(7, f"this Python cannot import {engine} ({reason}); to install it: {how}")


def parser(doc, version, models, precisions):
    """With the flags that all peers have; those of `halfstep-bench train` mean the same."""
    result = argparse.ArgumentParser(description=doc.splitlines()[0])
    result.add_argument("--version", action="version", version=version)
    result.add_argument("--data", type=pathlib.Path, required=True, metavar="DIR", help="folder with the files of the set")
    result.add_argument("--model", choices=models, default=next(iter(models)))
    result.add_argument("--train", type=int, default=20000, help="images to train on, from the first")
    result.add_argument("--test", type=int, default=5000)
    result.add_argument("--epochs", type=int, default=5)
    result.add_argument("--batch", type=int, default=64)
    result.add_argument("--lr", type=float, default=1e-3, help="learning rate")
    result.add_argument("--seed", type=int, default=1, help="of the first run; each repeat takes the next")
    result.add_argument("--repeat", type=int, default=1, help="runs; their median time is reported")
    result.add_argument("--threads", type=int, default=cores())
    result.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    result.add_argument("--precision", choices=precisions, default="f32",
                        help="of products and convolutions; weights and loss are f32")
    result.add_argument("--json", metavar="FILE", help="write the results there; - is standard output")
    return result


def parse(parser, words=None):
    args = parser.parse_args(words)
    for name in ("train", "test", "epochs", "batch", "repeat", "threads"):
        if getattr(args, name) < 1: parser.error(f"--{name} must be at least 1")
    if args.json and args.json != "-":  # before any work
        try:
            open(args.json, "a").close()
        except OSError as error:
            fail(4, f"--json {args.json}: {error.strerror}")
    return args


def read_idx(folder, stem, magic, item):
    """(number of items, bytes) of an IDX file: train-images-idx3-ubyte or train-images.idx3-ubyte, plain or .gz."""
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
    return dims[0], bytearray(data[header:])


def read_set(args, stem, count, flag):
    """The first `count` images of 28x28 and labels, as bytes. To be normalised: (x / 255 - 0.1307) / 0.3081."""
    images, pixels = read_idx(args.data, f"{stem}-images", 0x803, [28, 28])
    labels, classes = read_idx(args.data, f"{stem}-labels", 0x801, [])
    if not images == labels >= count > 0:
        fail(2, f"{flag} {count}: there are {images} images and {labels} labels")
    return pixels[:count * 784], classes[:count]


def schedule_factor(kind, warmup, total, step):
    """The factor on the learning rate in the step after `step` steps of `total`, as in kernels/optimizer/steps.h."""
    def along_cosine(start, end, x): return end + (start - end) * (1 + math.cos(math.pi * min(x, 1))) / 2
    if step < warmup: return (step + 1) / (warmup + 1)
    if kind == "constant": return 1
    if kind == "one-cycle":
        top = 0.3 * total - 1
        if step <= top: return along_cosine(1 / 25, 1, step / top if top > 0 else 1)
        return along_cosine(1, 1 / 25e4, (step - top) / (total - 1 - top))
    progress = min((step - warmup) / (total - warmup), 1) if total > warmup else 1
    return 1 - progress if kind == "linear" else along_cosine(1, 0, progress)


SCHEDULES = ["constant", "linear", "cosine", "one-cycle"]


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def environment(args, **engine):
    """Described before the first run, so that the load average is not our own."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
        if found: cpu = found[1]
    return {"cpu": cpu, "cores": cores(), "threads": args.threads, "python": platform.python_version(),
            "device": args.device, "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None, **engine}


def figures(args, runs):
    """Of the runs of a row, each {"seconds", "final_loss", "test_accuracy"}."""
    seconds = statistics.median(run["seconds"] for run in runs)
    return {"seconds": seconds, "seconds_all": [run["seconds"] for run in runs],
            "samples_per_second": args.train * args.epochs / seconds,
            "test_accuracy": statistics.fmean(run["test_accuracy"] for run in runs),
            "test_accuracy_all": [run["test_accuracy"] for run in runs],
            "final_loss": statistics.fmean(run["final_loss"] for run in runs)}


def check_loss(seed, loss):
    if not math.isfinite(loss): raise Failure(6, f"seed {seed}: the loss of the last epoch is {loss}")


def line(args, row, version):
    return (f"{row['name']}, {args.device}, {version}, {args.threads} threads: "
            f"{row['seconds']:.2f} s ({row['samples_per_second']:.0f} samples/s, "
            f"warm-up {row['warmup_seconds']:.2f} s not counted), "
            f"test accuracy {row['test_accuracy']:.4f}, last epoch's loss {row['final_loss']:.4f}"
            + (f", test loss {row['test_loss']:.4f}" if "test_loss" in row else ""))


def write_json(args, report):
    if args.json == "-": print(json.dumps(report, indent=2))
    elif args.json: pathlib.Path(args.json).write_text(json.dumps(report, indent=2) + "\n")


def record(args, version, environment, variants, own_keys, measure):
    """Measures each of `variants` (arguments of one row each) and writes all; ends the program if one failed."""
    report = {"schema": "halfstep-peer-1", "environment": environment, "rows": []}
    keys = ("model", "device", "precision", *own_keys, "train", "test", "epochs", "batch", "seed", "repeat")
    code = 0
    for variant in variants:
        row = {"name": variant.name, **{key: getattr(variant, key) for key in keys}, "learning_rate": variant.lr}
        try:
            row.update(measure(variant))
            print(line(variant, row, version), file=sys.stderr if args.json == "-" else sys.stdout, flush=True)
        except Failure as failure:
            code, row["error"] = failure.code, str(failure)
            print(f"{NAME}: {failure}", file=sys.stderr)
        report["rows"].append(row)
        if args.json != "-": write_json(args, report)  # after each, so that an interruption keeps the earlier ones
    if args.json == "-": write_json(args, report)
    if code: sys.exit(code)  # torch_all.py goes on

#!/usr/bin/env python3
"""Trains halfstep's models in PyTorch (1.13 or 2.x), as a peer to compare training time with. See README.md.

PyTorch is given its fastest fair way: all data in memory on the device and normalised once ahead of time, shuffled by
index, one fused Adam where there is one, no reading of the loss during training. --loading dataloader is the usual way
instead: samples one by one through a DataLoader. Timed: shuffling, gathering batches, forward, backward, optimizer.
Not timed: reading files, warm-up (compiling and capturing included), evaluation.
--variant names the usual ways to run on a GPU, one or several in one go; each is a row of the JSON:
  eager-f32    as it comes, true f32          eager-tf32   the same on the tensor cores
  eager-amp    f16 autocast with loss scaling, NHWC
  compile-amp  the same, forward, loss and backward through torch.compile(mode="max-autotune")
  graph-f32, graph-tf32, graph-amp   the whole step, optimizer included, as one CUDA graph; amp is bf16, which needs no
                                     scaler, in NHWC. The only input that changes is the batch's index tensor.
Exit codes are halfstep's: 2 usage, 3 bad data, 4 a file is missing, 6 the loss is not finite, 7 not available here.
"""
import argparse
import collections
import contextlib
import re
import sys
import time

sys.dont_write_bytecode = True
import peer
from peer import Failure, fail

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
except (ImportError, OSError) as error:
    peer.fail_import("PyTorch", error, "python3 -m pip install torch numpy, or on Debian: apt install python3-torch")


def layers(**named): return nn.Sequential(collections.OrderedDict(named))


# The same as in models/*.cpp, with the names of the layers there: pooling before ReLU, which gives the same numbers for
# less work. PyTorch's own initial weights are also uniform in +-1/sqrt(fan_in).
MODELS = {
    "mnist_cnn": lambda: layers(
        conv1=nn.Conv2d(1, 32, 3), pool1=nn.MaxPool2d(2), relu1=nn.ReLU(inplace=True),
        conv2=nn.Conv2d(32, 64, 3), pool2=nn.MaxPool2d(2), relu2=nn.ReLU(inplace=True),
        flatten=nn.Flatten(), dropout=nn.Dropout(0.5), linear=nn.Linear(1600, 10)),
    "mnist_cnn_large": lambda: layers(
        conv1=nn.Conv2d(1, 32, 3), relu1=nn.ReLU(inplace=True),
        conv2=nn.Conv2d(32, 64, 3), pool=nn.MaxPool2d(2), relu2=nn.ReLU(inplace=True),
        flatten=nn.Flatten(), dropout1=nn.Dropout(0.25), linear1=nn.Linear(9216, 128), relu3=nn.ReLU(inplace=True),
        dropout2=nn.Dropout(0.5), linear2=nn.Linear(128, 10)),
    "mlp": lambda: layers(
        flatten=nn.Flatten(), linear1=nn.Linear(784, 500), relu=nn.ReLU(inplace=True), linear2=nn.Linear(500, 10)),
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
VERSION = f"PyTorch {torch.__version__}"
WARM_UP_STEPS = 3  # of each batch size; torch.compile records its own CUDA graphs in the second


def load(args, stem, count, flag):
    """(images f32 (N, 1, 28, 28), normalised; labels i64 (N)), the first `count` of the file, on the device."""
    images, labels = peer.read_set(args, stem, count, flag)
    images = torch.frombuffer(images, dtype=torch.uint8).reshape(-1, 1, 28, 28)
    labels = torch.frombuffer(labels, dtype=torch.uint8)
    return ((images.float() / 255 - 0.1307) / 0.3081).to(args.device), labels.long().to(args.device)


class Samples(Dataset):
    """As data sets usually are written: one sample at a time, normalised when it is asked for."""

    def __init__(self, args):
        images, labels = peer.read_set(args, "train", args.train, "--train")
        self.images = torch.frombuffer(images, dtype=torch.uint8).reshape(-1, 1, 28, 28)
        self.labels = list(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return (self.images[index].float() / 255 - 0.1307) / 0.3081, self.labels[index]


def autocast(args):
    if not AUTOCAST[args.precision]: return contextlib.nullcontext()
    # No cache of cast weights in a graph: it would retain tensors from outside the capture.
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
        self.network = self.wrapped(self.model)
        self.optimizer, self.optimizer_name = make_adam(args, self.model)
        self.scaler = make_scaler(args)
        self.loss_sum = torch.zeros((), device=args.device)
        self.forward_and_loss = self.forward
        if args.mode == "compile":
            self.forward_and_loss = torch.compile(self.forward, dynamic=False, mode="max-autotune")

        start = time.perf_counter()
        self.loader = None
        if args.loading == "dataloader":
            self.loader = DataLoader(Samples(args), batch_size=args.batch, shuffle=True, num_workers=2,
                                     persistent_workers=True, pin_memory=args.device == "cuda")
            next(iter(self.loader))  # starts its processes
        self.steps = {}  # by the number of samples: a full batch, and the remainder of an epoch
        try:
            for size in self.step_sizes():
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

    def wrapped(self, model):
        return model

    def step_sizes(self):
        return {min(self.args.batch, len(self.images)), len(self.images) % self.args.batch} - {0}

    def total_loss(self):
        return self.loss_sum.item()

    def forward(self, x, y):
        return F.cross_entropy(self.network(x).float(), y)

    def step(self, index):
        self.update(self.images.index_select(0, index), self.labels.index_select(0, index))

    def update(self, images, labels):
        if self.args.mode == "compile" and hasattr(torch.compiler, "cudagraph_mark_step_begin"):
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.args): loss = self.forward_and_loss(images, labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.loss_sum.add_(loss.detach(), alpha=len(labels))

    def epoch(self):
        if self.loader:
            for images, labels in self.loader:
                on_device = (each.to(self.args.device, non_blocking=True) for each in (images, labels))
                self.update(*on_device)
            return
        for index in torch.randperm(len(self.images), device=self.args.device).split(self.args.batch):
            self.steps[len(index)](index)

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
            self.epoch()
        self.synchronize()
        seconds = time.perf_counter() - start

        final_loss = self.total_loss() / len(self.images)
        peer.check_loss(seed, final_loss)
        return {"seconds": seconds, "final_loss": final_loss, "test_accuracy": evaluate(self.args, self.model, *test)}


def evaluate(args, model, images, labels):
    model.eval()
    with torch.no_grad(), autocast(args):
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
    return correct / len(labels)


def environment(args):
    capability = re.search(r"CPU capability usage: (.*)", torch.__config__.show())
    result = {"torch": torch.__version__, "cpu_capability": capability[1] if capability else None}
    if args.device == "cuda":
        result.update(device=torch.cuda.get_device_name(), cuda=torch.version.cuda,
                      cudnn=torch.backends.cudnn.version())
        with contextlib.suppress(ImportError):
            import triton
            result["triton"] = triton.__version__
    return peer.environment(args, **result)


def parse_arguments():
    parser = peer.parser(__doc__, VERSION, MODELS, AUTOCAST)
    parser.add_argument("--mode", choices=["eager", "compile", "graph"], default="eager")
    parser.add_argument("--channels-last", action="store_true", help="convolutions in NHWC")
    parser.add_argument("--loading", choices=["memory", "dataloader"], default="memory",
                        help="batches by index from the device's memory, or by a DataLoader with two processes")
    parser.add_argument("--variant", action="append", choices=[*VARIANTS, "all"], metavar="NAME",
                        help=f"instead of precision, mode, channels-last; repeatable: {', '.join(VARIANTS)}, all")
    return peer.parse(parser)


def variants(args):
    """[arguments of one variant]"""
    if not args.variant: return [named(args)]
    names = list(VARIANTS) if "all" in args.variant else list(dict.fromkeys(args.variant))
    result = []
    for name in names:
        precision, mode, channels_last = VARIANTS[name]
        row = {"variant": name, "precision": precision, "mode": mode, "channels_last": channels_last}
        result.append(named(argparse.Namespace(**{**vars(args), **row})))
    return result


def named(args):
    words = ["torch", args.model, args.precision, args.mode] + ["channels-last"] * args.channels_last
    args.name = " ".join(words + ["DataLoader"] * (args.loading == "dataloader"))
    return args


def check_available(args):
    what = f"--variant {args.variant}" if args.variant else f"--precision {args.precision} --mode {args.mode}"
    if args.mode == "graph" and args.loading == "dataloader":
        raise Failure(2, f"{what}: a graph takes its samples from memory, give --loading memory")
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
    return {"parameters": sum(p.numel() for p in trainer.model.parameters()), "optimizer": trainer.optimizer_name,
            "warmup_seconds": trainer.warmup_seconds, **peer.figures(args, runs)}


def main():
    args = parse_arguments()
    if args.device == "cuda" and not torch.cuda.is_available():
        fail(7, f"--device cuda: PyTorch {torch.__version__} finds no GPU")
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    training, test = load(args, "train", args.train, "--train"), load(args, "t10k", args.test, "--test")
    peer.record(args, VERSION, environment(args), variants(args), ("variant", "mode", "channels_last", "loading"),
                lambda variant: measure(variant, training, test))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains halfstep's models in PyTorch (2.1 or later; those of MNIST in 1.13, too) as `halfstep-bench train` does. See README.md.

--recipe takes the files of bench/recipes, and the flags of `train` that shape a recipe mean the same here: batch,
optimizer, schedule step by step, decay, label smoothing, clipping, augmentation. PyTorch is given its fastest fair way:
all data in memory on the device, MNIST normalised ahead of time, other images cropped, mirrored and normalised a batch at
once, fused optimizers, no loss read within an epoch. --loading dataloader is the usual way instead: samples one by one
through a DataLoader. Timed: shuffling, batches, forward, backward, clipping, update. Not timed: reading files, warm-up
(compiling and capturing included), evaluation. The record has the members of `train`'s rows, those of each epoch included.
--variant names the usual ways to run on a GPU, one or several in one go; each is a row of the JSON:
  eager-f32    as it comes, true f32          eager-tf32   the same on the tensor cores
  eager-amp    f16 autocast with loss scaling, NHWC
  compile-amp  the same, forward, loss and backward through torch.compile
  graph-f32, graph-tf32, graph-amp   the whole step, optimizer included, as one CUDA graph; amp is bf16, which needs no
                                     scaler, in NHWC. The only input that changes is the batch's index tensor.
--ranks N, a peer of `mpirun -n N halfstep-bench train`: DistributedDataParallel over gloo in N processes of --threads each,
which take a share of every batch; the gradients of a bucket are averaged while backward computes the next one. DDP's own
--bucket-cap-mb of 25 puts all gradients of a small model into one or two buckets, so that nearly nothing overlaps.
Exit codes are halfstep's: 2 usage, 3 bad data, 4 a file is missing, 6 the loss is not finite, 7 not available here.
"""
import argparse
import array
import codecs
import collections
import contextlib
import json
import math
import os
import pathlib
import re
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import peer
from peer import Failure, fail

try:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
except (ImportError, OSError) as error:
    peer.fail_import("PyTorch", error, "python3 -m pip install torch numpy, or on Debian: apt install python3-torch")

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
RANK = int(os.environ.get("HALFSTEP_DDP_RANK", 0))
WARM_UP_STEPS = 3  # of each batch size; torch.compile records its own CUDA graphs in the second
SIDE, MEAN, DEVIATION = 32, 0.4734, 0.2516  # of CIFAR-10's images; of all channels together, as in data/formats/cifar10.h


# --- models: those of models/*.cpp, with the names of the layers there ---

def layers(**named): return nn.Sequential(collections.OrderedDict(named))


# Pooling before ReLU gives the same numbers for less work. PyTorch's own initial weights are also uniform in +-1/sqrt(fan_in).
DIGIT_MODELS = {
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

class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1), nn.BatchNorm2d(out)
        self.shortcut = nn.Conv2d(channels, out, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet8(nn.Module):
    def __init__(self, channels=3, classes=10):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(channels, 16, 3, 1, 1), nn.BatchNorm2d(16)
        self.block1, self.block2, self.block3 = Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)
        self.linear = nn.Linear(64, classes)
        for layer in self.modules():  # He-normal, cut off at two deviations and widened to keep the variance
            if not isinstance(layer, (nn.Conv2d, nn.Linear)): continue
            deviation = math.sqrt(2 / layer.weight[0].numel()) / 0.87962566103423978
            nn.init.trunc_normal_(layer.weight, 0, deviation, -2 * deviation, 2 * deviation)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        x = self.block3(self.block2(self.block1(F.relu(self.bn(self.conv(x))))))
        return self.linear(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = (a.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for a in self.c_attn(x).chunk(3, dim=2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, bias=False), Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, bias=False)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width, bias=False),
                                  "c_proj": nn.Linear(4 * width, width, bias=False)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class CharGpt(nn.Module):
    def __init__(self, symbols, context, width=128, heads=4, blocks=4):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(symbols, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(TransformerBlock(width, heads) for _ in range(blocks)),
            "ln_f": nn.LayerNorm(width, bias=False)})
        self.lm_head = nn.Linear(width, symbols, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        for name, weight in self.named_parameters():  # GPT-2's; what is added to the sum over the blocks is smaller
            if weight.dim() == 2:
                nn.init.normal_(weight, 0, 0.02 / (math.sqrt(2 * blocks) if name.endswith("c_proj.weight") else 1))

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight[:tokens.shape[1]]
        for block in self.transformer.h: x = block(x)
        return self.lm_head(self.transformer.ln_f(x)).flatten(0, 1)


# --- data ---

def read(path):
    try:
        return bytearray(path.read_bytes())
    except OSError as error:
        fail(4, f"{path}: {error.strerror}")


class Digits:
    """MNIST, normalised; as a Dataset one sample at a time, normalised when it is asked for, as data sets usually are."""
    compile_mode = "max-autotune"

    def __init__(self, args, training):
        words = ("train", args.train, "--train") if training else ("t10k", args.test, "--test")
        pixels, labels = peer.read_set(args, *words)
        self.pixels, self.classes = torch.frombuffer(pixels, dtype=torch.uint8).view(-1, 1, 28, 28), list(labels)
        self.count, self.images = len(labels), self.normalised(self.pixels).to(args.device)
        self.labels = torch.tensor(self.classes, device=args.device)

    @staticmethod
    def normalised(pixels): return (pixels.float() / 255 - 0.1307) / 0.3081

    def __len__(self): return self.count
    def __getitem__(self, index): return self.normalised(self.pixels[index]), self.classes[index]
    def batch(self, index): return self.images.index_select(0, index), self.labels.index_select(0, index)

    def model(self, args):
        model = DIGIT_MODELS[args.model]()
        return model.to(memory_format=torch.channels_last) if args.channels_last else model


def cifar10(folder, training):
    """Its binary version, records of a label and 3 x 32 x 32 bytes: pixels (N, 3, 32, 32), labels, classes, mean, deviation."""
    records, expected = bytearray(), 10000 * (1 + 3 * SIDE * SIDE)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] if training else ["test_batch.bin"]:
        data = read(folder / name)
        if len(data) != expected: fail(3, f"{folder / name}: {len(data)} bytes, expected {expected}")
        records += data
    records = torch.frombuffer(records, dtype=torch.uint8).view(-1, 1 + 3 * SIDE * SIDE)
    return records[:, 1:].view(-1, 3, SIDE, SIDE), records[:, 0].long(), 10, MEAN, DEVIATION


def record_file(path):
    """halfstep's own, of one shard and not compressed; docs/data_formats.md has every byte. The same as cifar10()."""
    data = read(path)
    try:
        count, rows, columns, channels, classes, mean, deviation = struct.unpack_from("<16xQ24x4I2f", data)
        blocks, index = struct.unpack_from("<Q8xQ", data, 80)
        labels = struct.unpack_from(f"<{count}H", data, index + 16 * blocks)
        pixels = torch.frombuffer(data, dtype=torch.uint8, offset=4096, count=count * rows * columns * channels)
    except (struct.error, ValueError, RuntimeError) as error:
        fail(3, f"{path}: not a record file, or damaged: {error}")
    return pixels.view(count, rows, columns, channels).permute(0, 3, 1, 2), torch.tensor(labels), classes, mean, deviation


class Images:
    """Of any size, from a record file, or CIFAR-10's. --augment shifts by up to that many pixels, zeros from outside, and
    mirrors each image with probability 1/2."""
    compile_mode = None

    def __init__(self, args, training):
        self.shift, self.flip = parse_augment(args.augment) if training else (0, False)
        path = args.data / f"{'train' if training else 'test'}.record-00000-of-00001"
        images, labels, self.classes, self.mean, self.deviation = (
            record_file(path) if path.is_file() else cifar10(args.data, training))
        self.count, self.channels, rows, columns = images.shape
        self.labels = labels.to(args.device)
        images = F.pad(images, 4 * [self.shift]).to(args.device)
        self.windows = images.unfold(2, rows, 1).unfold(3, columns, 1)  # a view: (N, C, shifts down, shifts right, H, W)
        self.format = torch.channels_last if args.channels_last else torch.contiguous_format

    def batch(self, index):
        down, right = torch.randint(2 * self.shift + 1, (2, len(index)), device=index.device)
        x = self.windows[index, :, down, right]
        if self.flip: x = torch.where(torch.rand(len(index), 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
        x = x.to(torch.float32, memory_format=self.format)
        return x.mul_(1 / (255 * self.deviation)).sub_(self.mean / self.deviation), self.labels[index]

    def model(self, args): return ResNet8(self.channels, self.classes).to(memory_format=self.format)


class Text:
    """input.txt as data/formats/text.h reads it: windows of --context symbols and the one after them. Those to train on,
    from the first 90 %, begin every context / 4 symbols; those to test on where the one before ends."""
    compile_mode = None

    def __init__(self, args, training):
        data = bytes(read(args.data / "input.txt")).removeprefix(codecs.BOM_UTF8)
        try: text = data.decode()
        except UnicodeDecodeError: text = data.decode("latin-1")
        if len(set(text)) > 512: text = data.decode("latin-1")  # a character for each byte
        vocabulary = {symbol: number for number, symbol in enumerate(sorted(set(text)))}
        border = len(text) * 9 // 10
        part = array.array("h", map(vocabulary.get, text[:border] if training else text[border:]))
        if len(part) <= args.context: fail(3, f"{args.data / 'input.txt'}: too short for a context of {args.context}")
        stride = max(1, args.context // 4) if training else args.context
        self.windows = torch.frombuffer(part, dtype=torch.int16).to(args.device).unfold(0, args.context + 1, stride)
        self.count, self.symbols = len(self.windows), len(vocabulary)

    def batch(self, index):
        windows = self.windows[index].long()
        return windows[:, :-1], windows[:, 1:].flatten()

    def model(self, args):
        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 1):
            fail(7, f"{VERSION} has no layer norm without biases; install 2.1 or later")
        return CharGpt(self.symbols, args.context)


MODELS = {**dict.fromkeys(DIGIT_MODELS, Digits), "resnet8": Images, "char_gpt": Text}  # and the data they are trained on


def parse_augment(spec):
    """(pixels, whether mirrored)"""
    words = dict((*word.split("=", 1), "")[:2] for word in spec.split(",") if word)
    try:
        if set(words) <= {"shift", "flip"}: return int(words.get("shift", 0)), "flip" in words
    except ValueError:
        pass
    fail(2, f"--augment {spec}: expected shift=PIXELS, flip or both")


# --- training ---

def make_optimizer(args, model):
    kind, options = {
        "sgd": (torch.optim.SGD, {"momentum": args.momentum}),
        "nesterov": (torch.optim.SGD, {"momentum": args.momentum, "nesterov": True}),
        "adam": (torch.optim.Adam, {"betas": (0.9, args.beta2)}),
        "adamw": (torch.optim.AdamW, {"betas": (0.9, args.beta2)}),
    }[args.optimizer]
    if args.mode == "graph" and "betas" in options: options["capturable"] = True
    decays = {True: [], False: []}
    for p in model.parameters(): decays[args.decay == "all" or p.dim() > 1].append(p)
    groups = [{"params": p, "weight_decay": args.weight_decay * decay} for decay, p in decays.items() if p]
    try:
        return kind(groups, lr=args.lr, fused=True, **options), f"{kind.__name__} fused"
    except (RuntimeError, TypeError):  # on the CPU before PyTorch 2.5
        return kind(groups, lr=args.lr, **options), kind.__name__


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

    def __init__(self, args, training, test):
        self.args, self.training, self.test = args, training, test
        self.model = self.network = self.fresh_model(args.seed)
        if args.ranks > 1:
            self.network = DistributedDataParallel(self.model, bucket_cap_mb=args.bucket_cap_mb, gradient_as_bucket_view=True)
        self.optimizer, self.optimizer_name = make_optimizer(args, self.model)
        self.scaler, self.loss_sum = make_scaler(args), torch.zeros((), device=args.device)
        self.forward_and_loss = self.forward
        if args.mode == "compile":
            self.forward_and_loss = torch.compile(self.forward, dynamic=False, mode=training.compile_mode)
        start = time.perf_counter()
        self.loader = None
        if args.loading == "dataloader":
            self.loader = DataLoader(training, batch_size=args.batch, shuffle=True, num_workers=2, persistent_workers=True,
                                     pin_memory=args.device == "cuda")
            next(iter(self.loader))  # starts its processes
        self.steps = {}  # by the number of samples: a full batch, and the remainder of an epoch
        try:
            for size in {min(args.batch, args.train) // args.ranks, args.train % args.batch // args.ranks} - {0}:
                for _ in range(WARM_UP_STEPS): self.step(torch.arange(size, device=args.device))
                self.steps[size] = capture(self.step, size) if args.mode == "graph" else self.step
            self.synchronize()
        except Exception as error:
            if args.mode == "eager": raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise Failure(7, f"--mode {args.mode} does not work here with {VERSION}: {reason}")
        self.warmup_seconds = time.perf_counter() - start

    def fresh_model(self, seed):
        torch.manual_seed(seed)
        return self.training.model(self.args).to(self.args.device).train()

    def autocast(self):
        kind = AUTOCAST[self.args.precision]
        # No cache of cast weights in a graph: it would retain tensors from outside the capture.
        return torch.autocast(self.args.device, dtype=kind, cache_enabled=self.args.mode != "graph") if kind else contextlib.nullcontext()

    def forward(self, x, y):
        return F.cross_entropy(self.network(x).float(), y, label_smoothing=self.args.label_smoothing)

    def step(self, index):
        self.update(*self.training.batch(index))

    def update(self, x, y):
        if self.args.mode == "compile" and hasattr(torch.compiler, "cudagraph_mark_step_begin"):
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast(): loss = self.forward_and_loss(x, y)
        self.scaler.scale(loss).backward()
        if self.args.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.loss_sum.add_(loss.detach(), alpha=len(x))

    def synchronize(self):
        if self.args.device == "cuda": torch.cuda.synchronize()
        if self.args.ranks > 1: dist.barrier()

    def reset(self, seed):
        """In place, because a compiled or captured step is bound to these very tensors."""
        self.model.load_state_dict(self.fresh_model(seed).state_dict())
        for state in self.optimizer.state.values():
            for value in state.values(): value.zero_()
        if self.scaler.is_enabled(): self.scaler.load_state_dict(make_scaler(self.args).state_dict())
        self.order = torch.Generator(self.args.device).manual_seed(seed)  # the same on all ranks, which drop out differently
        torch.manual_seed(seed * self.args.ranks + RANK)

    def epoch(self, number, steps):
        """Returns the mean loss, and the learning rate of the last step."""
        args = self.args
        self.loss_sum.zero_()
        order = self.loader or torch.randperm(args.train, device=args.device, generator=self.order).split(args.batch)
        for step, batch in enumerate(order, number * steps):
            rate = args.lr * peer.schedule_factor(args.schedule, args.warmup, steps * args.epochs, step)
            for group in self.optimizer.param_groups: group["lr"] = rate
            if self.loader:
                self.update(*(each.to(args.device, non_blocking=True) for each in batch))
                continue
            if args.ranks > 1: batch = batch.tensor_split(args.ranks)[RANK]
            self.steps[len(batch)](batch)
        if args.ranks > 1: dist.all_reduce(self.loss_sum)
        return self.loss_sum.item() / args.train, rate

    def run(self, seed):
        """The members of a run."""
        self.reset(seed)
        epochs, steps = [], math.ceil(self.args.train / self.args.batch)
        for number in range(self.args.epochs):
            self.synchronize()
            start = time.perf_counter()
            training_loss, rate = self.epoch(number, steps)
            seconds = time.perf_counter() - start
            peer.check_loss(seed, training_loss)
            start = time.perf_counter()
            test_loss, accuracy = self.evaluate()
            epochs.append({"training_loss": training_loss, "test_loss": test_loss, "test_accuracy": accuracy,
                           "seconds": seconds, "evaluation_seconds": time.perf_counter() - start, "learning_rate": rate})
        return {"seed": seed, "steps": steps * self.args.epochs, "epochs": epochs}

    def evaluate(self):
        """(mean loss, accuracy) over the test samples, of texts over their symbols."""
        self.model.eval()
        loss, correct, count = 0, 0, 0
        with torch.no_grad():
            for index in torch.arange(self.args.test, device=self.args.device).split(self.args.batch):
                x, y = self.test.batch(index)
                with self.autocast(): logits = self.model(x).float()
                loss += F.cross_entropy(logits, y, reduction="sum").item()
                correct += (logits.argmax(1) == y).sum().item()
                count += len(y)
        self.model.train()
        return loss / count, correct / count


def check_available(args):
    what = f"--variant {args.variant}" if args.variant else f"--precision {args.precision} --mode {args.mode}"
    if args.mode == "graph" and (args.loading == "dataloader" or args.schedule != "constant"):
        raise Failure(2, f"{what}: a graph has one learning rate, and samples from memory; give --schedule constant --loading memory")
    if args.loading == "dataloader" and MODELS[args.model] is not Digits:
        raise Failure(2, "--loading dataloader: MNIST only")
    if args.device == "cpu":
        if args.mode == "graph": raise Failure(7, f"{what}: CUDA graphs need --device cuda")
        if args.precision == "f16": raise Failure(7, f"{what}: f16 needs --device cuda, bf16 does not")
        if args.precision == "tf32": raise Failure(7, f"{what}: tf32 needs --device cuda")
    if args.mode == "compile" and not hasattr(torch, "compile"):
        raise Failure(7, f"{what}: {VERSION} has no torch.compile, 2.0 and later have")
    if args.device == "cuda" and args.precision == "bf16" and not torch.cuda.is_bf16_supported():
        raise Failure(7, f"{what}: {torch.cuda.get_device_name()} has no bf16")


def measure(args, training, test):
    """The row of one variant."""
    check_available(args)
    # PyTorch lets "f32" convolutions use tf32 by default; here f32 is f32.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision != "f32"
    trainer = Trainer(args, training, test)
    runs = [trainer.run(args.seed + i) for i in range(args.repeat)]
    last = [run["epochs"][-1] for run in runs]
    rows = [{"seconds": sum(epoch["seconds"] for epoch in run["epochs"]), "final_loss": run["epochs"][-1]["training_loss"],
             "test_accuracy": run["epochs"][-1]["test_accuracy"]} for run in runs]
    return {"parameters": sum(p.numel() for p in trainer.model.parameters()), "optimizer": trainer.optimizer_name,
            "warmup_seconds": trainer.warmup_seconds, **peer.figures(args, rows),
            "test_loss": statistics.fmean(epoch["test_loss"] for epoch in last),
            "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "runs": runs}


def recipe_words(path):
    """The flags of a recipe, as words; its data are named by --data."""
    try:
        flags = json.loads(pathlib.Path(path).read_text())
        return [word for flag, value in flags.items() if flag != "data" for word in (f"--{flag}", str(value))]
    except OSError as error:
        fail(4, f"--recipe {path}: {error.strerror}")
    except (ValueError, AttributeError):
        fail(3, f"--recipe {path}: not a JSON object of flags")


def environment(args):
    capability = re.search(r"CPU capability usage: (.*)", torch.__config__.show())
    result = {"torch": torch.__version__, "cpu_capability": capability[1] if capability else None}
    if args.device == "cuda":
        result.update(device=torch.cuda.get_device_name(), cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())
        with contextlib.suppress(ImportError):
            import triton
            result["triton"] = triton.__version__
    return peer.environment(args, **result)


def parse_arguments():
    parser = peer.parser(__doc__, VERSION, MODELS, AUTOCAST)
    parser.add_argument("--recipe", metavar="FILE", help="flags of `halfstep-bench train`; those given here count before it")
    parser.add_argument("--context", type=int, default=128, help="symbols of a text that char_gpt sees")
    parser.add_argument("--optimizer", choices=["sgd", "nesterov", "adam", "adamw"], default="adam")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.999)
    parser.add_argument("--weight-decay", type=float, default=0)
    parser.add_argument("--decay", choices=["all", "weights"], default="all",
                        help="what decays: all parameters, or those of two dimensions and more")
    parser.add_argument("--schedule", choices=peer.SCHEDULES, default="constant")
    parser.add_argument("--warmup", type=int, default=0, help="steps")
    parser.add_argument("--label-smoothing", type=float, default=0)
    parser.add_argument("--clip", type=float, default=0, help="limit on the gradient norm, 0: none")
    parser.add_argument("--augment", default="", metavar="SPEC", help="shift=PIXELS,flip")
    parser.add_argument("--mode", choices=["eager", "compile", "graph"], default="eager")
    parser.add_argument("--channels-last", action="store_true", help="convolutions in NHWC")
    parser.add_argument("--loading", choices=["memory", "dataloader"], default="memory",
                        help="batches by index from the device's memory, or MNIST's by a DataLoader with two processes")
    parser.add_argument("--variant", action="append", choices=[*VARIANTS, "all"], metavar="NAME",
                        help=f"instead of precision, mode, channels-last; repeatable: {', '.join(VARIANTS)}, all")
    parser.add_argument("--ranks", type=int, default=1, help="processes, on the CPU")
    parser.add_argument("--bucket-cap-mb", type=float, default=25, metavar="MB", help="of DistributedDataParallel")
    words = sys.argv[1:]
    given = [b for a, b in zip(words, words[1:]) if a == "--recipe"]
    args = peer.parse(parser, [*(recipe_words(given[-1]) if given else []), *words])
    if args.context < 1: parser.error("--context must be at least 1")
    if args.ranks < 1: parser.error("--ranks must be at least 1")
    if args.bucket_cap_mb <= 0: parser.error("--bucket-cap-mb must be above 0")
    if args.ranks > 1:
        if args.device != "cpu": fail(7, f"--device {args.device}: gloo on the CPU only")
        if (args.mode, args.loading, args.variant) != ("eager", "memory", None): fail(2, "--ranks: expected --mode eager --loading memory")
        for size in (args.batch, args.train % args.batch):
            # DDP averages the ranks' means, which is the mean of all samples only if all have as many.
            if size % args.ranks: fail(2, f"a batch of {size} samples on {args.ranks} ranks: not as many on each")
    return args


def variants(args):
    """[arguments of one row]"""
    rows, names = [args], args.variant or []
    if names: rows = []
    for name in VARIANTS if "all" in names else dict.fromkeys(names):
        row = dict(zip(("precision", "mode", "channels_last"), VARIANTS[name]), variant=name)
        rows.append(argparse.Namespace(**{**vars(args), **row}))
    for row in rows:
        ranks = ["DDP", f"{row.ranks} ranks", f"bucket_cap_mb {row.bucket_cap_mb:g}"] if row.ranks > 1 else []
        row.name = " ".join(["torch", *ranks[:1], row.model, row.precision, row.mode] + ["channels-last"] * row.channels_last
                            + ["DataLoader"] * (row.loading == "dataloader") + ranks[1:])
    return rows


@contextlib.contextmanager
def process_group(args):
    """Rank 0 is this process; the others find it by a file, and end with it."""
    if not dist.is_available() or not dist.is_gloo_available(): fail(7, "this PyTorch has no gloo")
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.environ.setdefault("HALFSTEP_DDP_FILE", os.path.join(folder, "meeting"))
        others = [] if RANK else [
            subprocess.Popen([sys.executable, *sys.argv, "--json", os.devnull], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, env=dict(os.environ, HALFSTEP_DDP_RANK=str(rank)))
            for rank in range(1, args.ranks)]
        try:
            dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=RANK, world_size=args.ranks)
            yield
        finally:
            for other in others:
                try:
                    other.wait(5)
                except subprocess.TimeoutExpired:
                    other.kill()


def main():
    args = parse_arguments()
    if args.device == "cuda" and not torch.cuda.is_available(): fail(7, f"--device cuda: {VERSION} finds no GPU")
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    with process_group(args) if args.ranks > 1 else contextlib.nullcontext():
        training, test = MODELS[args.model](args, True), MODELS[args.model](args, False)
        for flag, wanted, data in (("train", args.train, training), ("test", args.test, test)):
            if wanted > data.count: fail(2, f"--{flag} {wanted}: there are {data.count} samples")
        peer.record(args, VERSION, environment(args), variants(args),
                    ("variant", "mode", "channels_last", "loading", "ranks", "bucket_cap_mb", "recipe", "context", "schedule",
                     "warmup", "momentum", "beta2", "weight_decay", "decay", "label_smoothing", "clip", "augment"),
                    lambda one: measure(one, training, test))


if __name__ == "__main__":
    main()

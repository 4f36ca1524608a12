#!/usr/bin/env python3
"""Trains resnet8 on CIFAR-10, or char_gpt on a text, in PyTorch (2.1 or later), as `halfstep-bench train` does.

--recipe takes the files of bench/recipes, and the flags of `train` that shape a recipe mean the same here: batch,
optimizer, schedule step by step, decay, label smoothing, clipping, augmentation. PyTorch is given its fastest fair way:
all data in memory as bytes, whole batches cropped, mirrored and normalised at once, fused optimizers, no loss read within
an epoch. Timed: shuffling, batches, forward, backward, clipping, update. Not timed: reading files, warm-up (compiling
included), evaluation. The record has the members of `train`'s rows, those of each epoch included.
Exit codes are halfstep's: 2 usage, 3 bad data, 4 a file is missing, 6 the loss is not finite, 7 not available here.
"""
import contextlib
import json
import math
import pathlib
import resource
import statistics
import sys
import time

sys.dont_write_bytecode = True
import peer
from peer import Failure, fail

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except (ImportError, OSError) as error:
    peer.fail_import("PyTorch", error, "python3 -m pip install torch numpy")

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 1):
    fail(7, f"PyTorch {torch.__version__} has no layer norm without biases; install 2.1 or later")

AUTOCAST = {"f32": None, "bf16": torch.bfloat16}
WARM_UP_STEPS = 3  # of each batch size
SIDE, MEAN, DEVIATION = 32, 0.4734, 0.2516  # of CIFAR-10's images; of all channels together, as in data/formats/cifar10.h


# --- models: those of models/*.cpp, with the names of the layers there ---

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


class Images:
    """CIFAR-10's binary version: records of a label and 3 x 32 x 32 bytes. --augment shifts by up to so many pixels,
    zeros from outside, and mirrors each image with probability 1/2."""

    def __init__(self, args, training):
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] if training else ["test_batch.bin"]
        self.shift, self.flip = parse_augment(args.augment) if training else (0, False)
        records = bytearray()
        for name in names:
            data, expected = read(args.data / name), 10000 * (1 + 3 * SIDE * SIDE)
            if len(data) != expected: fail(3, f"{args.data / name}: {len(data)} bytes, expected {expected}")
            records += data
        records = torch.frombuffer(records, dtype=torch.uint8).view(-1, 1 + 3 * SIDE * SIDE)
        self.count, self.labels = len(records), records[:, 0].long().to(args.device)
        images = F.pad(records[:, 1:].view(-1, 3, SIDE, SIDE), 4 * [self.shift]).to(args.device)
        self.windows = images.unfold(2, SIDE, 1).unfold(3, SIDE, 1)  # a view: (N, 3, shifts down, shifts right, 32, 32)
        self.format = torch.channels_last if args.channels_last else torch.contiguous_format

    def batch(self, index):
        down, right = torch.randint(2 * self.shift + 1, (2, len(index)), device=index.device)
        x = self.windows[index, :, down, right]
        if self.flip: x = torch.where(torch.rand(len(index), 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
        x = x.to(torch.float32, memory_format=self.format)
        return x.mul_(1 / (255 * DEVIATION)).sub_(MEAN / DEVIATION), self.labels[index]

    def model(self, args): return ResNet8().to(memory_format=self.format)


class Text:
    """input.txt as data/formats/text.h reads it: windows of --context symbols and the one after them. Those to train on,
    from the first 90 %, begin every context / 4 symbols; those to test on where the one before ends."""

    def __init__(self, args, training):
        data = bytes(read(args.data / "input.txt"))
        vocabulary = bytes(sorted(set(data)))
        numbers = data.translate(bytes.maketrans(vocabulary, bytes(range(len(vocabulary)))))
        border = len(data) * 9 // 10
        part = bytearray(numbers[:border] if training else numbers[border:])
        if len(part) <= args.context: fail(3, f"{args.data / 'input.txt'}: too short for a context of {args.context}")
        stride = max(1, args.context // 4) if training else args.context
        self.windows = torch.frombuffer(part, dtype=torch.uint8).to(args.device).unfold(0, args.context + 1, stride)
        self.count, self.symbols = len(self.windows), len(vocabulary)

    def batch(self, index):
        windows = self.windows[index].long()
        return windows[:, :-1], windows[:, 1:].flatten()

    def model(self, args): return CharGpt(self.symbols, args.context)


MODELS = {"resnet8": Images, "char_gpt": Text}  # and the data that they are trained on


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
    decays = {True: [], False: []}
    for p in model.parameters(): decays[args.decay == "all" or p.dim() > 1].append(p)
    groups = [{"params": p, "weight_decay": args.weight_decay * decay} for decay, p in decays.items() if p]
    try:
        return kind(groups, lr=args.lr, fused=True, **options), f"{kind.__name__} fused"
    except (RuntimeError, TypeError):  # on the CPU before PyTorch 2.5
        return kind(groups, lr=args.lr, **options), kind.__name__


class Trainer:
    def __init__(self, args, training, test):
        self.args, self.training, self.test = args, training, test
        self.model = self.fresh_model(args.seed)
        self.forward_and_loss = self.forward
        if args.mode == "compile": self.forward_and_loss = torch.compile(self.forward, dynamic=False)
        start = time.perf_counter()
        self.optimizer, self.optimizer_name = make_optimizer(args, self.model)
        try:
            for size in {min(args.batch, args.train), args.train % args.batch} - {0}:
                for _ in range(WARM_UP_STEPS): self.step(torch.arange(size, device=args.device))
        except Exception as error:
            if args.mode == "eager": raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise Failure(7, f"--mode {args.mode} does not work here with PyTorch {torch.__version__}: {reason}")
        self.warmup_seconds = time.perf_counter() - start

    def fresh_model(self, seed):
        torch.manual_seed(seed)
        return self.training.model(self.args).to(self.args.device)

    def autocast(self):
        kind = AUTOCAST[self.args.precision]
        return torch.autocast(self.args.device, dtype=kind) if kind else contextlib.nullcontext()

    def forward(self, x, y):
        return F.cross_entropy(self.model(x).float(), y, label_smoothing=self.args.label_smoothing)

    def step(self, index):
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast(): loss = self.forward_and_loss(*self.training.batch(index))
        loss.backward()
        if self.args.clip: nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.optimizer.step()
        return loss.detach() * len(index)

    def epoch(self, number, steps):
        """Returns the mean loss, and the learning rate of the last step."""
        loss, rate = torch.zeros((), device=self.args.device), 0
        order = torch.randperm(self.args.train, device=self.args.device)
        for step, index in enumerate(order.split(self.args.batch), number * steps):
            rate = self.args.lr * peer.schedule_factor(self.args.schedule, self.args.warmup, steps * self.args.epochs, step)
            for group in self.optimizer.param_groups: group["lr"] = rate
            loss += self.step(index)
        return loss.item() / self.args.train, rate

    def run(self, seed):
        """The members of a run."""
        self.model.load_state_dict(self.fresh_model(seed).state_dict())  # in place: a compiled step knows these tensors
        self.optimizer, _ = make_optimizer(self.args, self.model)
        epochs, steps = [], math.ceil(self.args.train / self.args.batch)
        for number in range(self.args.epochs):
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


def measure(args, training, test):
    if args.mode == "compile" and not hasattr(torch, "compile"):
        raise Failure(7, f"--mode compile: PyTorch {torch.__version__} has no torch.compile")
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


def parse_arguments():
    parser = peer.parser(__doc__, f"PyTorch {torch.__version__}", MODELS, AUTOCAST)
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
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--channels-last", action="store_true", help="convolutions in NHWC")
    words = sys.argv[1:]
    given = [b for a, b in zip(words, words[1:]) if a == "--recipe"]
    args = peer.parse(parser, [*(recipe_words(given[-1]) if given else []), *words])
    if args.context < 1: parser.error("--context must be at least 1")
    args.name = " ".join(["torch", args.model, args.precision, args.mode] + ["channels-last"] * args.channels_last)
    return args


def main():
    args = parse_arguments()
    if args.device == "cuda" and not torch.cuda.is_available():
        fail(7, f"--device cuda: PyTorch {torch.__version__} finds no GPU")
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    training, test = MODELS[args.model](args, True), MODELS[args.model](args, False)
    for flag, wanted, data in (("train", args.train, training), ("test", args.test, test)):
        if wanted > data.count: fail(2, f"--{flag} {wanted}: there are {data.count} samples")
    environment = peer.environment(args, torch=torch.__version__, cpu_capability=torch.backends.cpu.get_cpu_capability())
    peer.record(args, f"PyTorch {torch.__version__}", environment, [args],
                ("mode", "channels_last", "recipe", "context", "schedule", "warmup", "momentum", "beta2", "weight_decay",
                 "decay", "label_smoothing", "clip", "augment"), lambda one: measure(one, training, test))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains halfstep's models in PyTorch's DistributedDataParallel over gloo, in --ranks processes of --threads each.

A peer of `mpirun -n N halfstep-bench train`. Everything else is that of torch_mnist.py: the data in memory, normalised
ahead of time, one fused Adam. Each process takes its share of every batch of --batch samples; the gradients of a bucket are
averaged while backward computes the next one. --bucket-cap-mb is DDP's own flag; its default of 25 MB puts all gradients
of a small model into one or two buckets, so that nearly nothing overlaps.
"""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import peer
from peer import fail

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except (ImportError, OSError) as error:
    peer.fail_import("PyTorch", error, "python3 -m pip install torch numpy")
import torch_mnist

RANK = int(os.environ.get("HALFSTEP_DDP_RANK", 0))


class Trainer(torch_mnist.Trainer):
    def wrapped(self, model):
        return DistributedDataParallel(model, bucket_cap_mb=self.args.bucket_cap_mb, gradient_as_bucket_view=True)

    def step_sizes(self):
        return {size // self.args.ranks for size in super().step_sizes()}

    def epoch(self):
        for index in torch.randperm(len(self.images), generator=self.order).split(self.args.batch):
            own = index.tensor_split(self.args.ranks)[RANK]
            self.steps[len(own)](own)

    def synchronize(self):
        dist.barrier()

    def reset(self, seed):
        """The same weights and order on all ranks, other dropout."""
        super().reset(seed)
        self.order = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed * self.args.ranks + RANK)

    def total_loss(self):
        dist.all_reduce(self.loss_sum)
        return super().total_loss()


def parse_arguments():
    parser = peer.parser(__doc__, torch_mnist.VERSION, torch_mnist.MODELS, ["f32", "bf16"])
    parser.add_argument("--ranks", type=int, default=2, help="processes")
    parser.add_argument("--channels-last", action="store_true", help="convolutions in NHWC")
    parser.add_argument("--bucket-cap-mb", type=float, default=25, metavar="MB", help="of DistributedDataParallel")
    args = peer.parse(parser)
    args.mode, args.loading = "eager", "memory"
    if args.ranks < 1: parser.error("--ranks must be at least 1")
    if args.bucket_cap_mb <= 0: parser.error("--bucket-cap-mb must be above 0")
    if args.device != "cpu": fail(7, f"--device {args.device}: gloo on the CPU only")
    for size in (args.batch, args.train % args.batch):
        # DDP averages the ranks' means, which is the mean of all samples only if all have as many.
        if size % args.ranks: fail(2, f"a batch of {size} samples on {args.ranks} ranks: not as many on each")
    args.name = " ".join(["torch DDP", args.model, args.precision, f"{args.ranks} ranks"] +
                         ["channels-last"] * args.channels_last + [f"bucket_cap_mb {args.bucket_cap_mb:g}"])
    return args


def measure(args, training, test):
    trainer = Trainer(args, training)
    runs = [trainer.run(args.seed + i, test) for i in range(args.repeat)]
    return {"parameters": sum(p.numel() for p in trainer.model.parameters()), "optimizer": trainer.optimizer_name,
            "warmup_seconds": trainer.warmup_seconds, **peer.figures(args, runs)}


def main():
    args = parse_arguments()
    if not dist.is_available() or not dist.is_gloo_available(): fail(7, "this PyTorch has no gloo")
    with tempfile.TemporaryDirectory() as folder:
        # Rank 0 is this process; the others find it by a file, and end with it.
        meeting = os.environ.setdefault("HALFSTEP_DDP_FILE", os.path.join(folder, "meeting"))
        others = [] if RANK else [
            subprocess.Popen([sys.executable, *sys.argv, "--json", os.devnull], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, env=dict(os.environ, HALFSTEP_DDP_RANK=str(rank)))
            for rank in range(1, args.ranks)]
        try:
            torch.set_num_threads(args.threads)
            dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=RANK, world_size=args.ranks)
            training = torch_mnist.load(args, "train", args.train, "--train")
            test = torch_mnist.load(args, "t10k", args.test, "--test")
            peer.record(args, torch_mnist.VERSION, torch_mnist.environment(args), [args],
                        ("mode", "channels_last", "ranks", "bucket_cap_mb"), lambda one: measure(one, training, test))
        finally:
            for other in others:
                try:
                    other.wait(5)
                except subprocess.TimeoutExpired:
                    other.kill()


if __name__ == "__main__":
    main()

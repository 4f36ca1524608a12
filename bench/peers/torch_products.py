#!/usr/bin/env python3
"""Times PyTorch on the matrix products of a training step that halfstep has profiled, beside halfstep's times.

    ./bench/run profile kernels --model char_gpt --data tinyshakespeare --fuse off --json step.json
    bench/peers/torch_products.py step.json products.csv

A square factor counts as not transposed: a record has shapes alone.
"""
import json
import re
import statistics
import sys
import time

ROUNDS = 31


def numbers(shape): return tuple(map(int, re.findall(r"\d+", shape)))


def main(step, out):
    try:
        import torch
    except ImportError:
        sys.exit(7)  # as the other scripts, without PyTorch
    record = json.load(open(step))
    torch.set_num_threads(record["environment"]["threads"])
    calls = [call for call in record["calls"] if call["kernel"] == "gemm" and call["type"] == "f32"]
    products = {}  # M, N, K and what is transposed: halfstep's seconds
    for call in calls:
        a, b, (M, N) = numbers(call["shapes"][0]), numbers(call["shapes"][1]), numbers(call["shapes"][-1])
        K = round(call["flops"] / (2 * M * N))
        products.setdefault((M, N, K, a != (M, K), b != (K, N)), []).append(call["milliseconds"] / 1e3)
    operands = {p: (torch.randn(p[2], p[0]).t() if p[3] else torch.randn(p[0], p[2]),
                    torch.randn(p[1], p[2]).t() if p[4] else torch.randn(p[2], p[1]), torch.empty(p[0], p[1]))
                for p in products}
    seconds = {p: [] for p in products}
    for _ in range(ROUNDS):
        for p, (a, b, c) in operands.items():
            begin = time.perf_counter()
            torch.mm(a, b, out=c)
            seconds[p].append(time.perf_counter() - begin)
    peak = record["peaks"]["flops_per_second"]
    lines = [f"# commit {record['environment'].get('commit')}, {record['environment']['cpu']}, PyTorch {torch.__version__}, "
             f"{ROUNDS} rounds, medians in FLOP/s, peak {peak:.0f}", "M,N,K,transpose_a,transpose_b,halfstep,pytorch"]
    for p, ours in products.items():
        rates = [2 * p[0] * p[1] * p[2] / statistics.median(times) for times in (ours, seconds[p])]
        lines.append(",".join(str(int(value)) for value in (*p, *rates)))
        print(f"{p[0]} x {p[1]}, K {p[2]}: " + ", ".join(
            f"{name} {rate / 1e9:.0f} GFLOP/s, {100 * rate / peak:.0f} %"
            for name, rate in zip(("halfstep", "PyTorch"), rates)))
    with open(out, "w") as file: file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3: sys.exit(__doc__)
    main(*sys.argv[1:])

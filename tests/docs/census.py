#!/usr/bin/env python3
"""The tables of docs/techniques/gpu_kernels.md that sum up tests/census.lock.

    tests/docs/census.py            writes the tables between the markers
    tests/docs/census.py --check    says whether a table is another one; exit code 1
"""
import pathlib
import re
import sys

from marked import replaced

top = pathlib.Path(__file__).resolve().parent.parent.parent
LOCK, PAGE = top / "tests/census.lock", top / "docs/techniques/gpu_kernels.md"


def steps():
    """By title: the totals of a step, as its title says them, and its nodes: (count, MB, us, slot and kernel)."""
    found = {}
    for block in LOCK.read_text().split("\n\n")[2:]:
        title, *lines = block.strip().splitlines()
        name, totals = title.split(": nodes ")
        nodes, megabytes, microseconds = re.fullmatch(r"(\d+), MB ([\d.]+), MFLOP \d+, estimated us ([\d.]+)", totals).groups()
        rows = [re.fullmatch(r" *(\d+) +([\d.]+) +[\d.]+ +([\d.]+) +\S+  (.*)", line) for line in lines]
        found[name] = ((nodes, megabytes, microseconds),
                       [(int(row[1]), float(row[2]), float(row[3]), row[4]) for row in rows if row])
    return found


def whole_steps(steps):
    rows = ["| model | batch | nodes, off | nodes | MB, off | MB | est. us, off | est. us |", "|---|" + "---:|" * 7]
    for model in ("mnist_cnn", "mnist_cnn_large"):
        for batch in (64, 2048):
            step = f"{model} f16 batch {batch}"
            off, on = steps[f"{step} fuse off"][0], steps[step][0]
            rows.append(f"| `{model}` | {batch} | " + " | ".join(f"{a} | {b}" for a, b in zip(off, on)) + " |")
    return rows


def second_layer(steps):
    """Of mnist_cnn_large at batch 2048."""
    fused, unfused = (steps["mnist_cnn_large f16 batch 2048" + suffix][1] for suffix in ("", " fuse off"))

    def between(begin, end, slot):
        """The nodes from one call of a slot to another."""
        calls = [index for index, node in enumerate(unfused) if node[3].startswith(slot)]
        return unfused[calls[begin]:calls[end]]

    def row(rung, *directions):
        sums = [(sum(count for count, *_ in nodes), sum(count * mb for count, mb, *_ in nodes),
                 sum(count * us for count, _, us, _ in nodes)) for nodes in directions]
        return f"| {rung} | " + " | ".join(f"{number:.0f}" for sums_of_one in sums for number in sums_of_one) + " |"
    return ["| rung | forward: nodes | MB | est. us | backward: nodes | MB | est. us |", "|---|" + "---:|" * 6,
            "| naive | 1 | | | 2 | | |",
            # Its forward begins behind the ReLU of the first layer, and its backward ends before that ReLU's.
            row("im2col + cuBLASLt, three ops (`--fuse off`)", between(0, 1, "relu_forward")[1:] + between(1, 2, "relu_forward")[:1],
                between(1, 2, "relu_backward")),
            row("implicit GEMM, pooling in the epilogue (`mma`)",
                *([node for node in fused if node[3].startswith(f"conv2d_pool_relu_{way}")] for way in ("forward", "backward")))]


def main():
    if sys.argv[1:] not in ([], ["--check"]): sys.exit(__doc__)
    page, problems, found = PAGE.read_text(), 0, steps()
    for name, table in (("census-ladder", second_layer(found)), ("census-steps", whole_steps(found))):
        new = replaced(page, name, "\n".join(table) + "\n")
        if new is None: sys.exit(f"{PAGE}: the markers are missing, expected <!-- {name}:begin --> and <!-- {name}:end -->")
        if new != page:
            problems += 1
            if sys.argv[1:]: print(f"{PAGE.relative_to(top)}: the table {name} is not tests/census.lock's; run tests/docs/census.py")
        page = new
    if not sys.argv[1:]: PAGE.write_text(page)
    sys.exit(1 if problems and sys.argv[1:] else 0)


if __name__ == "__main__":
    main()

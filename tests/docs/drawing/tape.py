"""The tape of one step of mnist_cnn: the ops of a record, and for each the capture list of its closure in the source."""
import itertools
import math
import re
import textwrap
from typing import NamedTuple

from drawing.svg import Picture, Stale, expect, found, record, top

RECORD = "bench/results/cpu/explain-mnist_cnn-f32-1.json"
WITHIN = {"matmul": "linear"}  # an op whose calls belong to another op's node
NAMES = {"linear": {"x": "a", "w": "b"}, "conv2d_pool_relu": {"w": "weight"}}  # captured: name in the kernel's call
TYPES = {"winner": ("u8", 1), "labels": ("i32", 4), "step": ("i32", 4)}  # the others are f32
LEFT, MIDDLE, RIGHT = (24, 196), (244, 320), (588, 228)  # x and width of the columns
LINE, GAP, FIRST = 19, 16, 118


class Node(NamedTuple):
    op: str
    result: tuple
    kept: list    # (name, shape, type, bytes); 0 bytes: a parameter
    values: list  # what else is captured
    calls: list   # in backward
    gradients: list


def shape_of(text):
    return tuple(map(int, re.findall(r"\d+", text)))


def node_of(call):
    return WITHIN.get(call["op"], call["op"])


def named(call, headers):
    """The shapes of a call, by the names that the kernel's header gives its tensors."""
    slot = re.search(rf'Kernel<(\w+)> \w+\{{\s*"{call["kernel"]}"\}}', headers)
    names = slot and re.search(rf"struct {slot[1]} \{{.*?tensor_list\(([^)]*)\)", headers, re.S)
    if not names or len(names[1].split(", ")) != len(call["shapes"]):
        raise Stale(f"{RECORD}: {call['kernel']} has other tensors than in its header")
    return {name: text for name, text in zip(names[1].split(", "), call["shapes"]) if text != "(0)"}


def captures(op, kernel):
    """The capture list of the closure that this op records and that calls this kernel."""
    for path in sorted((top / "kernels").glob("*/*.cpp")):
        text = path.read_text()
        for match in re.finditer(rf'record\(\s*"{op}",\s*\w+,\s*\{{[^}}]*\}},\s*\[([^\]]*)\]', text):
            if kernel == "gemm" or kernel in text[match.end():].split("\n}\n")[0]:
                return [" ".join(one.split()) for one in re.split(r",(?![^()]*\))", match[1])]
    raise Stale(f"kernels/: no closure of the op {op} calls {kernel}, as {RECORD} says")


def gradients(calls, headers):
    """What the kernels of a node write in backward. linear calls products and a sum, each for one gradient."""
    lines = []
    for i, call in enumerate(calls):
        shapes = {name: text for name, text in named(call, headers).items()
                  if name.startswith("d") and name not in ("dy", "dloss")}
        shapes = shapes or {("dx", "dweight", "dbias")[i]: call["shapes"][-1]}
        lines += [f"{name} {text}" for name, text in shapes.items()]
    return lines


def read_tape(calls):
    headers = "".join(path.read_text() for path in sorted((top / "kernels").glob("*/*.h")))
    behind = {}  # of each op the calls in backward, of its last node first
    for call in calls:
        if call["phase"] == "backward":
            behind.setdefault(node_of(call), []).append(call)
    forward = [call for call in calls if call["phase"] == "forward"]
    before, tape = shape_of(forward[0]["shapes"][-1]), []
    for call in forward[1:]:
        op, shapes = node_of(call), named(call, headers)
        if (x := shape_of(call["shapes"][0])) != before:  # the same elements: a node without a kernel
            _, values = found("engine/tensor.cpp", r'record\("(reshape)", y, \{\*this\}, \[(\w+) = shape_\]')
            tape.append(Node("reshape", x, [], [values], [], ["dx: the same bytes"]))
        mine = behind[op] if op == "linear" else [behind[op].pop()]
        kept, values = [], []
        for one in captures(op, mine[0]["kernel"]):
            name = one.split(" = ")[0]
            inside = NAMES.get(op, {}).get(name, name)
            if "saved" not in one:
                values.append(name)
            elif inside not in shapes:
                raise Stale(f"the closure of {op} keeps {name}, which {call['kernel']} does not have")
            else:
                kind, size = TYPES.get(name, ("f32", 4))
                size = 0 if name == "w" else size * math.prod(shape_of(shapes[inside]))
                kept.append((name, shapes[inside], kind, size))
        before = shape_of(shapes.get("y", call["shapes"][-1]))
        tape.append(Node(op, before, kept, values, mine, gradients(mine, headers)))
    return tape


def check(tape, calls):
    """Backward calls the ops in reverse, and live memory has grown in forward by what is kept, and by the loss."""
    backward = [name for name, _ in itertools.groupby(node_of(call) for call in calls if call["phase"] == "backward")]
    if [op for op, _ in itertools.groupby(node.op for node in reversed(tape) if node.calls)] != backward:
        raise Stale(f"{RECORD}: backward calls the ops in another order than the reverse one")
    kept = sum(size for node in tape for _, _, kind, size in node.kept if kind != "i32")  # the batch and the step exist
    last = [call for call in calls if call["phase"] == "forward"][-1]
    grown = last["live_bytes"] - (calls[0]["live_bytes"] - calls[0]["kept_bytes"])
    if grown != kept + 4:
        raise Stale(f"{RECORD}: live memory grows by {grown} bytes in forward, but the closures keep {kept}")


def bytes_of(size):
    return f"{size} bytes" if size < 1000 else f"{size / 1024:.3g} KiB" if size < 2**20 else f"{size / 2**20:.2f} MiB"


def lines_of(values):
    return textwrap.wrap(", ".join(values), 46)


def draw():
    data = record(RECORD)
    tape = read_tape(data["calls"])
    check(tape, data["calls"])
    expect("engine/autograd.cpp", "node->backward = nullptr;  // frees what the closure saved, now")
    sizes = [size for node in tape for *_, size in node.kept]
    heights = [22 + LINE * max(2, len(node.kept) + len(lines_of(node.values)), len(node.gradients)) for node in tape]
    picture = Picture("The tape of one training step of mnist_cnn", "Downwards the ops of the forward pass, what the "
                      "closure of each keeps, and upwards the gradients that it returns in backward: " + "; ".join(
                          f"{node.op} keeps {', '.join(name for name, *_ in node.kept) or 'no tensor'}" for node in tape),
                      FIRST + sum(heights) + GAP * len(tape) + 56)
    for (x, _), words in ((LEFT, "forward"), (MIDDLE, "the closure keeps"), (RIGHT, "backward, upwards")):
        picture.text(x, 34, words, bold=True, size=15)
    picture.box(LEFT[0], 50, LEFT[1], 46, "grey")
    picture.text(LEFT[0] + 10, 69, "normalize_image", mono=True, size=12.5)
    picture.text(LEFT[0] + 10, 87, data["calls"][0]["shapes"][-1])
    picture.text(MIDDLE[0] + 11, 78, "no input needs a gradient: no node", "soft")
    y, above = FIRST, 96
    for number, (node, tall) in enumerate(zip(tape, heights)):
        draw_node(picture, node, len(tape) - number, y, tall, max(sizes))
        forward, backward, middle = LEFT[0] + LEFT[1] / 2, RIGHT[0] + RIGHT[1] / 2, y + tall / 2
        picture.line([(forward, above), (forward, y - 1)], arrow=True, width=1.5)
        for begin, end in ((LEFT, MIDDLE), (MIDDLE, RIGHT)):
            picture.line([(begin[0] + begin[1], middle), (end[0], middle)], dashes="3 3")
        if number:
            picture.line([(backward, y), (backward, above + 1)], arrow=True, width=1.5)
        above, y = y + tall, y + tall + GAP
    config = data["config"]
    picture.text(24, y + 14, f"Batch {config['batch']}, {config['precision']}: {sum(sizes) / 2**20:.2f} MiB of activations "
                 "are kept; bars are in proportion. w is the parameter itself, no copy.", "soft")
    picture.text(24, y + 33, "Each closure is freed as soon as it has run. dweight and dbias go to the parameter arena.", "soft")
    return picture.svg()


def draw_node(picture, node, number, y, tall, most):
    picture.box(LEFT[0], y, LEFT[1], tall, "blue")
    picture.text(LEFT[0] + 10, y + 22, node.op, mono=True, size=12.5, bold=True)
    picture.text(LEFT[0] + 10, y + 41, str(node.result) if node.result else "(), the loss")
    x, width = MIDDLE
    picture.box(x, y, width, tall, "grey")
    for i, (name, shape, kind, size) in enumerate(node.kept):
        at = y + 10 + LINE * i
        if size:
            picture.box(x + 6, at, max(2, size / most * (width - 12)), 17, "orange bare", 2)
            picture.text(x + width - 11, at + 13, bytes_of(size), anchor="end")
        picture.text(x + 11, at + 13, f"{name} {shape} {kind}" if size else f"{name}: the parameter")
    for i, words in enumerate(lines_of(node.values), len(node.kept)):
        picture.text(x + 11, y + 23 + LINE * i, words, "soft")
    picture.box(RIGHT[0], y, RIGHT[1], tall, "green")
    picture.text(RIGHT[0] + 12, y + 24, str(number), bold=True, size=16)
    for i, words in enumerate(node.gradients):
        picture.text(RIGHT[0] + 38, y + 23 + LINE * i, words)

#!/usr/bin/env python3
"""Puts the curves and numbers of a record into docs/images/memory_curve.svg, whose axes and words are drawn by hand.

    tests/docs/memory_curve.py            writes them; look at the picture before you commit it
    tests/docs/memory_curve.py --check    says whether the picture has those of the record; exit code 1
"""
import json
import pathlib
import re
import sys

top = pathlib.Path(__file__).resolve().parents[2]
RECORD, PICTURE = top / "bench/results/cpu/memory-deep_cnn.json", top / "docs/images/memory_curve.svg"
COLOURS = {"off": "orange", "all": "violet", "budget=auto": "green"}
LEFT, RIGHT, EVENTS = 64, 816, 1962  # the horizontal axis, and the events that it has room for
TOP, BOTTOM, MOST = 64, 344, 120     # the vertical axis, in MiB


def mebibytes(size):
    return f"{size / 2**20:.1f} MiB"


def drawn(svg, rows):
    def put(pattern, words):
        nonlocal svg
        if not re.search(pattern, svg):
            sys.exit(f"{PICTURE}: nothing matches {pattern}, expected the place of `{words[:40]}`")
        svg = re.sub(pattern, lambda _: words, svg)

    def up(live):
        return f"{BOTTOM - sum(live.values()) / 2**20 / MOST * (BOTTOM - TOP):.1f}"
    for name, colour in COLOURS.items():
        row, timeline = rows[name], rows[name]["timeline"]
        points, start = timeline["points"], timeline["live_at_start"]
        width = (RIGHT - LEFT) * timeline["events"] / EVENTS  # a point is the largest of an equal part of the events
        way = [f"{LEFT + (i + 0.5) * width / len(points):.1f} {up(point['live'])}" for i, point in enumerate(points)]
        way = "L".join([f"{LEFT:.1f} {up(start)}", *way, f"{LEFT + width:.1f} {up(start)}"])
        put(rf'(?<=class="{colour} bare" fill-opacity="0.6" d=")[^"]*', f"M{way}V{BOTTOM}H{LEFT}Z")
        put(rf'(?<=class="{colour} hollow" stroke-width="2" d=")[^"]*', f"M{way}")
        slower = "" if name == "off" else f", {100 * (row['step_ms'] / rows['off']['step_ms'] - 1):+.1f} %"
        put(rf'(?<=id="{colour}">)[^<]*', f"peak {mebibytes(row['peak_bytes'])}, {row['step_ms']:.0f} ms{slower}")
    put(r"planner's \d+ segments", f"planner's {len(rows['budget=auto']['segments'])} segments")
    put(r'(?<=class="line" d=")[^"]*', f"M{LEFT} {up(start)}L{RIGHT} {up(start)}")
    put(r"(?<=optimizer: )[^<]*", mebibytes(sum(start.values())))
    return svg


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    record, old = json.loads(RECORD.read_text()), PICTURE.read_text()
    rows = {row["checkpoint"]: row for row in record["rows"] if row["precision"] == "f32" and row["accumulate"] == 1}
    if max(rows[name]["timeline"]["events"] for name in COLOURS) != EVENTS:
        sys.exit(f"{RECORD}: has other numbers of events than {PICTURE} has room for; draw its axis again")
    new = drawn(old, rows)
    if not sys.argv[1:]:
        PICTURE.write_text(new)
    elif new != old:
        sys.exit(f"{PICTURE} is not what {RECORD} says; run tests/docs/memory_curve.py and look at it")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Draws the pictures of the book, docs/images/*.svg, from the sources and from records of bench/results.

    tests/docs/pictures.py            writes them
    tests/docs/pictures.py --check    names each one that is another one now; exit code 1

A picture follows what its module in tests/docs/drawing reads: constants, capture lists, the lines of a rule, a record. If one
of these changes, the check fails: draw again, look at it, and commit it with the change.
"""
import sys

from drawing import formats, leaf_tree, loader_slots, memory_curve, tape, tiles
from drawing.svg import Stale, top

FOLDER = top / "docs" / "images"
PICTURES = {
    "tape.svg": tape.draw,
    "loader_slots.svg": loader_slots.draw,
    "memory_curve.svg": memory_curve.draw,
    "tiles_amx.svg": tiles.amx,
    "fragments_mma.svg": tiles.mma,
    "leaf_tree.svg": leaf_tree.draw,
    "formats.svg": formats.draw,
}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    problems = []
    for name, draw in PICTURES.items():
        path = FOLDER / name
        try:
            svg = draw()
        except Stale as reason:
            problems.append(f"docs/images/{name}: {reason}")
            continue
        if not sys.argv[1:]:
            path.write_text(svg)
        elif not path.is_file() or path.read_text() != svg:
            problems.append(f"docs/images/{name} is not what the sources and records say; run tests/docs/pictures.py")
    print("".join(f"{problem}\n" for problem in problems) + f"{len(PICTURES)} pictures; {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

"""The map of the folders, drawn from the #include lines: docs/images/map.svg. `tests/docs/run map` draws it again."""
import pathlib
import re

ROOMS = [  # path prefixes of each room's files; the longest match wins
    "engine/", "kernels/", "models/", "data/", "data/formats/", "data/io/", "data/loader/", "bench/cli/", "bench/report/",
    "bench/measure/", "bench/measure/observers/", "bench/commands/", "bench/main.cpp", "tests/", "tests/op_table/",
]
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN, PASSAGE = 190, 44, 26, 40, 20, 4


def room_of(path):
    return max((room for room in ROOMS if path.startswith(room)), key=len, default=None)


def arrows(top, names):
    """Which room includes a header of which other one."""
    found = set()
    for name in names:
        origin = room_of(name)
        if origin is None or not name.endswith((".h", ".cpp", ".cu", ".cuh")):
            continue
        for included in re.findall(r'^#include "([^"]+)"', (top / name).read_text(), re.M):
            target = room_of(included)
            if target and target != origin:
                found.add((origin, target))
    return found


def floors(found):
    """Rooms by the longest way down from them; rooms of a circle, if there is one, as the second result."""
    below = {room: {b for a, b in found if a == room} for pair in found for room in pair}
    floor, left = {}, dict(below)
    while left:
        free = [room for room in left if below[room] <= set(floor)]
        if not free:
            return floor, sorted(left)
        for room in free:
            floor[room] = 1 + max((floor[other] for other in below[room]), default=-1)
            del left[room]
    return floor, []


def reduced(found):
    """Without the arrows that a longer way says already."""
    reach = {}

    def all_below(room):
        if room not in reach:
            direct = {b for a, b in found if a == room}
            reach[room] = direct.union(*(all_below(other) for other in direct))
        return reach[room]

    return sorted((a, b) for a, b in found if not any(b in all_below(c) for x, c in found if x == a and c != b))


def ordered(floor, found):
    """The rows of the drawing, the lowest first, and each arrow as the chain of what it passes. On a floor between its ends
    an arrow has a place of its own, a pair (arrow, floor), so that it runs beside the rooms there and not behind them. In a
    row, everything stands near the mean of what it is connected with above and below."""
    rows = [sorted(room for room in floor if floor[room] == number) for number in range(max(floor.values()) + 1)]
    chains = []
    for a, b in found:
        passed = [((a, b), number) for number in range(floor[a] - 1, floor[b], -1)]
        for place in passed:
            rows[place[1]].append(place)
        chains.append([a, *passed, b])
    near = {}
    for chain in chains:
        for upper, lower in zip(chain, chain[1:]):
            near.setdefault(upper, []).append(lower)
            near.setdefault(lower, []).append(upper)

    def middles():
        return {thing: left + width_of(thing) / 2 for row in rows for thing, left in zip(row, lefts(row))}

    for _ in range(30):
        for row in rows:
            middle = middles()
            wanted = {thing: sum(middle[other] for other in near[thing]) / len(near[thing]) for thing in row}
            row.sort(key=lambda thing: (wanted[thing], str(thing)))
    return rows, chains


def width_of(thing):
    return WIDTH if isinstance(thing, str) else PASSAGE


def row_width(row):
    return sum(width_of(thing) + GAP_X for thing in row) - GAP_X


def lefts(row):
    """The left edges, the middle of the row at 0."""
    at, result = -row_width(row) / 2, []
    for thing in row:
        result.append(at)
        at += width_of(thing) + GAP_X
    return result


def draw(found):
    floor, _ = floors(found)
    rows, chains = ordered(floor, reduced(found))
    width = MARGIN * 2 + max(map(row_width, rows))
    height = MARGIN * 2 + len(rows) * (HEIGHT + GAP_Y) - GAP_Y
    place = {}  # the middle of the upper edge
    for number, row in enumerate(rows):
        for thing, left in zip(row, lefts(row)):
            place[thing] = (width / 2 + left + width_of(thing) / 2, height - MARGIN - HEIGHT - number * (HEIGHT + GAP_Y))
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
             'font-family="sans-serif" font-size="14">',
             "<style>.room{fill:#eef3fb;stroke:#4a6fa5}.arrow{stroke:#8a8f98;fill:none}.head{fill:#8a8f98}text{fill:#1c2733}"
             "@media(prefers-color-scheme:dark){.room{fill:#22304a}text{fill:#e6ecf5}}</style>",
             '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
             '<path class="head" d="M0 0L8 4L0 8z"/></marker>']
    for chain in chains:
        x, y = place[chain[0]]
        path = f"M{x:.0f} {y + HEIGHT:.0f}"
        for passed in chain[1:]:
            to_x, to_y = place[passed]
            middle = to_y - GAP_Y / 2
            path += f"C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}"
            if passed != chain[-1]: path += f"V{to_y + HEIGHT:.0f}"
            x = to_x
        lines.append(f'<path class="arrow" marker-end="url(#head)" d="{path}"/>')
    for room in sorted(floor):
        x, y = place[room]
        lines.append(f'<rect class="room" x="{x - WIDTH / 2:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
                     f'<text x="{x:.0f}" y="{y + HEIGHT / 2 + 5:.0f}" text-anchor="middle">{room.rstrip(".")}</text>')
    return "\n".join(lines + ["</svg>"]) + "\n"

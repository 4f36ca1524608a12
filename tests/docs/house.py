"""The map of the folders, drawn from the #include lines: docs/images/map.svg. `tests/docs/run map` draws it again."""
import pathlib
import re

ROOMS = [  # path prefixes of each room's files; the longest match wins
    "engine/", "kernels/", "models/", "data/", "data/formats/", "data/io/", "data/loader/", "bench/cli/", "bench/report/",
    "bench/measure/", "bench/measure/observers/", "bench/commands/", "bench/main.cpp", "tests/", "tests/op_table/",
]
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 44, 26, 40, 20


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


def draw(found):
    floor, _ = floors(found)
    rows = [sorted(room for room in floor if floor[room] == number) for number in range(max(floor.values()) + 1)]
    width = MARGIN * 2 + max(len(row) for row in rows) * (WIDTH + GAP_X) - GAP_X
    height = MARGIN * 2 + len(rows) * (HEIGHT + GAP_Y) - GAP_Y
    place = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (WIDTH + GAP_X) + GAP_X) / 2
        for i, room in enumerate(row):
            place[room] = (left + i * (WIDTH + GAP_X), height - MARGIN - HEIGHT - number * (HEIGHT + GAP_Y))
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
             'font-family="sans-serif" font-size="14">',
             "<style>.room{fill:#eef3fb;stroke:#4a6fa5}.arrow{stroke:#8a8f98;fill:none}.head{fill:#8a8f98}text{fill:#1c2733}"
             "@media(prefers-color-scheme:dark){.room{fill:#22304a}text{fill:#e6ecf5}}</style>",
             '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
             '<path class="head" d="M0 0L8 4L0 8z"/></marker>']
    for a, b in reduced(found):
        (ax, ay), (bx, by) = place[a], place[b]
        x, y, to_x, to_y = ax + WIDTH / 2, ay + HEIGHT, bx + WIDTH / 2, by
        middle = (y + to_y) / 2
        lines.append(f'<path class="arrow" marker-end="url(#head)" d="M{x:.0f} {y:.0f}C{x:.0f} {middle:.0f} '
                     f'{to_x:.0f} {middle:.0f} {to_x:.0f} {to_y:.0f}"/>')
    for room, (x, y) in sorted(place.items()):
        lines.append(f'<rect class="room" x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
                     f'<text x="{x + WIDTH / 2:.0f}" y="{y + HEIGHT / 2 + 5:.0f}" text-anchor="middle">{room.rstrip(".")}</text>')
    return "\n".join(lines + ["</svg>"]) + "\n"

"""Live bytes over one step of deep_cnn, with and without checkpointing, from the timelines of a record."""
from drawing.svg import Picture, mebibytes, record

RECORD = "bench/results/cpu/memory-deep_cnn.json"
CURVES = {"off": ("orange", "everything kept"), "all": ("violet", "each stage a segment"),
          "budget=auto": ("green", "the planner's {} segments")}
REMARKS = (  # at an event and a number of MiB
    (40, 92, "forward: every op", "adds what it keeps"), (900, 92, "backward releases it,", "op by op"),
    (1430, 55, "each tooth of the planner's:", "a segment runs forward again"),
)
LEFT, RIGHT, TOP, BOTTOM, MOST = 64, 816, 64, 344, 120


def total(live):
    return sum(live.values())


def draw():
    data = record(RECORD)
    rows = {row["checkpoint"]: row for row in data["rows"] if row["precision"] == "f32" and row["accumulate"] == 1}
    config, longest = data["config"], max(rows[name]["timeline"]["events"] for name in CURVES)
    across = lambda event: LEFT + event / longest * (RIGHT - LEFT)
    up = lambda size: BOTTOM - size / 2**20 / MOST * (BOTTOM - TOP)
    peaks = ", ".join(f"{name} {mebibytes(rows[name]['peak_bytes'])}" for name in CURVES)
    picture = Picture("Memory over one training step, with and without checkpointing", f"Peaks: {peaks}", 456)
    picture.text(24, 32, f"MiB live during one step of {config['model']}: {config['blocks']} blocks, batch {config['batch']}, "
                 "f32", bold=True)
    for value in range(0, MOST + 1, 20):
        picture.line([(LEFT, up(value * 2**20)), (RIGHT, up(value * 2**20))], "grid")
        picture.text(LEFT - 8, up(value * 2**20) + 4.5, str(value), "soft", anchor="end")
    ways = []
    for name, (kind, _) in CURVES.items():  # a point is the largest of an equal part of the events
        points, events = rows[name]["timeline"]["points"], rows[name]["timeline"]["events"]
        start = up(total(rows[name]["timeline"]["live_at_start"]))
        way = [(across((i + 0.5) * events / len(points)), up(total(point["live"]))) for i, point in enumerate(points)]
        ways.append((kind, "L".join(f"{x:.1f} {y:.1f}" for x, y in [(LEFT, start), *way, (across(events), start)])))
        picture.add("path", class_=f"{kind} bare", fill_opacity="0.6", d=f"M{ways[-1][1]}V{BOTTOM}H{LEFT}Z")
    for kind, way in ways:  # above all areas
        picture.add("path", class_=f"{kind} hollow", stroke_width="2", d=f"M{way}")
    start = total(rows["off"]["timeline"]["live_at_start"])
    picture.line([(LEFT, up(start)), (RIGHT, up(start))], dashes="3 4")
    picture.text(RIGHT - 4, up(start) + 17, f"weights, gradients, optimizer: {mebibytes(start)}", anchor="end")
    for event, size, *words in REMARKS:
        for i, line in enumerate(words):
            picture.text(across(event), up(size * 2**20) + 17 * i, line)
    for event in range(0, longest, 500):
        picture.text(across(event), BOTTOM + 22, str(event), "soft", anchor="middle")
    picture.text(RIGHT, BOTTOM + 41, "allocations and releases since the step began", "soft", anchor="end")
    for i, (name, (kind, words)) in enumerate(CURVES.items()):
        row, x = rows[name], 24 + i * 272
        slower = f", {100 * (row['step_ms'] / rows['off']['step_ms'] - 1):+.1f} %" if name != "off" else ""
        picture.box(x, BOTTOM + 64, 14, 14, kind, 2)
        picture.text(x + 22, BOTTOM + 76, words.format(len(row["segments"])), bold=True)
        picture.text(x + 22, BOTTOM + 96, f"peak {mebibytes(row['peak_bytes'])}, {row['step_ms']:.0f} ms{slower}")
    return picture.svg()

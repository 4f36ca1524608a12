"""The states of the loader's slots over time: the spans of a record, and the rules of data/loader/loader.cpp."""
from drawing.svg import Picture, Stale, expect, found, record

RECORD, HEADER, CODE = "bench/results/cpu/loader-formats.json", "data/loader/loader.h", "data/loader/loader.cpp"
STATES = ("free", "filling", "uploading", "in_use")
RULES = (  # which slot a batch gets, and when
    "for (int64_t i = 0; i <= options_.prefetch; ++i) add_slot();",
    "if (slot->state == State::in_use && slot->buffers.try_release()) slot->state = State::free;",
    "while (static_cast<int64_t>(ahead_.size()) <= options_.prefetch) request();",
    "Slot* slot = ahead_.front();",
    "auto found = std::ranges::find(slots_, State::free, [](const auto& slot) { return slot->state; });",
)
# What is drawn: a state, or a part of one. Without a colour it is a dashed box.
KINDS = {"requested": (None, "filling: waits for a thread"), "read": ("blue", "filling: being read"),
         "uploading": ("green", "uploading: ready"), "in_use": ("orange", "in_use")}
LEFT, RIGHT, ROW = 92, 816, 20


def slots_of(rung):
    """For each slot a list of (kind, batch, begin, end); the steps' spans; the end of the last one."""
    spans = {"load": {}, "step": {}}
    for lane, batch, begin, end in rung["spans"]:
        spans[lane.split()[0]][batch] = begin, end
    load, step = spans["load"], [spans["step"][batch] for batch in sorted(spans["step"])]
    slots, slot_of, requested = [[] for _ in range(rung["prefetch"] + 1)], {}, 0
    for call in range(len(step)):  # of next(): frees the slot of the batch before, then requests what is ahead
        now = step[call - 1][1] if call else 0
        slot_of.pop(call - 1, None)
        while len(slot_of) <= rung["prefetch"]:
            slot_of[requested] = min(set(range(len(slots))) - set(slot_of.values()))
            slot = slots[slot_of[requested]]
            begin, end = load.get(requested, (step[-1][1], None))
            slot.append(("requested", requested, now, begin))
            if requested in load:
                slot += [("read", requested, begin, end), ("uploading", requested, end, step[requested][0]),
                         ("in_use", requested, *step[requested])]
            requested += 1
    return slots, step, step[-1][1]


def draw():
    listed = tuple(word.strip() for word in found(HEADER, r"enum class State \{ ([a-z_, ]+) \};")[0].split(","))
    if listed != STATES:
        raise Stale(f"{HEADER}: the states are {', '.join(listed)}, expected {', '.join(STATES)}")
    expect(CODE, *RULES)
    rungs = [(rung, *slots_of(rung)) for rung in record(RECORD)["timelines"]]
    longest = max(end for *_, end in rungs)
    across = lambda time: LEFT + time / longest * (RIGHT - LEFT)
    picture = Picture("The slots of the loader over time", "; ".join(
        f"{rung['name']}: {len(slots)} slot{'s' * (len(slots) > 1)}, {end:.1f} ms" for rung, slots, _, end in rungs),
        112 + sum(len(slots) * ROW + 66 for _, slots, *_ in rungs))
    y = 34
    for rung, slots, step, finish in rungs:
        picture.text(24, y, f"{rung['name']}: {finish:.1f} ms", bold=True)
        picture.text(RIGHT, y, f"--prefetch {rung['prefetch']} --workers {rung['workers']}", "soft", anchor="end", mono=True,
                     size=12.5)
        for time in range(0, int(longest) + 1, 5):
            picture.line([(across(time), y + 10), (across(time), y + 14 + (len(slots) + 1) * ROW)], "grid")
        y += 10
        for i, slot in enumerate(slots):
            picture.text(24, y + 14.5, f"slot {i + 1}")
            for kind, batch, begin, end in slot:
                words = str(batch) if batch < len(step) else ""
                draw_part(picture, KINDS[kind][0], words, across(begin), across(end), y + 2)
            y += ROW
        picture.text(24, y + 16.5, "step")
        for before, (begin, end) in zip([0, *(end for _, end in step)], step):
            if begin - before > 0.1:
                picture.line([(across(before), y + 12), (across(begin), y + 12)], "mark")
            picture.box(across(begin), y + 5, across(end) - across(begin), 14, "orange", 2)
        y += ROW + 36
    for time in range(0, int(longest) + 1, 5):
        picture.text(across(time), y - 12, f"{time} ms" if time == 0 else str(time), "soft", anchor="middle")
    draw_legend(picture, y + 18)
    return picture.svg()


def draw_part(picture, colour, words, begin, end, y):
    if end - begin < 0.5:
        return
    if colour:
        picture.box(begin, y, end - begin, 16, colour, 2)
    else:
        picture.line([(begin, y), (end, y), (end, y + 16), (begin, y + 16), (begin, y)], dashes="2 3")
    if end - begin > 12:
        picture.text((begin + end) / 2, y + 12.5, words, size=12, anchor="middle")


def draw_legend(picture, y):
    x = 24
    for colour, words in (*KINDS.values(), ("mark", "the loop has no batch")):
        if colour == "mark":
            picture.line([(x, y), (x + 16, y)], "mark")
        else:
            draw_part(picture, colour, "", x, x + 16, y - 8)
        picture.text(x + 22, y + 4.5, words)
        x += 40 + 7 * len(words)
    for i, words in enumerate(("A slot is free only inside next(), which releases one and requests the next batch into it. "
                               "Dashed boxes without a number:", "batches after the eight of the record. On the CPU nothing "
                               "is uploaded: a batch is ready once it is read.")):
        picture.text(24, y + 34 + 19 * i, words, "soft")

"""The tables of docs/experiments.md, from the records of `bench/experiment`; what a sheet says is in sheets.py.

A cell is the median over the seeds, with the lowest and the highest in brackets. "ratio COLUMN" compares a row with the one
that it is measured against, seed by seed, because those two runs took place one after the other: above 1 is better.
"""
import dataclasses
import re
import statistics
import typing

import sheets
from sheets import BAD_INPUT, IO, MISSED, Failure


class Run:
    """One record, of halfstep or of a peer."""

    def __init__(self, path):
        self.path, self.record = path, sheets.read_json(path)
        try:
            (self.row,), self.environment = self.record["rows"], self.record["environment"]
            (run,) = self.row["runs"]
            self.seed, self.steps, self.epochs = run["seed"], run["steps"], run["epochs"]
            self.is_peer = self.record["schema"] == "halfstep-peer-1"
            self.settings = self.row if self.is_peer else {**self.record["config"], "train": self.record["data"]["train"],
                                                           "test": self.record["data"]["test"]}
            self.first, self.last = self.epochs[0], self.epochs[-1]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise Failure(BAD_INPUT, f"{path}: is not the record of one run of train: {error!r}")

    def check_belongs_to(self, row, seed):
        """The record is of these settings, not of those that the sheet had before."""
        expected = {**row["settings"], "learning-rate": row["settings"].get("lr")}
        if self.seed != seed: raise Failure(BAD_INPUT, f"{self.path}: seed is {self.seed}, expected {seed} as in its name")
        if "scale-lr" in expected: del expected["learning-rate"]  # the record has the scaled one
        for flag in ("lr", "data"): expected.pop(flag, None)
        if self.is_peer: expected.pop("epochs"), expected.pop("optimizer", None)  # counted and named in another way
        for flag, value in expected.items():
            found = self.settings.get(flag.replace("-", "_"))
            if value is None or found is None or isinstance(found, list): continue
            same = abs(found - float(value)) <= 1e-9 * abs(found) if isinstance(value, float) else found == value
            if not same:
                raise Failure(BAD_INPUT, f"{self.path}: {flag} is {found}, expected {value} as in the sheet; delete it and run "
                                         "the experiment again")

    def reached(self, target):
        """(epochs, seconds of training) until the first evaluation of at least this accuracy, or Nones."""
        seconds = 0
        for number, epoch in enumerate(self.epochs, 1):
            seconds += epoch["seconds"]
            if target and epoch["test_accuracy"] >= target: return number, seconds
        return None, None


@dataclasses.dataclass
class Column:
    heading: str
    ratio_heading: str
    digits: int
    value: typing.Callable  # of a Run and the sheet, or None
    more_is_better: bool = False
    absent: str = "-"


def mebibytes(run): return run.row["peak_bytes"] / (1 << 20) if run.row.get("peak_bytes") else None


COLUMNS = {
    "seconds_per_epoch": Column("s per epoch", "times as fast", 2,
                                lambda run, _: statistics.fmean(epoch["seconds"] for epoch in run.epochs)),
    "training_minutes": Column("minutes of training", "times as fast", 1, lambda run, _: run.row["seconds"] / 60),
    "step_ms": Column("ms per step", "times as fast", 1, lambda run, _: 1000 * run.row["seconds"] / run.steps),
    "samples_per_second": Column("samples/s", "times as fast", 0, lambda run, _: run.row["samples_per_second"], True),
    "tokens_per_second": Column("tokens/s", "times as fast", 0,
                                lambda run, _: run.row["samples_per_second"] * run.settings["context"], True),
    "test_accuracy": Column("% test accuracy", "", 2, lambda run, _: 100 * run.last["test_accuracy"]),
    "test_loss": Column("nats validation loss", "", 3, lambda run, _: run.last["test_loss"]),
    "training_loss": Column("training loss", "", 3, lambda run, _: run.last["training_loss"]),
    "epochs_to_target": Column("epochs to the target", "", 0,
                               lambda run, sheet: run.reached(sheet.get("target_accuracy"))[0], absent="not reached"),
    "seconds_to_target": Column("s of training to the target", "times as fast to the target", 1,
                                lambda run, sheet: run.reached(sheet.get("target_accuracy"))[1], absent="not reached"),
    "trained_parameters": Column("trained parameters", "times fewer", 0, lambda run, _: run.row.get("trained_parameters")),
    "peak_mib": Column("peak MiB", "times less memory", 1, lambda run, _: mebibytes(run)),
}


def column_of(sheet, name):
    """(the Column, whether its ratio is meant). "seconds_to 0.7" is a target of its own."""
    is_ratio, plain = name.startswith("ratio "), name.removeprefix("ratio ")
    if re.fullmatch(r"seconds_to 0\.\d+", plain):
        target = float(plain.split()[1])
        return Column(f"s of training to {100 * target:g} %", f"times as fast to {100 * target:g} %", 1,
                      lambda run, _: run.reached(target)[1], absent="not reached"), is_ratio
    if plain not in COLUMNS or (is_ratio and not COLUMNS[plain].ratio_heading):
        raise Failure(BAD_INPUT, f"{sheet['name']}: no column {name!r}, expected some of {', '.join(COLUMNS)}")
    return COLUMNS[plain], is_ratio


def read_runs(folder, sheet):
    """{name of a row: {seed: Run}}"""
    runs, rows = {row["name"]: {} for row in sheet["rows"]}, {row["name"]: row for row in sheet["rows"]}
    for path in sorted((folder / sheet["name"]).glob("*.json")):
        name, _, seed = path.stem.rpartition("-seed")
        if name not in rows or not seed.isdecimal(): raise Failure(BAD_INPUT, f"{path}: is the record of no row of the sheet")
        run = Run(path)
        run.check_belongs_to(rows[name], int(seed))
        runs[name][int(seed)] = run
    return runs


def cell(sheet, runs, row, name):
    column, is_ratio = column_of(sheet, name)
    values = {seed: column.value(run, sheet) for seed, run in runs[row["name"]].items()}
    if is_ratio:
        if row["against"] == row["name"]: return "1" if any(values.values()) else "-"
        others = {seed: column.value(run, sheet) for seed, run in runs[row["against"]].items()}
        both = {seed: (values[seed], others[seed]) for seed in values if values[seed] and others.get(seed)}
        values = {seed: mine / other if column.more_is_better else other / mine for seed, (mine, other) in both.items()}
    known, digits = [value for value in values.values() if value is not None], 2 if is_ratio else column.digits
    if not known: return column.absent if values and not is_ratio else "-"
    low, middle, high = (f"{value:.{digits}f}" for value in (min(known), statistics.median(known), max(known)))
    text = middle if low == high else f"{middle} ({low} .. {high})"
    return text if len(known) == len(values) else f"{text}, {len(known)} of {len(values)} runs"


# --- text ---

def describe(row):
    """What it differs by from the recipe or from the row that it is like."""
    flags = [f"{flag} {value}" if value is not True else flag for flag, value in row.get("flags", {}).items()
             if flag not in ("train", "test", "epochs")]
    start = f"`{row['like']}`" if "like" in row else "the recipe"
    return (f"{start} in PyTorch" if row["engine"] == "torch" else start) + (", but " if flags else "") + ", ".join(flags)


def machine(runs):
    """The machines, programs and commits of all records, each once."""
    def each(template, some): return ", ".join(sorted({template.format(**run.environment) for run in some}))
    ours, peers = [run for run in runs if not run.is_peer], [run for run in runs if run.is_peer]
    text = "On " + each("{cores} cores of {cpu}", runs)
    if ours: text += f"; halfstep {each('{commit}', ours)}, {each('{compiler}', ours)}"
    if peers: text += f"; PyTorch {each('{torch}', peers)}"
    return text + "."


def comparisons(sheet):
    """Which rows the ratios are against."""
    groups = {}
    for row in sheet["rows"]:
        if row["against"] != row["name"]: groups.setdefault(row["against"], []).append(row["name"])
    if len(groups) == 1: return f"Compared with `{next(iter(groups))}`, seed by seed."
    return "Compared seed by seed: " + "; ".join(f"{', '.join(rows)} with `{base}`" for base, rows in groups.items()) + "."


def missing(sheet, runs):
    groups = {}  # rows by the seeds that they lack
    for row in sheet["rows"]:
        left = tuple(seed for seed in range(1, sheet["seeds"] + 1) if seed not in runs[row["name"]])
        if left: groups.setdefault(left, []).append(f"`{row['name']}`")
    parts = [", ".join(rows) + (f" (seeds {', '.join(map(str, left))})" if len(left) < sheet["seeds"] else "")
             for left, rows in groups.items()]
    return f"Not measured yet: {'; '.join(parts)}." if parts else ""


def markdown(sheet, runs):
    columns = [column_of(sheet, name) for name in sheet["columns"]]
    heads = ["row", "what"] + [column.ratio_heading if is_ratio else column.heading for column, is_ratio in columns]
    all_runs = [run for of_row in runs.values() for run in of_row.values()]
    lines = [f"**{sheet['title']}**", ""]
    if all_runs:
        lines += [f"| {' | '.join(heads)} |", "|---|---|" + len(columns) * "---:|"]
        for row in sheet["rows"]:
            if not runs[row["name"]]: continue
            cells = [row["name"], describe(row)] + [cell(sheet, runs, row, name) for name in sheet["columns"]]
            lines.append(f"| {' | '.join(cells)} |")
        common = ", ".join(f"{flag} {value}" for flag, value in sheet.get("flags", {}).items())
        target = f" The target is a test accuracy of {100 * sheet['target_accuracy']:g} %." if "target_accuracy" in sheet else ""
        against = f" {comparisons(sheet)}" if any(is_ratio for _, is_ratio in columns) else ""
        lines += ["", f"All rows: {common or 'the recipe'}.{against}{target}", machine(all_runs)]
        lines += claims(sheet, runs)
    lines += [""] * bool(all_runs) + [missing(sheet, runs)] * bool(missing(sheet, runs))
    return "\n".join(lines).rstrip() + "\n"


def claims(sheet, runs):
    rows, lines = {row["name"]: row for row in sheet["rows"]}, []
    for claim in sheet["claims"]:
        column, is_ratio = column_of(sheet, claim["column"])
        found = cell(sheet, runs, rows[claim["row"]], claim["column"])
        what = column.ratio_heading if is_ratio else column.heading
        ours = f"`{claim['row']}`: {found} {what}" if found != "-" else "not measured yet"
        if not is_ratio and found != "-":
            base = rows[claim["row"]]["against"]
            ours += f"; `{base}`: {cell(sheet, runs, rows[base], claim['column'])}"
        lines.append(f"| {claim['article']} | {ours} |")
    return ["", "| the article | here |", "|---|---|", *lines] if lines else []


# --- the page ---

def update(page, sheet_folder, record_folder, check):
    """Writes what stands between the markers of a page, or compares; returns the exit code."""
    try:
        new = text = page.read_text()
        names = re.findall(r"<!-- experiment:(\w+) begin -->", text)
        if not names: raise Failure(BAD_INPUT, f"{page}: has no line <!-- experiment:NAME begin -->")
        for name in names:
            begin, end = f"<!-- experiment:{name} begin -->\n", f"<!-- experiment:{name} end -->"
            if new.count(begin) != 1 or new.count(end) != 1 or new.index(begin) > new.index(end):
                raise Failure(BAD_INPUT, f"{page}: expected once {begin.strip()}, and once {end} after it")
            sheet = sheets.load(sheet_folder, name)
            table = markdown(sheet, read_runs(record_folder, sheet))
            if check and f"{begin}{table}{end}" not in text:
                raise Failure(MISSED, f"{page}: the table of {name} is not that of the records; `bench/experiment --tables` writes it")
            new = new[:new.index(begin)] + begin + table + new[new.index(end):]
        if new != text: page.write_text(new)
    except OSError as error:
        raise Failure(IO, f"{page}: {error.strerror}")
    return 0

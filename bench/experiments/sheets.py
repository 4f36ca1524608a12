"""The sheets of `bench/experiment`: one JSON file for each table, in this folder.

    title            of the table
    recipe           file of bench/recipes whose flags all rows have
    data             name of the set: a folder below --data
    flags            of all rows, before those of the recipe: {"epochs": 5}; true: a flag without a value
    seeds            each row runs with the seeds from 1 to this number
    target_accuracy  of the columns seconds_to_target and epochs_to_target
    columns          of the table, see tables.py
    baseline         row that others are compared with, unless they have an `against`
    rows             name; engine: halfstep (the default) or torch; flags; like: a row whose flags this one has too, before
                     its own; recipe, data, against: for this row
    claims           of the article: {"row", "column", "article": what it says}
"""
import json
import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[2]
MISSED, USAGE, BAD_INPUT, IO, DEVICE, OUT_OF_MEMORY = 1, 2, 3, 4, 7, 8  # exit codes of engine/error.h
MEMBERS = {"title", "recipe", "data", "flags", "seeds", "target_accuracy", "columns", "baseline", "rows", "claims"}
ROW_MEMBERS = {"name", "engine", "flags", "like", "recipe", "data", "against"}


class Failure(Exception):
    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def read_json(path):
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise Failure(IO, f"{path}: {error.strerror}")
    except ValueError as error:
        raise Failure(BAD_INPUT, f"{path}: is not JSON: {error}")
    if not isinstance(value, dict): raise Failure(BAD_INPUT, f"{path}: is not a JSON object")
    return value


def load(folder, name):
    """The sheet, with every row's `settings` (all its flags, the recipe's included), `recipe`, `data` and `against`."""
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.json")))
        raise Failure(USAGE, f"{name}: no sheet of this name in {folder}, expected one of {known}")
    sheet = read_json(path)

    def check(fine, what):
        if not fine: raise Failure(BAD_INPUT, f"{path}: {what}")

    check(set(sheet) <= MEMBERS, f"unknown members {sorted(set(sheet) - MEMBERS)}, expected {sorted(MEMBERS)}")
    for member in ("title", "columns", "rows", "seeds"): check(sheet.get(member), f"{member} is missing")
    rows = {}
    for row in sheet["rows"]:
        name = row.get("name", "")
        where = f"row {name!r}: "
        check(re.fullmatch(r"[\w.-]+", name), where + "expected a name of letters, digits, -, _ and .")
        check(name not in rows, where + "is there twice")
        check(set(row) <= ROW_MEMBERS, where + f"unknown members {sorted(set(row) - ROW_MEMBERS)}")
        check(row.setdefault("engine", "halfstep") in ("halfstep", "torch"), where + "engine: expected halfstep or torch")
        check("like" not in row or row["like"] in rows, where + f"like: no row {row.get('like')!r} above it")
        base = rows[row["like"]] if "like" in row else {"own": sheet.get("flags", {}), "recipe": sheet.get("recipe"),
                                                        "data": sheet.get("data")}
        for member in ("recipe", "data"): row.setdefault(member, base[member])
        check(row["data"], where + "data is missing")
        row["own"] = {**base["own"], **row.get("flags", {})}  # beside the recipe
        row["settings"] = {**(read_json(TOP / row["recipe"]) if row["recipe"] else {}), **row["own"]}
        row.setdefault("against", sheet.get("baseline"))
        rows[name] = row
    for row in rows.values():
        check(row["against"] in rows, f"row {row['name']!r}: is compared with {row['against']!r}, which is no row")
    for claim in sheet.setdefault("claims", []):
        check(claim.get("row") in rows and claim.get("article"), f"a claim without a row or what the article says: {claim}")
    return {**sheet, "name": path.stem, "rows": list(rows.values())}


def record_path(folder, sheet, row, seed):
    return folder / sheet["name"] / f"{row['name']}-seed{seed}.json"

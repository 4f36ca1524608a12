#!/usr/bin/env python3
"""Writes the record of a run of bench/gpu_check: gpu_record.py WORK FILE LIMITS

WORK is the folder in which the steps left their results; what is not there (yet) is null or empty in the record.
LIMITS names the steps that count, each with its seconds: the record is complete once all of them have ended by
themselves. The fields are described in bench/results/gpu/README.md. Exit code 1 unless all of them passed.
"""
import contextlib
import ctypes
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

TOP = pathlib.Path(__file__).resolve().parent.parent
TRAIN_KEYS = ("seconds", "seconds_all", "samples_per_second", "test_accuracy", "final_loss", "peak_bytes")
TORCH_KEYS = ("variant", "precision", "mode", "channels_last", "optimizer", "seconds", "seconds_all",
              "samples_per_second", "warmup_seconds", "test_accuracy", "final_loss", "error")


def text(path):
    return path.read_text(errors="replace") if path.exists() else ""


def last_line(path):
    return ([line.strip() for line in text(path).splitlines() if line.strip()] or ["no output"])[-1]


def parsed(path):
    """A JSON file, or None where a run was ended before it wrote it."""
    try:
        return json.loads(text(path))
    except ValueError:
        return None


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return ""


def sources():
    """{file: SHA-256} of what nvcc compiles, as bench/results/gpu keeps track of."""
    files = [*TOP.glob("engine/*.cu*"), *TOP.glob("kernels/*/*.cu*")]
    return {str(file.relative_to(TOP)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def device(work):
    cells = [cell.strip() for cell in (text(work / "device").splitlines() or [""])[0].split(",")]
    if len(cells) != 4: return None
    return dict(zip(("name", "driver", "compute_capability", "memory"), cells))


def toolkit(library):
    nvcc = re.search(r"V([0-9.]+)", output("nvcc", "--version"))
    result = {"nvcc": nvcc and nvcc[1], "compiler": output("c++", "--version").split("\n")[0] or None, "cublaslt": None}
    linked = re.search(r"libcublasLt\S* => (\S+)", output("ldd", str(library)))
    if linked:
        with contextlib.suppress(OSError, AttributeError):
            get_version = ctypes.CDLL(linked[1]).cublasLtGetVersion
            get_version.restype = ctypes.c_size_t
            version = get_version()
            result["cublaslt"] = f"{version // 10000}.{version // 100 % 100}.{version % 100}"
    return result


def tests(work):
    result = {"passed": 0, "failed": [], "skipped": []}
    try:
        cases = list(xml.etree.ElementTree.parse(work / "cuda_tests.xml").iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return result  # ctest writes it at its end, if it gets there
    for case in cases:
        skip = case.find("skipped")
        # A test that could not be started is "notrun" too; of a real skip, ctest names the reason.
        if case.get("status") == "run": result["passed"] += 1
        else:
            skipped = skip is not None and skip.get("message", "").startswith("SKIP_")
            result["skipped" if skipped else "failed"].append(case.get("name"))
    return result


def figures(work):
    rows = []
    for log in sorted((work / "train").glob("*.log")):
        record = parsed(log.with_suffix(".json"))
        # The name is MODEL.BATCH.graph-GRAPH.PRECISION.
        model, batch, graph, precision = log.stem.split(".")
        row = {"model": model, "batch": int(batch), "graph": graph[len("graph-"):], "precision": precision}
        if record:
            result = record["rows"][0]
            row.update({key: result.get(key) for key in TRAIN_KEYS})
            row.update(epochs=record["config"]["epochs"], train=record["data"]["train"], data=record["data"]["name"],
                       kernels=record["kernels"], choices=record.get("choices"))
        else:
            row["error"] = last_line(log)
        rows.append(row)
    return sorted(rows, key=lambda row: (row["model"], row["batch"], row["graph"], row["precision"]))


def unmet(rows):
    """What should have happened in the figures and did not: {what: why}. It costs time, not correctness."""
    return {f"cuBLASLt computes {what}": choice for row in rows for what, choice in sorted((row.get("choices") or {}).items())
            if choice.startswith("not usable")}


def peers(work):
    environment, rows = None, []
    for file in sorted((work / "torch").glob("*.json")):
        model, batch, _ = file.stem.split(".")
        report = parsed(file)
        if not report:
            rows.append({"model": model, "batch": int(batch), "error": "ended before its first result"})
            continue
        environment = environment or report["environment"]
        for row in report["rows"]:
            kept = {key: row[key] for key in TORCH_KEYS if key in row}
            rows.append({"model": model, "batch": int(batch), "epochs": row["epochs"], "train": row["train"], **kept})
    return {"environment": environment, "rows": rows}


def sanitizers(work):
    """{tool: {program: what it found}}"""
    result = {}
    for tool in ("memcheck", "racecheck"):
        for log in sorted((work / tool).glob("*.log")):
            summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", text(log))
            result.setdefault(tool, {})[log.stem] = summary[1] if summary else f"no verdict: {last_line(log)}"
    return result


def steps(work):
    rows = [line.split("\t") for line in text(work / "steps").splitlines()]
    return [{"name": name, "status": status, "seconds": int(seconds), "limit": int(limit)}
            for name, status, seconds, limit in rows]


def main():
    work, file, counted = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3].split()[::2]
    done = steps(work)
    status = {step["name"]: step["status"] for step in done}
    passed = all(status.get(name) == "passed" for name in counted)
    rows = figures(work)
    expected = unmet(rows)
    record = {
        "schema": "halfstep-gpu-1",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": text(work / "commit").strip() or "unknown",
        "complete": all(status.get(name) in ("passed", "failed") for name in counted),
        "passed": passed,
        "device": device(work),
        "toolkit": toolkit(work.parent / "libhalfstep.so"),
        "sources": sources(),
        "steps": done,
        "tests": tests(work),
        "kernels": last_line(work / "kernels.log"),
        "sanitizers": sanitizers(work),
        "figures": rows,
        "unmet_expectations": expected,
        "torch": peers(work),
    }
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    temporary.replace(file)
    for what, why in expected.items(): print(f"expected, but not so: {what} ({why})")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()

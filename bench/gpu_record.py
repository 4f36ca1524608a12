"""What bench/gpu_check has found out so far: Results keeps a line of JSON for each item, on disk as soon as it has ended,
and writes the record of all of them; bench/results/gpu/README.md has the fields. The functions after it judge what an item
printed."""
import datetime
import hashlib
import html
import json
import os
import pathlib
import re
import statistics
import subprocess
import threading
import time
from typing import Callable, NamedTuple

TOP = pathlib.Path(__file__).resolve().parent.parent
NOT_OURS = "--test-case-exclude=*slow*,more work than threads*,sums of many terms*"  # too long under a sanitizer
CUT = 124  # what judges get as exit code where the limit ended the program
NO_DEVICE = "device not supported|failed to initialize the profiler|ERR_NVGPUCTRPERM"  # compute-sanitizer, ncu


class Item(NamedTuple):
    name: str  # STEP/WHAT
    command: list
    limit: int  # seconds
    judge: Callable  # (exit code, stdout, stderr) -> (status, what it found)
    variables: dict = {}


def output(*command): return subprocess.run(["env", *command], capture_output=True, text=True).stdout  # "" if there is no such


def write(path, text):
    path.with_name(path.name + ".part").write_text(text)
    path.with_name(path.name + ".part").replace(path)


def sources(top=TOP):
    """{file: SHA-256} of what nvcc compiles for the library."""
    files = [file for folder in ("engine", "kernels") for file in (top / folder).rglob("*.cu*")]
    return {str(file.relative_to(top)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def changed(before, now): return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


class Results:
    """Results of one build; those of another one in the same files are dropped. A status is passed, failed, skipped (with
    the reason), cut off (by its limit, which is kept) or begun, which is left where the call ended. Threads may share it."""

    def __init__(self, identity, of_sources, out, work, earlier, seconds):
        self.identity, self.out, self.ends, self.scale = identity, out, time.monotonic() + seconds, max(1, seconds / 270)
        self.items, self.planned, self.running, self.lock, self.sources = {}, [], [], threading.RLock(), of_sources
        files = [out / "results.jsonl", work / "results.jsonl"]  # the second one is for a call on this same machine
        for file in filter(None, [earlier, *files]): self.read(file)
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            write(file, "".join(json.dumps(item) + "\n" for item in self.items.values()))
        self.streams = [open(file, "a") for file in files]
        names = ("name", "driver_version", "compute_cap", "memory.total")
        cells = output("nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader").split("\n")[0].split(", ")
        self.device = dict(zip(names, cells)) if len(cells) == len(names) else None

    def read(self, file):
        for line in file.read_text(errors="replace").splitlines() if file.exists() else []:
            if not line.endswith(f'"of": "{self.identity}"}}'): continue  # another build's, or cut off while it was written
            item = json.loads(line)
            if item["status"] != "begun" or item["name"] not in self.items: self.items[item["name"]] = item

    def status(self, name): return self.items.get(name, {}).get("status", "not begun")
    def found(self, name): return self.items.get(name, {}).get("found", {})
    def is_known(self, name): return self.status(name) in ("passed", "failed")
    def failed(self): return [name for name in self.items if self.status(name) == "failed" and not name.startswith("bisect/")]
    def left(self): return self.ends - time.monotonic()
    def limit(self, item): return int(min(max(item.limit * self.scale, 2 * self.found(item.name).get("limit", 0)), self.left()))

    def add(self, name, status, seconds=0.0, found=None):
        with self.lock:
            if status == "begun": found = self.found(name)  # with the limit that cut it off before
            item = {"name": name, "status": status, "seconds": round(seconds, 2), "found": found or {}, "of": self.identity}
            self.items[name] = item
            for stream in self.streams: print(json.dumps(item), file=stream, flush=True)
            if status == "begun": return
            print(f"gpu_check: {name}: {status}, {seconds:.1f} s {item['found'].get('reason', '')}".rstrip(), flush=True)
            write(self.out / "gpu.json", json.dumps(self.record(), indent=1) + "\n")

    def run(self, item):
        """Unless its result is known or no time is left. What its limit cuts off gets twice the time in a later call."""
        limit, start = self.limit(item), time.monotonic()
        if self.is_known(item.name) or limit < 3: return
        self.add(item.name, "begun")
        process = self.start(limit, item.command, item.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace")
        out, err = process.communicate()
        with self.lock, open(self.out / "gpu_check.log", "a") as log:
            log.write(f"\n==== {item.name}: {item.command}, exit code {process.returncode}\n{out[-200000:]}\n{err[-200000:]}\n")
        if process.returncode and self.left() < 1: return
        is_cut = "timeout: sending signal" in err
        status, found = item.judge(CUT if is_cut else process.returncode, out, err)
        if is_cut and not found.get("failed"): status, found = "cut off", found | {"reason": f"took longer than {limit} s", "limit": limit}
        if process.returncode == 127 and "/" not in item.command[0]: status, found = "skipped", {"reason": f"{item.command[0]} is not on the PATH"}
        if status == "failed": found.setdefault("reason", ([""] + (out + err).split("\n"))[-2][:300])
        self.add(item.name, status, time.monotonic() - start, found)

    def start(self, limit, command, variables=None, **options):
        """Even if this process is killed, the limit ends the other and what that has started."""
        process = subprocess.Popen(["timeout", "-v", "-k", "2", str(int(limit)), *command], env=os.environ | (variables or {}), text=True, **options)
        self.running.append(process)
        return process

    def stop(self, *_):
        self.ends = 0
        for process in self.running: process.terminate()

    def record(self):
        items, names = list(self.items.values()), self.planned or list(self.items)
        choices = [(item["found"].get("choices") or {}) for item in items]
        tools = ("sanitizers/", "ncu/")  # what takes too long under one of these says nothing against a kernel
        cut = [name for name in names if self.status(name) == "begun" or self.status(name) == "cut off" and not name.startswith(tools)]
        missing = [name + " (cut off)" * (name in cut) for name in names if name in cut or self.status(name) == "not begun"]
        passed = not missing and all(name.startswith("torch/") for name in self.failed()) and any(name.startswith("smoke/") for name in names)
        return {"schema": "halfstep-gpu-2", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "commit": self.identity.split()[0], "device": self.device, "complete": not missing, "passed": bool(passed),
                "missing": missing, "failed": self.failed(), "cublaslt": next((each["cuBLASLt"] for each in choices if "cuBLASLt" in each), None),
                "unmet_expectations": {f"cuBLASLt computes {what}": why for each in choices for what, why in each.items()
                                       if why.startswith("not usable") and "/none" not in why},
                "sources": self.sources, "items": [{key: item[key] for key in item if key != "of"} for item in items]}

    def finish(self):
        write(self.out / "gpu.json", json.dumps(record := self.record(), indent=1) + "\n")
        for what in ("unmet_expectations", "missing", "failed"):
            if record[what]: print(f"gpu_check: {what}: {', '.join(record[what])}")
        print(f"gpu_check: {'all passed' if record['passed'] else 'NOT all passed'}; the record is {self.out}/gpu.json")
        return record["passed"]


# ---- judges ----

def parsed(code, out): return json.loads(out) if code == 0 and out.startswith("{") else None
def refused(text): return next((line.strip() for line in text.splitlines() if re.search(NO_DEVICE, line, re.I)), None)


def text(code, out, err):
    if code and (reason := refused(out + err)): return "skipped", {"reason": reason}
    return "failed" if code else "passed", {"text": (out + err)[:20000]}


def epoch_seconds(row):
    """Of the epochs after the first, in which steps are recorded, compiled and warmed up; None if there is none."""
    later = [epoch["seconds"] for run in row.get("runs") or [] for epoch in run["epochs"][1:]]
    return statistics.median(later) if later else None


def ceilings(code, out, err): return "failed" if code else "passed", parsed(code, out) or {}


def training(code, out, err="", judge=None):
    if not (record := parsed(code, out)): return "failed", {}
    kept = ("seconds", "seconds_all", "samples_per_second", "test_accuracy", "final_loss", "peak_bytes", "weights_sha256")
    found = {key: record["rows"][0][key] for key in kept} | {key: record.get(key) for key in ("headline", "kernels", "choices")}
    found["epoch_seconds"] = epoch_seconds(record["rows"][0])
    return ("passed" if judge is None or judge(found) else "failed"), found


def explained(code, out, err):
    if not (record := parsed(code, out)): return "failed", {}
    calls = [[call[key] for key in ("kernel", "variant", "type", "shapes", "milliseconds")] for call in record["calls"]]
    return "passed", {"phases": record["phases"], "calls": calls}


def tests(code, out, err):
    """Of doctest's XML, which ends where the program does: a case without an end is the one that ended it, unless the limit
    did. Without a device, which is exit code 77, tests fail: this is a check of one."""
    cases = re.findall(r'<TestCase name="([^"]*)"((?:(?!<TestCase ).)*)', out, re.S)
    ends = [(html.unescape(name), re.search('test_case_success="(true|false)"|skipped="true"', rest)) for name, rest in cases]
    failed = [name for name, end in ends if (end[1] == "false" if end else code != CUT)]
    found = {"passed": sum(bool(end) and end[1] == "true" for _, end in ends), "failed": failed}
    if code == 0 and not cases and "</doctest>" in out: return "skipped", found | {"reason": "no case for a device"}
    status = "passed" if code == 0 and found["passed"] and not failed else "failed"
    return status, found | ({"reason": "; ".join(failed)[:300]} if failed else {})


def sanitizer(tool, test, programs, failed=None):
    """Of our own kernels, since those of cuBLASLt take long, or of a case that failed. `control` is a mistake that must be
    found."""
    program = [f"{programs}/test_cuda_{test}_device", NOT_OURS]
    if test == "control": program = [f"{programs}/gpu_ceilings", "write" if tool == "memcheck" else "race"]
    if failed: program[1] = f"--test-case={failed[0].replace(',', '?')}"  # a comma ends a filter

    def judge(code, out, err):
        summary = ([None] + re.findall(r"SUMMARY: (\d+) ", out + err))[-1]
        if reason := refused(out + err): return "skipped", {"reason": reason}
        right = code == 9 and summary not in (None, "0") if test == "control" else code == 0 and summary == "0"
        return ("passed" if right else "failed"), {"reason": f"{summary or 'nothing'} reported"}

    command = ["compute-sanitizer", "--tool", tool, "--kernel-name", "kns=_ZN2hs", "--error-exitcode", "9", *program]
    return Item(f"{'sanitizers' if failed is None else 'bisect'}/{tool}.{test}", command, 60, judge)

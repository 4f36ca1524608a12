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
import subprocess
import threading
import time
from typing import Callable, NamedTuple

TOP = pathlib.Path(__file__).resolve().parent.parent
NOT_OURS = "--test-case-exclude=*slow*,more work than threads*,sums of many terms*"  # too long under a sanitizer


class Item(NamedTuple):
    name: str  # STEP/WHAT
    command: list
    limit: int  # seconds
    judge: Callable  # (exit code, stdout, stderr) -> (status, what it found)
    variables: dict = {}


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return ""


def write(path, text):
    path.with_name(path.name + ".part").write_text(text)
    path.with_name(path.name + ".part").replace(path)


def sources(top):
    """{file: SHA-256} of what nvcc compiles for the library."""
    files = [file for folder in ("engine", "kernels") for file in (top / folder).rglob("*.cu*")]
    return {str(file.relative_to(top)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


class Results:
    """Results of one build; those of another one in the same files are dropped. A status is passed, failed, skipped (with
    the reason) or begun, which is left of what was cut off. Threads may share it."""

    def __init__(self, identity, out, work, earlier, seconds):
        self.identity, self.out, self.ends, self.scale = identity, out, time.monotonic() + seconds, max(1, seconds / 270)
        self.items, self.planned, self.running, self.lock, self.sources = {}, [], [], threading.RLock(), sources(TOP)
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

    def add(self, name, status, seconds=0.0, found=None):
        with self.lock:
            item = {"name": name, "status": status, "seconds": round(seconds, 2), "found": found or {}, "of": self.identity}
            self.items[name] = item
            for stream in self.streams: print(json.dumps(item), file=stream, flush=True)
            if status == "begun": return
            print(f"gpu_check: {name}: {status}, {seconds:.1f} s {item['found'].get('reason', '')}".rstrip(), flush=True)
            write(self.out / "gpu.json", json.dumps(self.record(), indent=1) + "\n")

    def run(self, item):
        """Unless its result is known or no time is left. Its own limit makes it fail, the end of the call cuts it off."""
        limit, start = int(min(item.limit * self.scale, self.left())), time.monotonic()
        if self.is_known(item.name) or limit < 3: return
        self.add(item.name, "begun")
        process = self.start(limit, item.command, item.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace")
        out, err = process.communicate()
        with self.lock, open(self.out / "gpu_check.log", "a") as log:
            log.write(f"\n==== {item.name}: {item.command}, exit code {process.returncode}\n{out[-200000:]}\n{err[-200000:]}\n")
        if process.returncode and self.left() < 1: return
        status, found = item.judge(process.returncode, out, err)
        if process.returncode in (124, 137) and time.monotonic() - start >= limit: found["reason"] = f"took longer than {limit} s"
        if process.returncode == 127 and "/" not in item.command[0]: status, found = "skipped", {"reason": f"{item.command[0]} is not on the PATH"}
        if status == "failed": found.setdefault("reason", ([""] + (out + err).split("\n"))[-2][:300])
        self.add(item.name, status, time.monotonic() - start, found)

    def start(self, limit, command, variables=None, **options):
        """Even if this process is killed, the limit ends the other and what that has started."""
        process = subprocess.Popen(["timeout", "-k", "2", str(int(limit)), *command], env=os.environ | (variables or {}), text=True, **options)
        self.running.append(process)
        return process

    def stop(self, *_):
        self.ends = 0
        for process in self.running: process.terminate()

    def record(self):
        items, names = list(self.items.values()), self.planned or list(self.items)
        choices = [(item["found"].get("choices") or {}) for item in items]
        missing = [name + " (cut off)" * (self.status(name) == "begun") for name in names if self.status(name) in ("begun", "not begun")]
        needed = [name for name in names if name.startswith(("smoke/", "tests/"))]
        passed = needed and not missing and not self.failed() and all(self.status(name) == "passed" for name in needed)
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
def text(code, out, err): return "failed" if code else "passed", {"text": (out + err)[:20000]}
def ceilings(code, out, err): return "failed" if code else "passed", parsed(code, out) or {}


def training(code, out, err="", judge=None):
    if not (record := parsed(code, out)): return "failed", {}
    kept = ("seconds", "seconds_all", "samples_per_second", "test_accuracy", "final_loss", "peak_bytes", "weights_sha256")
    found = {key: record["rows"][0][key] for key in kept} | {key: record.get(key) for key in ("headline", "kernels", "choices")}
    return ("passed" if judge is None or judge(found) else "failed"), found


def explained(code, out, err):
    if not (record := parsed(code, out)): return "failed", {}
    calls = [[call[key] for key in ("kernel", "variant", "type", "shapes", "milliseconds")] for call in record["calls"]]
    return "passed", {"phases": record["phases"], "calls": calls}


def tests(code, out, err):
    """Of doctest's XML, which ends where the program does: a case without an end is the one that ended it."""
    cases = re.findall(r'<TestCase name="([^"]*)"((?:(?!<TestCase ).)*)', out, re.S)
    failed = [html.unescape(name) for name, rest in cases if not re.search('test_case_success="true"|skipped="true"', rest)]
    passed = sum('test_case_success="true"' in rest for _, rest in cases)
    status = "skipped" if code == 77 else "passed" if code == 0 and passed and not failed else "failed"
    return status, {"passed": passed, "failed": failed} | ({"reason": "; ".join(failed)[:300]} if failed else {})


def sanitizer(tool, test, programs, case="", step="sanitizers"):
    """Of our own kernels, since those of cuBLASLt take long. `control` is a mistake that must be found."""
    program = [f"{programs}/gpu_ceilings", "write" if tool == "memcheck" else "race"]
    if test != "control": program = [f"{programs}/test_cuda_{test}_device", f"--test-case={case}" if case else NOT_OURS]

    def judge(code, out, err):
        summary = ([None] + re.findall(r"SUMMARY: (\d+) ", out + err))[-1]
        right = code == 9 and summary not in (None, "0") if test == "control" else code == 0 and summary == "0"
        return ("passed" if right else "failed"), {"reason": f"{summary or 'nothing'} reported"}

    command = ["compute-sanitizer", "--tool", tool, "--kernel-name", "kns=_ZN2hs", "--error-exitcode", "9", *program]
    return Item(f"{step}/{tool}.{test}", command, 60, judge)

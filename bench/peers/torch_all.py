#!/usr/bin/env python3
"""Trains one after another in PyTorch, in one process, because it takes long to start.

    torch_all.py '[[NAME, LIMIT, FLAG...]...]'    LIMIT: seconds, after which it is cut off; FLAG: of torch_models.py

Prints a line of JSON when one begins, [NAME, "begun", 0, {}], and one when it has ended, with its result: [NAME, "passed",
SECONDS, {"environment": ..., "row": ..., "epoch_seconds": ...}], or "failed" or "cut off" and the reason.
"""
import json
import pathlib
import signal
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import gpu_record


def tell(*words): print(json.dumps(words), flush=True)
class TooLong(BaseException): pass  # which nothing in PyTorch takes for an error of its own
def end(*_): raise TooLong


signal.signal(signal.SIGALRM, end)
for name, limit, *flags in json.loads(sys.argv[1]):
    tell(name, "begun", 0, {})
    start = time.monotonic()
    signal.alarm(limit)
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        sys.argv = ["torch_models", *flags, "--json", file.name]
        try:
            __import__("torch_models").main()
            report = json.load(open(file.name))
            row = report["rows"][0]
            result = "passed", {"environment": report["environment"], "row": row, "epoch_seconds": gpu_record.epoch_seconds(row)}
        except TooLong:
            result = "cut off", {"reason": f"took longer than {limit} s", "limit": limit}
        except (Exception, SystemExit) as error:
            result = "failed", {"reason": f"{type(error).__name__}: {error}"[:300]}
            if str(error) == "7": result = "skipped", {"reason": "python3 has no PyTorch"}
    signal.alarm(0)
    tell(name, result[0], round(time.monotonic() - start, 2), result[1])

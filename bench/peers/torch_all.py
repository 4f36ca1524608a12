#!/usr/bin/env python3
"""Trains one after another in PyTorch, in one process, because it takes long to start.

    torch_all.py '[[NAME, FLAG...]...]'    FLAG: of torch_models.py

Prints a line of JSON when one begins, [NAME, "begun", 0, {}], and one when it has ended, with its result: [NAME, "passed",
SECONDS, {"environment": ..., "row": ...}], or "failed" and the reason.
"""
import json
import sys
import tempfile
import time


def tell(*words): print(json.dumps(words), flush=True)


for name, *flags in json.loads(sys.argv[1]):
    tell(name, "begun", 0, {})
    start = time.monotonic()
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        sys.argv = ["torch_models", *flags, "--json", file.name]
        try:
            __import__("torch_models").main()
            report = json.load(open(file.name))
            result = "passed", {"environment": report["environment"], "row": report["rows"][0]}
        except (Exception, SystemExit) as error:
            result = "failed", {"reason": f"{type(error).__name__}: {error}"[:300]}
    tell(name, result[0], round(time.monotonic() - start, 2), result[1])

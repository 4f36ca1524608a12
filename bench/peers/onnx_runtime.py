#!/usr/bin/env python3
"""How fast ONNX Runtime answers with a model that halfstep trained, beside halfstep itself, in turns.

    onnx_runtime.py digits.safetensors --data DIR    DIR: folder with the files of MNIST

Both have the same images, batches and threads; reading and the first batches are not timed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import peer

try:
    import numpy
    import onnxruntime
except ImportError as failure:
    peer.fail_import("onnxruntime", failure, "python3 -m pip install onnxruntime")
BATCH = 250  # of `evaluate`


def call(args, command, *flags):
    done = subprocess.run([args.halfstep, command, "--model", args.model, *flags], capture_output=True, text=True)
    if done.returncode: peer.fail(done.returncode, done.stderr.strip())
    return done.stdout


def rate(run, batches):
    """The median of samples per second, as `evaluate` has it, and the classes."""
    rates, classes = [], []
    for batch in batches:
        start = time.perf_counter()
        logits = run(batch)
        rates.append(len(batch) / (time.perf_counter() - start))
        classes.append(logits.argmax(1))
    return statistics.median(rates), numpy.concatenate(classes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="FILE", help="that `halfstep-bench train --save-model` wrote")
    parser.add_argument("--data", type=pathlib.Path, required=True, metavar="DIR", help="folder with the files of MNIST")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--threads", type=int, default=peer.cores())
    parser.add_argument("--halfstep", default="halfstep-bench", metavar="PROGRAM")
    parser.add_argument("--json", metavar="FILE", help="write the results there; - is standard output")
    args = peer.parse(parser, counts=("repeat", "threads"))
    count, pixels = peer.read_idx(args.data, "t10k-images", 0x803, [28, 28])
    labels = peer.read_idx(args.data, "t10k-labels", 0x801, [])[1]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    with tempfile.TemporaryDirectory() as folder:
        call(args, "export", "--onnx", f"{folder}/model.onnx")
        session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, ["CPUExecutionProvider"])
    with open(args.model, "rb") as file:
        facts = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
    mean, deviation = float(facts["mean"]), float(facts["deviation"])
    images = (numpy.frombuffer(pixels, numpy.uint8).reshape(-1, 28, 28, 1) / 255 - mean) / deviation
    batches = [images[i:i + BATCH].astype(numpy.float32) for i in range(0, count, BATCH)]
    where = peer.environment(argparse.Namespace(threads=args.threads, device="cpu"), onnxruntime=onnxruntime.__version__)
    ours, theirs = [], []
    for _ in range(args.repeat):
        record = json.loads(call(args, "evaluate", "--data", str(args.data), "--threads", str(args.threads), "--json",
                                 "-"))
        ours.append(record["samples_per_second"])
        speed, classes = rate(lambda batch: session.run(["logits"], {"images": batch})[0], batches)
        theirs.append(speed)
    right = int((classes == numpy.frombuffer(labels, numpy.uint8)).sum())
    rows = [{"name": name, "samples_per_second": statistics.median(all), "samples_per_second_all": all,
             "test_accuracy": accuracy, "threads": args.threads, "test": count}
            for name, all, accuracy in (("halfstep", ours, record["accuracy"]),
                                        ("onnxruntime", theirs, right / count))]
    for row in rows: print(f"{row['name']}: {row['samples_per_second']:.0f} samples/s, accuracy {row['test_accuracy']:.4f}")
    print(f"halfstep is {rows[0]['samples_per_second'] / rows[1]['samples_per_second']:.2f} times as fast")
    peer.write_json(args, {"schema": "halfstep-peer-1", "environment": {**where, "halfstep": record["environment"]["commit"]},
                           "rows": rows})


main()

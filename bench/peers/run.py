#!/usr/bin/env python3
"""Trains in halfstep and in other engines, in turns (A B C A B C): what disturbs the machine for a while disturbs all.

    run.py PROGRAM [FLAG]...       PROGRAM: halfstep-bench; `./bench/run bench peers FLAG...` builds it and calls this

PROGRAM reads the flags, writes the samples that all rows train on, and waits (`PROGRAM bench peers --driven`, with a socket
as stdin). From the runs that it is given it makes the record, with statistics, outputs, messages and exit codes. Each run
is a process in a group of its own. A signal to stop is passed on to PROGRAM, and when that ends, so does the run.
"""
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

NHWC, LOADER, COMPILE = ["--channels-last"], ["--loading", "dataloader"], ["--mode", "compile"]
GRAPH = ["--mode", "graph"]
ROWS = {  # by device: name, engine, precision, flags, idea
    "cpu": [
        ("halfstep f32", "halfstep", "f32", [], "`train` of this program"),
        ("halfstep bf16", "halfstep", "bf16", [], "the same, products and convolutions in bf16"),
        ("torch f32", "torch", "f32", [], "PyTorch as it comes, all data in memory"),
        ("torch f32 NHWC", "torch", "f32", NHWC, "the same, convolutions in NHWC"),
        ("torch f32 compiled", "torch", "f32", NHWC + COMPILE, "and forward, loss and backward by torch.compile"),
        ("torch f32 DataLoader", "torch", "f32", NHWC + LOADER,
         "not compiled, batches by a DataLoader with two processes"),
        ("torch bf16 NHWC", "torch", "bf16", NHWC, "autocast to bf16"),
        ("jax f32", "jax", "f32", [], "the whole step compiled by XLA, all data in memory"),
        ("jax bf16", "jax", "bf16", [], "the same, products and convolutions in bf16"),
    ],
    "cuda": [
        ("halfstep f32", "halfstep", "f32", [], "`train` of this program, the step as a CUDA graph"),
        ("halfstep tf32", "halfstep", "tf32", [], "f32 on tensor cores"),
        ("halfstep bf16", "halfstep", "bf16", [], "products and convolutions in bf16"),
        ("torch f32", "torch", "f32", [], "PyTorch as it comes, all data on the device"),
        ("torch tf32 NHWC", "torch", "tf32", NHWC, "f32 on tensor cores, convolutions in NHWC"),
        ("torch bf16 NHWC", "torch", "bf16", NHWC, "autocast to bf16"),
        ("torch bf16 compiled", "torch", "bf16", NHWC + COMPILE, "and forward, loss and backward by torch.compile"),
        ("torch f32 graph", "torch", "f32", GRAPH, "the whole step as a CUDA graph"),
        ("torch bf16 graph", "torch", "bf16", NHWC + GRAPH, "the same in bf16, NHWC"),
        ("torch bf16 DataLoader", "torch", "bf16", NHWC + LOADER, "batches by a DataLoader with two processes"),
        ("jax f32", "jax", "f32", [], "the whole step compiled by XLA, all data on the device"),
        ("jax tf32", "jax", "tf32", [], "f32 on tensor cores"),
        ("jax bf16", "jax", "bf16", [], "products and convolutions in bf16"),
    ],
}
RANKS = [  # with --ranks above 1, on the CPU
    ("halfstep f32", "halfstep", "f32", [], "`train` of this program, one process with all threads"),
    ("halfstep f32 ranks", "halfstep_mpi", "f32", [], "mpirun of it: a share of each batch on every rank"),
    ("torch DDP f32", "torch_ddp", "f32", [], "DistributedDataParallel over gloo, bucket_cap_mb 25, its default"),
    ("torch DDP f32 NHWC", "torch_ddp", "f32", NHWC, "the same, convolutions in NHWC"),
    ("torch DDP f32 small", "torch_ddp", "f32", ["--bucket-cap-mb", "0.25"], "with bucket_cap_mb 0.25"),
]
PEER_SCHEMA = "halfstep-peer-1"
SCRIPTS = {"jax": "jax_mnist.py", "torch": "torch_mnist.py", "torch_ddp": "torch_ddp.py"}
NAMES = ["halfstep-bench", "jax_mnist", "torch_mnist", "torch_ddp", "torch_models"]  # prefixes of messages
MISSED, USAGE, BAD_INPUT, IO, DEVICE, OUT_OF_MEMORY = 1, 2, 3, 4, 7, 8  # exit codes of engine/error.h
MOST_OUTPUT = 64 << 20
SECONDS_TO_END = 1
STEADY = time.monotonic
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what asks a program to end


class Failure(Exception):
    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


# --- processes ---

class Program:
    """`PROGRAM bench peers --driven` with our flags. A signal that asks us to stop asks it instead."""

    def __init__(self, path, flags):
        self.path, self.process, early = path, None, []

        def pass_on(number, _):
            self.process.send_signal(number) if self.process else early.append(number)

        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, waiting for a child fails
        for number in STOPS:
            if signal.getsignal(number) != signal.SIG_IGN: signal.signal(number, pass_on)
        self.socket, theirs = socket.socketpair()
        with theirs:  # outputs like /dev/fd/63 are open files, inherited from the caller
            self.process = subprocess.Popen([path, "bench", "peers", *flags, "--driven"], stdin=theirs, close_fds=False,
                                            start_new_session=True)
        for number in early: self.process.send_signal(number)

    def plan(self):
        line = self.socket.makefile().readline()
        return json.loads(line) if line else self.end({})

    def check(self):
        if self.process.poll() is not None: self.end({})

    def end(self, reply):
        """Gives it the results, and ends with its exit code."""
        try:
            self.socket.sendall(json.dumps(reply).encode())
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has exited and printed the reason
        code = self.process.wait()
        sys.exit(code if code >= 0 else 128 - code)


class Finished:
    """A program that was run to its end, or for `seconds`. What is left of its process group then is killed."""

    def __init__(self, words, seconds, check):
        self.late = False
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            # A signal that ends this program waits until it knows which process it has to end, too.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
            try:
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                           preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask))
            except OSError as error:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                raise Failure(IO, f"{words[0]}: cannot be started: {error.strerror}")
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                start = STEADY()
                while not has_ended(process) and not self.late:
                    check()
                    time.sleep(0.02)
                    self.late = STEADY() - start > seconds
                    if os.fstat(out.fileno()).st_size > MOST_OUTPUT:
                        raise Failure(IO, f"more than {MOST_OUTPUT >> 20} MiB on its stdout")
            finally:
                end_group(process)
            self.code = process.returncode
            out.seek(0)
            self.out = out.read()
            err.seek(max(0, err.seek(0, os.SEEK_END) - (16 << 10)))
            lines = err.read().decode(errors="replace").split("\n")
        # mpirun ends what it has to say with a line of dashes.
        words = next((line.strip() for line in reversed(lines) if any(map(str.isalnum, line))), "")
        for name in NAMES: words = words.removeprefix(name + ": ")
        self.last_words = words

    def ending(self):
        ended = f"exit code {self.code}" if self.code >= 0 else f"ended by signal {-self.code}"
        return ended + (f": {self.last_words}" if self.last_words else "")


def has_ended(process):
    """It stays a zombie, so that its number, which is that of its group, is nobody else's."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(process):
    if not has_ended(process):
        os.killpg(process.pid, signal.SIGTERM)
        start = STEADY()
        while not has_ended(process) and STEADY() - start < SECONDS_TO_END: time.sleep(0.01)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except PermissionError:
        pass  # some systems report this for a group of zombies
    process.wait()


# --- engines ---

def rows_of(plan):
    return RANKS if plan["ranks"] > 1 else ROWS[plan["device"]]


def find_engines(program, plan):
    """{engine: {"start": words of its command, "version"}, or {"missing": why}}; the first Python that has it counts."""
    folder = pathlib.Path(plan["peers"] or pathlib.Path(__file__).resolve().parent)
    if not any((folder / script).is_file() for script in SCRIPTS.values()):
        raise Failure(IO, f"--peers {folder}: has none of the peers' scripts, {', '.join(SCRIPTS.values())}")
    engines = {"halfstep": {"start": [program.path, "train", "--quiet"], "version": f"halfstep {plan['version']}"}}
    wanted = {engine for _, engine, *_ in rows_of(plan)}
    if "halfstep_mpi" in wanted:
        mpirun = shutil.which("mpirun")
        # Without the binding that it does by default, to one core for each of up to two ranks.
        engines["halfstep_mpi"] = {"missing": "there is no mpirun; on Debian: apt install openmpi-bin"} if not mpirun else {
            "start": [mpirun, "-n", str(plan["ranks"]), "--bind-to", "none", *engines["halfstep"]["start"]],
            "version": f"{engines['halfstep']['version']} on {plan['ranks']} ranks"}
    for name, script in SCRIPTS.items():
        if name not in wanted: continue
        engines[name] = {"missing": f"--peers has no {script}"}
        if not (folder / script).is_file(): continue
        for python in plan["pythons"] or ["python3"]:
            engines[name] = ask(python, folder / script, plan, program.check)
            if "version" in engines[name]: break
    return engines


def ask(python, script, plan, check):
    try:
        answer = Finished([python, str(script), "--version"], plan["timeout"], check)
    except Failure as failure:
        if plan["pythons"]: raise Failure(failure.code, f"--python {failure}")
        return {"missing": f"{failure}; install Python 3, or give --python PATH"}
    if answer.late: return {"missing": f"{python} did not say its version within {plan['timeout']:g} s (--timeout)"}
    if answer.code == DEVICE: return {"missing": answer.last_words}
    if answer.code != 0: return {"missing": f"{script.name} --version: {answer.ending()}"}
    return {"start": [python, str(script)], "version": answer.out.decode(errors="replace").split("\n")[0]}


# --- runs ---

def command(engine, row, plan, seed):
    words, training, ranks = list(engine["start"]), dict(plan["training"]), plan["ranks"]
    if row["engine"] in ("halfstep_mpi", "torch_ddp"): training["--threads"] = max(1, training["--threads"] // ranks)
    if row["engine"] == "torch_ddp": training["--ranks"] = ranks
    if row["engine"] == "halfstep_mpi":  # a batch of all ranks is one micro-batch on each
        training.update({"--batch": training["--batch"] // ranks, "--accumulate": ranks})
    if row["engine"].startswith("halfstep"): training["--data"] = "mnist"  # in HALFSTEP_DATA
    for flag, value in {**training, "--seed": seed, "--precision": row["precision"]}.items():
        words += [flag, str(value)]
    return [*words, *row["flags"], "--json", "-"]


def measure(words, plan, program):
    """The row and the environment in the record that one run writes, checked."""
    run = Finished(words, plan["timeout"], program.check)
    if run.late: raise Failure(MISSED, f"did not end within {plan['timeout']:g} s (--timeout)")
    if run.code != 0: raise Failure(run.code if USAGE <= run.code <= OUT_OF_MEMORY else IO, run.ending())
    with tempfile.NamedTemporaryFile() as file:
        file.write(run.out)
        file.flush()
        report = Finished([program.path, "report", file.name, "--json", "/dev/null"], plan["timeout"], program.check)
        if report.code != 0:
            raise Failure(report.code if report.code > 0 else IO, report.last_words.replace(file.name, "its record"))
    record = json.loads(run.out)
    if record["schema"] != PEER_SCHEMA and record["command"] != "train":
        raise Failure(BAD_INPUT, f"its record is of {record['command']}, expected train")
    if len(record["rows"]) != 1: raise Failure(BAD_INPUT, f"its record has {len(record['rows'])} rows, expected 1")
    row, = record["rows"]
    times = [seconds for seconds in row["seconds_all"] if seconds is not None]
    if len(times) != 1 or not times[0] > 0:
        raise Failure(BAD_INPUT, f"its record has {len(times)} times above 0, expected 1")
    if row["test_accuracy"] is None or row["final_loss"] is None:
        raise Failure(BAD_INPUT, "its record has no accuracy or no loss")
    # Not every record has the requested settings, but each has the amount of work.
    trained, expected = (row["samples_per_second"] or 0) * times[0], plan["samples"]
    if not abs(trained - expected) <= 1e-6 * expected:
        raise Failure(BAD_INPUT, f"trained on {trained:.0f} samples by its record, expected {expected}")
    return row, record["environment"]


def measure_all(rows, engines, plan, program):
    """Adds to each row its runs, or the error after which it does not run any more; returns "engines" of the record."""
    environments, start = {}, STEADY()
    for turn in range(plan["repeat"]):
        for row in rows:
            if "error" in row: continue
            engine = engines[row["engine"]]
            try:
                result, environment = measure(command(engine, row, plan, plan["seed"] + turn), plan, program)
                environments.setdefault(row["engine"], {"version": engine["version"], "environment": environment})
                row["runs"].append(result)
                outcome = f"{result['seconds']:.2f} s"
            except Failure as failure:
                row.update(error=str(failure), code=failure.code)
                # "Not available here" is a valid result if it is the first run's and not halfstep's.
                row["absent"] = failure.code == DEVICE and turn == 0 and row["engine"] != "halfstep"
                outcome = f"no result: {failure}"
            if not plan["quiet"]:
                so_far = f"pass {turn + 1} of {plan['repeat']}, {STEADY() - start:.0f} s"
                print(f"{plan['label']}{so_far}: {row['name']}  {outcome}", file=sys.stderr, flush=True)
    return environments


def drive(program, plan):
    """What PROGRAM gets: text to print, or the runs."""
    if plan["list"]:
        lines = [("row", "engine", "", "", "what it is"), *rows_of(plan)]
        return {"text": "".join(f"{name:<21}  {engine:<8}  {idea}\n" for name, engine, *_, idea in lines)}
    engines = find_engines(program, plan)
    absent = [{"name": name, "reason": engine["missing"]} for name, engine in engines.items() if "missing" in engine]
    rows = [{"name": name, "engine": engine, "precision": precision, "flags": flags, "runs": []}
            for name, engine, precision, flags, _ in rows_of(plan) if "missing" not in engines[engine]]
    if plan["dry_run"]:
        text = "DIR: a temporary folder with the samples as IDX files, called mnist\n"
        for row in rows:
            text += f"{row['name']}: {shlex.join(command(engines[row['engine']], row, plan, plan['seed']))}\n"
        text += f"{len(rows)} rows, {plan['repeat']} runs of each, in turns\n"
        return {"text": text, "absent": absent}
    os.environ["HALFSTEP_DATA"] = os.path.dirname(plan["training"]["--data"])
    environments = measure_all(rows, engines, plan, program)
    absent += [{"name": row["name"], "reason": row["error"]} for row in rows if row.get("absent")]
    return {"engines": environments, "rows": [row for row in rows if not row.get("absent")], "absent": absent}


def main():
    path, *flags = sys.argv[1:]
    if "--help" in flags or "-h" in flags: os.execv(path, [path, "bench", "peers", "--help"])
    program = Program(os.path.abspath(path), flags)
    plan = program.plan()
    try:
        reply = drive(program, plan)
    except Failure as failure:
        reply = {"error": str(failure), "code": failure.code}
    program.end(reply)


if __name__ == "__main__":
    main()

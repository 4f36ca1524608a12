"""The cell magic %%kernel: a kernel in a cell, compiled as a plug-in, judged, and taken by what is trained from then on."""
import collections
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from . import Error, force_variant, plugin_stamp, variants

_runs = collections.Counter()  # of each variant: a plug-in stays loaded, so that the next one wants another name


def program():
    """halfstep-bench: $HALFSTEP_BENCH, that of the PATH, or one that is built in a folder above; None without any."""
    built = [top / "build/release/bench/halfstep-bench" for top in (pathlib.Path.cwd(), *pathlib.Path.cwd().parents)]
    return os.environ.get("HALFSTEP_BENCH") or shutil.which("halfstep-bench") or next((str(p) for p in built if p.exists()), None)


def load_plugin(path):
    """Loads what `halfstep-bench kernel build` of the same build has made; returns its variants."""
    if plugin_stamp.encode() + b"\0" not in pathlib.Path(path).read_bytes():
        raise Error(f"{path}: was not built for this library; expected what `halfstep-bench kernel build` of the same build makes")
    before = set(variants())
    for library in pathlib.Path(__file__).parent.glob("libhalfstep*"): ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(pathlib.Path(path).absolute()))
    return sorted(set(variants()) - before)


def kernel(line, cell):
    """%%kernel SLOT [FLAG OF judge...]: judges the variant of this slot that the cell registers, then forces it."""
    slot, *flags = line.split() or [""]
    registered = re.search(rf'REGISTER_KERNEL\(\s*{re.escape(slot)}\s*,\s*\w+\s*,\s*"(\w+)"', cell) if slot else None
    if not registered:
        return print(f"%%kernel {slot}: the cell has no REGISTER_KERNEL({slot or 'SLOT'}, cpu, \"NAME\", ...)")
    if not (bench := program()):
        return print("%%kernel: there is no halfstep-bench here, which compiles and judges; build it with ./bench/run info")
    name = registered[1] + (f"_{_runs[registered[1]] + 1}" if _runs[registered[1]] else "")
    cell = cell[:registered.start(1)] + name + cell[registered.end(1):]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, f"{name}.cpp")
        source.write_text(cell)
        for command in (["kernel", "build", source], ["judge", source, *(flags or ["--quick"])]):
            done = subprocess.run([bench, *command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode: return print(done.stdout.replace(f"{folder}/", "").strip())
        print(done.stdout.replace(f"{folder}/", "").strip())
        load_plugin(source.with_suffix(".so"))
    _runs[registered[1]] += 1
    force_variant(f"{slot}={name}")
    print(f"{slot}={name} is taken from now on; force_variant('{slot}=simple') goes back")

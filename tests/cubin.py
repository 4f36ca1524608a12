#!/usr/bin/env python3
"""Reads what nvcc made of the CUDA kernels, and compares it with tests/kernels.lock. Needs no GPU.

    tests/cubin.py list [FILE]         every kernel of a library or object file: registers, shared memory, ...
    tests/cubin.py check [FILE]        fails if a kernel breaks a rule below or differs from the lock
    tests/cubin.py update [FILE]       writes the lock anew; lines of architectures that FILE was not built for stay
    tests/cubin.py calibrate [FILE]    compares this reader with cuobjdump and nvdisasm, where the toolkit has them
    tests/cubin.py selftest            compiles tests/broken_kernels.cu and expects each rule to find its kernel

FILE is build/release/libhalfstep.so if none is given. cuobjdump and nvdisasm are also wheels: nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm.

Rules: no local memory (a spill, or an array that did not fit in registers), no float atomic and no compare-and-swap (a
float atomic is often a loop around one), tensor-core instructions in every kernel that has "mma" in its name, no
division of 64-bit integers in a loop (a call of about 100 instructions), and whole packs in the kernels of `packs_of`: a
load and a store for each operand as wide as its pack, 16 bytes for the widest type.
The lock holds registers, static shared memory (on sm_90 with the 1024 bytes that CUDA adds to it), launch bounds (0: none)
and instructions.
They depend on the compiler, so those of another nvcc are not compared; the rules hold for all.

How: the machine code lies as ELF files ("cubins") in the section .nv_fatbin. An instruction has 16 bytes; its lowest 9
bits say which it is, the next 3 where its operands are. The numbers below are not documented by NVIDIA; `calibrate`
holds them against NVIDIA's own disassembler. Exit codes: 0 fine, 1 a difference, 2 usage, 3 a damaged file, 4 a file
or tool is missing.
"""
import argparse
import collections
import math
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

BROKEN = pathlib.Path(__file__).resolve().parent / "broken_kernels.cu"
LOCK = pathlib.Path(__file__).resolve().parent / "kernels.lock"
LIBRARY = LOCK.parent.parent / "build" / "release" / "libhalfstep.so"

LOCAL_LOAD, LOCAL_STORE = 0x183, 0x187             # LDL, STL
TENSOR = {0x03c, 0x1f0}                            # HMMA, HGMMA (sm_90a)
FLOAT_ATOMICS = {0x1a2, 0x1a3, 0x1a6}              # ATOM, ATOMG, RED of sm_90, for floats only
TYPED_ATOMICS = {0x18a, 0x18e, 0x1a8}              # ATOM, RED, ATOMG: integers too, the type is in bits 73 to 75
FLOAT_TYPES = {3, 4, 6}                            # of those: f32, f16x2, f64
COMPARE_AND_SWAP = {0x18b, 0x18d, 0x1a9}           # ATOM, ATOMS, ATOMG, also as CAST.SPIN
GLOBAL_LOAD, GLOBAL_STORE = 0x181, 0x186           # LDG, STG; the width is in bits 73 to 75
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 8, 6: 16}  # bytes
CALL, BRANCH, NOP = 0x144, 0x147, 0x118
DIVISION = r"(div|rem)_[su]64"                     # in the names of the compiler's own functions
TYPES = {"Half": 2, "BFloat16": 2, "float": 4, "unsigned char": 1}
KNOWN_ARCHITECTURES = range(75, 130)              # where these numbers hold
REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE = 0x2f, 0x11, 0x12  # attributes in .nv.info
MAX_THREADS = 0x05                                 # in that of a kernel: its __launch_bounds__, in three dimensions

# name: readable and stable; symbol: as the compiler calls it. local: instructions, stack: bytes.
# divisions: in loops. wide_loads, wide_stores: how many of 1, 2, 4, 8 and 16 bytes, global memory. threads: launch bounds.
Kernel = collections.namedtuple("Kernel", "name arch symbol registers shared stack loads stores tensor atomics "
                                          "instructions divisions wide_loads wide_stores threads")


def fail(code, sentence):
    print(f"cubin.py: {sentence}", file=sys.stderr)
    sys.exit(code)


def elf_sections(data):
    """[(name, type, bytes, size)] of a 64-bit little-endian ELF file."""
    offset, = struct.unpack_from("<Q", data, 0x28)
    step, count, names_at = struct.unpack_from("<HHH", data, 0x3a)
    rows = [struct.unpack_from("<IIQQQQ", data, offset + i * step) for i in range(count)]
    names = rows[names_at][4]
    result = []
    for name, kind, _, _, start, size in rows:
        name = data[names + name:data.index(b"\0", names + name)].decode()
        result.append((name, kind, b"" if kind == 8 else data[start:start + size], size))  # 8: only a size
    return result


def cubins(data):
    """The machine code of every architecture of every .cu file in a library or object file, or that of a cubin."""
    if data[:4] != b"\x7fELF" or data[4:6] != b"\2\1": raise ValueError("not a 64-bit little-endian ELF file")
    machine, = struct.unpack_from("<H", data, 18)
    if machine == 190:  # EM_CUDA
        yield data
        return
    for name, _, content, _ in elf_sections(data):
        if name != ".nv_fatbin": continue
        at = 0
        while at + 16 <= len(content):
            magic, _, header, size = struct.unpack_from("<IHHQ", content, at)
            if magic != 0xba55ed50:  # padding between the files' parts
                at += 8
                continue
            at, end = at + header, at + header + size
            while at < end:
                kind, _, header, size = struct.unpack_from("<HHIQ", content, at)
                flags, = struct.unpack_from("<Q", content, at + 40)
                if kind == 2:  # 1 is PTX
                    if flags & 0xa000: raise ValueError("its machine code is compressed; build without --compress-mode")
                    yield content[at + header:at + header + size]
                at += header + size


def attributes(info):
    """(attribute, value) of those entries of .nv.info that hold a symbol's number and a figure."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form != 4: size = 0  # the value is in the header
        elif size == 8: yield attribute, struct.unpack_from("<II", info, at + 4)
        at += 4 + size


def launch_bounds(info):
    """The most threads of a block, by .nv.info of a kernel; 0: it does not say."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if (form, attribute, size) == (4, MAX_THREADS, 12): return math.prod(struct.unpack_from("<III", info, at + 4))
        at += 4 + (size if form == 4 else 0)
    return 0


def target(at, low, high, arch):
    """Where a call or branch goes: relative to the next instruction, in units of 4 bytes."""
    field = low >> 34 | (high & 0x3ffff) << 30
    if field >> 47: field -= 1 << 48
    if arch >= 90: field = field << 8 | low >> 16 & 0xff
    return at + 16 + 4 * field


def count_opcodes(code, arch, functions):
    """(local loads, local stores, tensor-core instructions, float atomics, instructions, 64-bit divisions in loops,
    global loads by width, global stores by width). functions: {offset: name} of those that the compiler added"""
    plain, widths, calls, loops, atomics = collections.Counter(), collections.Counter(), [], [], 0
    for i, (low, high) in enumerate(struct.iter_unpack("<QQ", code)):
        opcode = low & 0x1ff
        plain[opcode] += 1
        if opcode in (GLOBAL_LOAD, GLOBAL_STORE): widths[opcode, WIDTHS.get(high >> 9 & 7)] += 1
        elif opcode in TYPED_ATOMICS: atomics += high >> 9 & 7 in FLOAT_TYPES
        elif opcode == CALL and re.search(DIVISION, functions.get(target(16 * i, low, high, arch), "")):
            calls.append(16 * i)
        elif opcode == BRANCH and target(16 * i, low, high, arch) < 16 * i:
            loops.append((target(16 * i, low, high, arch), 16 * i))
    atomics += sum(plain[opcode] for opcode in FLOAT_ATOMICS | COMPARE_AND_SWAP)
    divisions = sum(any(begin <= call <= end for begin, end in loops) for call in calls)
    by_width = lambda opcode: tuple(widths[opcode, width] for width in (1, 2, 4, 8, 16))
    return (plain[LOCAL_LOAD], plain[LOCAL_STORE], sum(plain[opcode] for opcode in TENSOR), atomics,
            sum(plain.values()) - plain[NOP], divisions, by_width(GLOBAL_LOAD), by_width(GLOBAL_STORE))


def read_cubin(data):
    """(version of nvcc or None, the kernels with their symbols as names)"""
    sections = elf_sections(data)
    by_name = {name: (content, size) for name, _, content, size in sections}
    arch, = struct.unpack_from("<I", data, 48)
    arch = arch >> 8 & 0xff if data[7] == 0x41 else arch & 0xff  # e_flags of CUDA 13 or 12
    found = re.search(rb"release [0-9.]+, V([0-9.]+)", by_name.get(".note.nv.tkinfo", (b"", 0))[0])

    strings, symbols = by_name[".strtab"][0], by_name[".symtab"][0]
    names, functions = [], collections.defaultdict(dict)  # by section: {offset: name}
    for name, section, offset in struct.iter_unpack("<I2xHQ8x", symbols):
        names.append(strings[name:strings.index(b"\0", name)].decode())
        if section < len(sections): functions[sections[section][0]][offset] = names[-1]
    figures = collections.defaultdict(lambda: collections.defaultdict(int))
    for attribute, (symbol, value) in attributes(by_name[".nv.info"][0]):
        if symbol < len(names): figures[names[symbol]][attribute] = max(figures[names[symbol]][attribute], value)

    kernels = []
    for name, (content, _) in by_name.items():
        if not name.startswith(".text."): continue
        symbol = name[len(".text."):]
        row = figures[symbol]
        stack = max(row[FRAME_SIZE], row[MIN_STACK_SIZE])  # of the kernel itself, with what it calls
        shared = by_name.get(f".nv.shared.{symbol}", (b"", 0))[1]
        kernels.append(Kernel(symbol, arch, symbol, row[REGCOUNT], shared, stack,
                              *count_opcodes(content, arch, functions[name]),
                              launch_bounds(by_name.get(f".nv.info.{symbol}", (b"", 0))[0])))
    return found and found[1].decode(), kernels


def readable(symbols):
    """{symbol: name}: demangled, without namespaces, result and parameters."""
    if not shutil.which("c++filt"): fail(4, "c++filt is needed to read the kernels' names; install binutils")
    plain = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout
    result = {}
    for symbol, name in zip(symbols, plain.splitlines()):
        name = re.sub(r"\(anonymous namespace\)::|\bhs::|\bcuda::|^void ", "", name)
        depth, end = 0, len(name)
        for i, letter in enumerate(name):  # the parameters start at the first bracket outside <>
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and depth == 0 and i > 0:
                end = i
                break
        result[symbol] = name[:end]
    return result


def read(path):
    """(version of nvcc or None, all kernels, sorted)"""
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        fail(4, f"{path}: {error.strerror}")
    versions, kernels = set(), []
    try:
        for cubin in cubins(data):
            version, found = read_cubin(cubin)
            versions.add(version)
            kernels += found
    except (ValueError, KeyError, struct.error, IndexError) as error:
        fail(3, f"{path}: {error or 'damaged'}")
    if not kernels: fail(3, f"{path}: no CUDA machine code in it; build with -D HALFSTEP_CUDA=ON")
    names = readable(sorted({kernel.symbol for kernel in kernels}))
    # One kernel may have been compiled into several .cu files; it counts once. Copies that differ are two kernels, a fault.
    merged, taken = set(), collections.Counter()
    for kernel in sorted({k._replace(name=names[k.symbol], symbol="") for k in kernels}):
        taken[kernel.name, kernel.arch] += 1
        number = taken[kernel.name, kernel.arch]
        merged.add(kernel if number == 1 else kernel._replace(name=f"{kernel.name} ({number})"))
    return versions.pop() if len(versions) == 1 else None, sorted(merged)


def packs_of(name):
    """{(load or store, bytes): how many} that a kernel of packs must have; kernels/cuda/cuda.cuh says what a pack is."""
    found = re.fullmatch(r"(\w+)<(.*)>", name)
    if not found: return {}
    kernel, arguments = found[1], found[2].split(", ")
    sizes = [TYPES[argument] for argument in arguments if argument in TYPES]
    if not sizes: return {}
    of = lambda loads, stores: collections.Counter([("load", s) for s in loads] + [("store", s) for s in stores])
    if kernel == "elementwise_kernel":  # F, the result, the operands
        elements = 16 // max(sizes)
        return of([elements * size for size in sizes[1:]], [elements * sizes[0]])
    if kernel == "update_kernel": return of([16] * (1 + len(sizes)), [16] * len(sizes))  # the gradient, the state
    if kernel == "bias_add_kernel": return of([16], [16])
    if kernel == "im2col_kernel": return of([16], [16])
    if kernel == "pooled_mma_forward_kernel": return of([], [16, 16])  # cp.async loads; y and winner
    if kernel == "pooled_mma_input_gradient_kernel": return of([16], [16])
    if kernel == "pooled_mma_weight_gradient_kernel": return of([16], [])
    if kernel == "pooled_mma_gradients_kernel": return of([16, 16], [16])
    if kernel in ("max_pool2d_forward_kernel", "max_pool2d_backward_kernel", "col2im_kernel") and arguments[-1] in ("4", "8"):
        return of([16], [16])
    return {}


def broken_rules(kernel):
    if kernel.arch not in KNOWN_ARCHITECTURES: return
    if kernel.stack or kernel.loads or kernel.stores:
        yield (f"local memory: {kernel.stack} bytes, {kernel.loads} loads, {kernel.stores} stores; expected none. "
               "Use fewer registers, or index the array with constants")
    if kernel.atomics:
        yield (f"{kernel.atomics} float atomics or compare-and-swaps; expected none, so that results do not depend on "
               "timing. Reduce in a fixed tree")
    if kernel.name.endswith(")"):
        yield "two kernels of this name; give one another name, since profilers show no more"
    if "mma" in re.sub("<.*", "", kernel.name) and not kernel.tensor:
        yield "no tensor-core instruction, and its name promises them"
    if kernel.divisions:
        yield (f"{kernel.divisions} divisions of 64-bit integers in a loop; expected none. Use indices of 32 bits and "
               "Divisor (kernels/cuda/index.h)")
    for (way, size), least in sorted(packs_of(kernel.name).items()):
        counts = kernel.wide_loads if way == "load" else kernel.wide_stores
        count = counts[size.bit_length() - 1]
        if count < least:
            yield f"{count} {way}s of {size} bytes, expected {least} or more. Pass packs by value, not by reference"


def figures_of(kernel):
    return kernel.registers, kernel.shared, kernel.threads, kernel.instructions


def lock_text(version, rows):
    lines = [f"nvcc {version}: registers, static shared memory, launch bounds and instructions of each kernel; "
             "written by tests/cubin.py update"]
    lines += [f"sm_{arch} {registers:4} {shared:6} {threads:5} {instructions:6}  {name}"
              for (name, arch), (registers, shared, threads, instructions) in sorted(rows.items())]
    return "\n".join(lines) + "\n"


def read_lock():
    """(version, {(name, arch): figures_of(kernel)})"""
    if not LOCK.exists(): fail(4, f"{LOCK} is missing; write it with: tests/cubin.py update")
    first, *lines = LOCK.read_text().splitlines() or [""]
    version = re.match(r"nvcc ([0-9.]+):", first)
    rows = [re.fullmatch(r"sm_(\d+) +(\d+) +(\d+) +(\d+) +(\d+)  (.+)", line) for line in lines]
    if not version or None in rows: fail(3, f"{LOCK}: damaged; delete it and write it anew with: tests/cubin.py update")
    return version[1], {(row[6], int(row[1])): tuple(int(row[i]) for i in range(2, 6)) for row in rows}


def check(path):
    version, kernels = read(path)
    faults = [f"{k.name}, sm_{k.arch}: {fault}" for k in kernels for fault in broken_rules(k)]
    locked_version, locked = read_lock()
    built = {(k.name, k.arch): figures_of(k) for k in kernels}
    archs = {arch for _, arch in built}
    differences = []
    if version != locked_version:
        print(f"not compared: the lock is of nvcc {locked_version}, this build of {version or 'an unknown one'}")
    else:
        for arch in sorted({arch for _, arch in locked} - archs): print(f"sm_{arch}: not in this build, not compared")
        for key in sorted(built.keys() | locked.keys()):
            if key[1] not in archs or built.get(key) == locked.get(key): continue
            show = lambda row: ("%d registers, %d bytes of shared memory, bounds of %d threads, %d instructions" % row if row
                                else "no such kernel")
            differences.append(f"{key[0]}, sm_{key[1]}: {show(built.get(key))}; the lock has {show(locked.get(key))}")
    for line in faults + differences: print(line)
    if differences:
        is_default = pathlib.Path(path).resolve() == LIBRARY.resolve()
        print(f"if that is meant: tests/cubin.py update{'' if is_default else f' {path}'}")
    print(f"{len(built)} kernels on {', '.join(f'sm_{a}' for a in sorted(archs))}: {len(faults)} broken rules, "
          f"{len(differences)} differences from the lock")
    return 1 if faults or differences else 0


def update(path):
    version, kernels = read(path)
    if not version: fail(3, f"{path}: it does not say which nvcc compiled it, or several did; nvcc 13 and later do")
    rows = {(k.name, k.arch): figures_of(k) for k in kernels}
    locked_version, locked = read_lock() if LOCK.exists() else (version, {})
    others = {key: row for key, row in locked.items() if key[1] not in {k.arch for k in kernels}}
    if others and version != locked_version:
        fail(2, f"{path}: nvcc {version}, and the lock's sm_{min(arch for _, arch in others)} is of nvcc {locked_version}; "
                "build for all of the lock's architectures (HALFSTEP_CUDA_ARCHITECTURES)")
    LOCK.write_text(lock_text(version, rows | others))
    print(f"{LOCK.name}: {len(rows)} lines of nvcc {version}" + (f", {len(others)} kept as they were" if others else ""))
    return 0


def show(path):
    version, kernels = read(path)
    print(f"nvcc {version or 'unknown'}\n  arch  regs shared stack   LDL   STL  HMMA float-atomics instructions "
          "looped-div64  LDG.128 STG.128  kernel")
    for k in kernels:
        print(f" sm_{k.arch} {k.registers:5} {k.shared:6} {k.stack:5} {k.loads:5} {k.stores:5} {k.tensor:5} "
              f"{k.atomics:13} {k.instructions:12} {k.divisions:12} {k.wide_loads[-1]:8} {k.wide_stores[-1]:7}  {k.name}")
    return 0


def calibrate(path):
    import cubin_calibrate  # beside this file

    return cubin_calibrate.compare(path)


def selftest(_):
    """Each kernel of the file breaks the rule that its name begins with, or none: fine_*."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(nvcc).exists(): fail(4, "selftest needs nvcc on the PATH")
    expected = {"local": "local memory", "atomic": "float atomics", "mma": "no tensor-core", "division": "64-bit integers",
                "elementwise": "loads of 16 bytes"}
    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/broken.o"
        codes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in (80, 90)]
        subprocess.run([nvcc, "-std=c++20", *codes, "-c", BROKEN, "-o", made], check=True)
        kernels = read(made)[1]
    wrong, kinds = 0, set()
    for kernel in kernels:
        kind = re.match("[a-z]+", kernel.name)[0]
        kinds.add(kind)
        faults = list(broken_rules(kernel))
        fine = len(faults) == 1 and expected[kind] in faults[0] if kind in expected else not faults
        wrong += not fine
        print(f"{'as expected' if fine else 'WRONG'}: {kernel.name}, sm_{kernel.arch}: {'; '.join(faults) or 'no fault'}")
    return 1 if wrong or not expected.keys() <= kinds else 0


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    commands = {"list": show, "check": check, "update": update, "calibrate": calibrate, "selftest": selftest}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=commands)
    parser.add_argument("file", metavar="FILE", nargs="?", default=LIBRARY, help="libhalfstep.so, an object file or a cubin")
    arguments = parser.parse_args()
    sys.exit(commands[arguments.command](arguments.file))


if __name__ == "__main__":
    main()

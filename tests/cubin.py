#!/usr/bin/env python3
"""Reads what nvcc made of the CUDA kernels, and compares it with tests/kernels.lock. Needs no GPU.

    tests/cubin.py list [FILE]         every kernel of a library or object file: registers, shared memory, ...
    tests/cubin.py check [FILE]        fails if a kernel breaks a rule below or differs from the lock
    tests/cubin.py update [FILE]       writes the lock anew; lines of architectures that FILE was not built for stay
    tests/cubin.py calibrate [FILE]    compares this reader with cuobjdump and nvdisasm, where the toolkit has them

FILE is build/release/libhalfstep.so if none is given.

Rules: no local memory (a spill, or an array that did not fit in registers), no float atomic and no compare-and-swap (a
float atomic is often a loop around one), and tensor-core instructions in every kernel that has "mma" in its name.
The lock holds registers and static shared memory, on sm_90 with the 1024 bytes that CUDA adds to it. Both depend on
the compiler, so those of another nvcc are not compared; the rules hold for all.

How: the machine code lies as ELF files ("cubins") in the section .nv_fatbin. An instruction has 16 bytes; its lowest 9
bits say which it is, the next 3 where its operands are. The numbers below are not documented by NVIDIA; `calibrate`
holds them against NVIDIA's own disassembler. Exit codes: 0 fine, 1 a difference, 2 usage, 3 a damaged file, 4 a file
or tool is missing.
"""
import argparse
import collections
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

LOCK = pathlib.Path(__file__).resolve().parent / "kernels.lock"
LIBRARY = LOCK.parent.parent / "build" / "release" / "libhalfstep.so"

LOCAL_LOAD, LOCAL_STORE = 0x183, 0x187             # LDL, STL
TENSOR = {0x03c, 0x1f0}                            # HMMA, HGMMA (sm_90a)
FLOAT_ATOMICS = {0x1a2, 0x1a3, 0x1a6}              # ATOM, ATOMG, RED of sm_90, for floats only
TYPED_ATOMICS = {0x18a, 0x18e, 0x1a8}              # ATOM, RED, ATOMG: integers too, the type is in bits 73 to 75
FLOAT_TYPES = {3, 4, 6}                            # of those: f32, f16x2, f64
COMPARE_AND_SWAP = {0x18b, 0x18d, 0x1a9}           # ATOM, ATOMS, ATOMG, also as CAST.SPIN
KNOWN_ARCHITECTURES = range(75, 130)              # where these numbers hold
REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE = 0x2f, 0x11, 0x12  # attributes in .nv.info

# name: readable and stable; symbol: as the compiler calls it. local: instructions, stack: bytes.
Kernel = collections.namedtuple("Kernel", "name arch symbol registers shared stack loads stores tensor atomics")


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


def count_opcodes(code):
    """(local loads, local stores, tensor-core instructions, float atomics)"""
    plain = collections.Counter(low & 0x1ff for (low,) in struct.iter_unpack("<H14x", code))
    atomics = sum(plain[opcode] for opcode in FLOAT_ATOMICS | COMPARE_AND_SWAP)
    if any(plain[opcode] for opcode in TYPED_ATOMICS):
        atomics += sum(low & 0x1ff in TYPED_ATOMICS and high >> 9 & 7 in FLOAT_TYPES
                       for low, high in struct.iter_unpack("<QQ", code))
    return plain[LOCAL_LOAD], plain[LOCAL_STORE], sum(plain[opcode] for opcode in TENSOR), atomics


def read_cubin(data):
    """(version of nvcc or None, the kernels with their symbols as names)"""
    sections = elf_sections(data)
    by_name = {name: (content, size) for name, _, content, size in sections}
    arch, = struct.unpack_from("<I", data, 48)
    arch = arch >> 8 & 0xff if data[7] == 0x41 else arch & 0xff  # e_flags of CUDA 13 or 12
    found = re.search(rb"release [0-9.]+, V([0-9.]+)", by_name.get(".note.nv.tkinfo", (b"", 0))[0])

    strings, symbols = by_name[".strtab"][0], by_name[".symtab"][0]
    names = []
    for (name,) in struct.iter_unpack("<I20x", symbols):
        names.append(strings[name:strings.index(b"\0", name)].decode())
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
        kernels.append(Kernel(symbol, arch, symbol, row[REGCOUNT], shared, stack, *count_opcodes(content)))
    return found and found[1].decode(), kernels


def readable(symbols):
    """{symbol: name}: demangled, without namespaces, result and parameters; in front the .cu file, if it is known."""
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
        # nvcc puts the file's name into that of the unnamed namespace, with its length before it.
        file = re.search(r"_GLOBAL__N__[0-9a-f]+_(\d+)_(\w+)", symbol)
        file = re.sub(r"_(cu)$", r".\1", file[2][:int(file[1])]) + " " if file else ""
        result[symbol] = file + name[:end]
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
    # One kernel may have been compiled into several .cu files; it counts once, unless the copies differ.
    merged, taken = set(), collections.Counter()
    for kernel in sorted({k._replace(name=names[k.symbol], symbol="") for k in kernels}):
        taken[kernel.name, kernel.arch] += 1
        number = taken[kernel.name, kernel.arch]
        merged.add(kernel if number == 1 else kernel._replace(name=f"{kernel.name} ({number})"))
    return versions.pop() if len(versions) == 1 else None, sorted(merged)


def broken_rules(kernel):
    if kernel.arch not in KNOWN_ARCHITECTURES: return
    if kernel.stack or kernel.loads or kernel.stores:
        yield (f"local memory: {kernel.stack} bytes, {kernel.loads} loads, {kernel.stores} stores; expected none. "
               "Use fewer registers, or index the array with constants")
    if kernel.atomics:
        yield (f"{kernel.atomics} float atomics or compare-and-swaps; expected none, so that results do not depend on "
               "timing. Reduce in a fixed tree")
    if "mma" in re.sub("<.*", "", kernel.name).split(" ")[-1] and not kernel.tensor:
        yield "no tensor-core instruction, and its name promises them"


def lock_text(version, rows):
    lines = [f"nvcc {version}: registers and static shared memory of each kernel; written by tests/cubin.py update"]
    lines += [f"sm_{arch} {registers:4} {shared:6}  {name}" for (name, arch), (registers, shared) in sorted(rows.items())]
    return "\n".join(lines) + "\n"


def read_lock():
    """(version, {(name, arch): (registers, shared)})"""
    if not LOCK.exists(): fail(4, f"{LOCK} is missing; write it with: tests/cubin.py update")
    first, *lines = LOCK.read_text().splitlines() or [""]
    version = re.match(r"nvcc ([0-9.]+):", first)
    rows = [re.fullmatch(r"sm_(\d+) +(\d+) +(\d+)  (.+)", line) for line in lines]
    if not version or None in rows: fail(3, f"{LOCK}: damaged; delete it and write it anew with: tests/cubin.py update")
    return version[1], {(row[4], int(row[1])): (int(row[2]), int(row[3])) for row in rows}


def check(path):
    version, kernels = read(path)
    faults = [f"{k.name}, sm_{k.arch}: {fault}" for k in kernels for fault in broken_rules(k)]
    locked_version, locked = read_lock()
    built = {(k.name, k.arch): (k.registers, k.shared) for k in kernels}
    archs = {arch for _, arch in built}
    differences = []
    if version != locked_version:
        print(f"not compared: the lock is of nvcc {locked_version}, this build of {version or 'an unknown one'}")
    else:
        for arch in sorted({arch for _, arch in locked} - archs): print(f"sm_{arch}: not in this build, not compared")
        for key in sorted(built.keys() | locked.keys()):
            if key[1] not in archs or built.get(key) == locked.get(key): continue
            show = lambda row: "%d registers, %d bytes of shared memory" % row if row else "no such kernel"
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
    rows = {(k.name, k.arch): (k.registers, k.shared) for k in kernels}
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
    print(f"nvcc {version or 'unknown'}\n  arch  regs shared stack   LDL   STL  HMMA float-atomics  kernel")
    for k in kernels:
        print(f" sm_{k.arch} {k.registers:5} {k.shared:6} {k.stack:5} {k.loads:5} {k.stores:5} {k.tensor:5} "
              f"{k.atomics:13}  {k.name}")
    return 0


def disassembled(text):
    """{symbol: (loads, stores, tensor, atomics)} from what nvdisasm wrote"""
    result, name = {}, None
    for line in text.splitlines():
        if start := re.match(r"\.text\.(\S+):", line):
            name = start[1]
            result[name] = [0, 0, 0, 0]
        operation = re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", line)
        if not name or not operation: continue
        words = operation[1].split(".")
        result[name][0] += words[0] == "LDL"
        result[name][1] += words[0] == "STL"
        result[name][2] += words[0] in ("HMMA", "HGMMA")
        result[name][3] += bool(re.search(r"\b(ATOM|RED)G?S?\.\S*(\bB?F(16|32|64)|\bCAST?\b)", line))
    return {name: tuple(counts) for name, counts in result.items()}


def calibrate(path):
    tools = [shutil.which(tool) for tool in ("cuobjdump", "nvdisasm")]
    if None in tools: fail(4, "calibrate needs cuobjdump and nvdisasm on the PATH")
    usage = subprocess.run([tools[0], "-res-usage", path], capture_output=True, text=True, check=True).stdout
    theirs = {}
    for arch, part in re.findall(r"arch = sm_(\d+)(.*?)(?=\nFatbin|\Z)", usage, re.S):
        for symbol, registers, stack, shared in re.findall(
                r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", part):
            theirs[symbol, int(arch)] = int(registers), int(shared), int(stack)
    compared, differences = 0, []
    for cubin in cubins(pathlib.Path(path).read_bytes()):
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            text = subprocess.run([tools[1], file.name], capture_output=True, text=True, check=True).stdout
        code = disassembled(text)
        for kernel in read_cubin(cubin)[1]:
            ours = (kernel.registers, kernel.shared, kernel.stack) + kernel[6:]
            expected = theirs.get((kernel.symbol, kernel.arch), ()) + code.get(kernel.symbol, ())
            compared += 1
            if ours != expected: differences.append(f"{kernel.symbol}, sm_{kernel.arch}: {ours}, expected {expected}")
    for line in differences: print(line)
    print(f"{compared} kernels compared with cuobjdump and nvdisasm: {len(differences)} differ")
    return 1 if differences or not compared else 0


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
    commands = {"list": show, "check": check, "update": update, "calibrate": calibrate}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=commands)
    parser.add_argument("file", metavar="FILE", nargs="?", default=LIBRARY, help="libhalfstep.so, an object file or a cubin")
    arguments = parser.parse_args()
    sys.exit(commands[arguments.command](arguments.file))


if __name__ == "__main__":
    main()

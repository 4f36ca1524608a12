#!/usr/bin/env python3
"""Checks what nvcc made of the CUDA kernels and compares its totals with tests/kernels.lock. Needs no GPU.

    tests/cubin.py check LIBRARY | c++filt    fails if a kernel breaks a rule, or if a total is not the lock's
    tests/cubin.py update LIBRARY             writes the lock, of a build for all of its architectures
    tests/cubin.py estimate LIBRARY NODES [RECORD]   what a step's kernels may take on an H100; nothing is measured.
                                              RECORD: on the device of this gpu.json of bench/gpu_check, which has ceilings

Rules: no local memory (a spill, or an array that does not fit in registers); registers enough for a block of as many
threads as it may have (__launch_bounds__, else 1024); no float atomic and no compare-and-swap, so that results do not
depend on timing; no division of 64-bit integers in a loop, which is a call of 100 instructions (kernels/cuda/index.h);
in a kernel that may begin early (Previous of engine/cuda.cuh) no access to global memory and no way out before its
wait, and no non-coherent load, which may find a line from before it.
A total that falls without a reason is a fault as well: fewer accesses of 16 bytes are packs that came apart.

How: the library holds an ELF file for each architecture and .cu file. Its sections .nv.info are what `cuobjdump
-res-usage` prints. An instruction has 16 bytes, whose lowest 9 bits say which it is; NVIDIA documents none of these
numbers, and nvdisasm agreed with them on sm_80 and sm_90. Totals of another nvcc than the lock's are not compared.

The estimate: NODES has the loads, stores and products that the emulator has counted in some blocks of each kernel
(tests/cuda/census.cpp). The machine code says which loops have how many of them, so how often each loop turns follows,
and from that how many instructions are issued and how many loads wait for each other. The largest of four times rules:
instructions at four a clock for each multiprocessor, round trips of a warp one after the other, bytes, and FLOPs.
"""
import collections
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import typing

LOCK = pathlib.Path(__file__).resolve().parent / "kernels.lock"
FRAME_SIZE, STACK_SIZE, REGISTERS, LAUNCH_BOUNDS = 0x11, 0x12, 0x2f, 0x05  # in .nv.info
FLOAT_ATOMICS = {0x1a2, 0x1a3, 0x1a6, 0x18b, 0x18d, 0x1a9}  # ATOM, ATOMG and RED of sm_90; compare-and-swap of all
TYPED_ATOMICS, FLOAT_TYPES = {0x18a, 0x18e, 0x1a8}, {3, 4, 6}  # ATOM, RED, ATOMG; f32, f16x2, f64
GLOBAL_ACCESS, SIXTEEN_BYTES, TENSOR = {0x181, 0x186}, 6, {0x03c, 0x1f0}  # LDG, STG; HMMA, HGMMA
NON_COHERENT = 4  # of an LDG: bits 77 to 80
WAIT, OF_MEMORY = 0x02e, {0x180, 0x181, 0x185, 0x186, 0x18a, 0x18e, 0x1a8, 0x1ae}  # ACQBULK; LD to LDGSTS
CALL, BRANCH, EXIT, LOAD, LDGSTS, LDGDEPBAR, LDSM, HMMA = 0x144, 0x147, 0x14d, 0x181, 0x1ae, 0x1af, 0x03b, 0x03c
# Places in Counts::instructions of tests/cuda_emulator. LDG, STG, LDS, LDSM and STS of 1 byte; 2 to 16 bytes follow.
OF_ONE_BYTE, ASYNC, PRODUCT = {LOAD: 0, 0x186: 5, 0x184: 10, LDSM: 10, 0x188: 15}, 20, 21
FLOPS, LIBRARY_FLOPS = 480e6, 800e6  # of mma.sync and of cuBLASLt in a microsecond, on an H100
LAUNCH, NODE = 1.3, 2  # microseconds from one node's end to the next one's work, and the least that a node takes
FAR, NEAR = 0.6, 0.3  # a round trip to memory and to the second-level cache


class Device(typing.NamedTuple):
    name: str = "an H100"
    processors: int = 132
    clocks: float = 1760  # in a microsecond
    bytes: float = 3e6  # in a microsecond
    cache: float = 50e6  # bytes of the second level

    def flops(self, of_an_h100): return of_an_h100 * self.processors * self.clocks / (132 * 1760)


def device_of(record):
    found = {item["name"]: item["found"] for item in record["items"]}.get("ceilings/ceilings")
    if not found: sys.exit("the record has no ceilings; bench/gpu_check measures them")
    return Device(record["device"]["name"], int(found["multiprocessors"]), found["clock_mhz"],
                  found["copy_1_gib_tb_per_s"] * 1e6, found["l2_mib"] * 2**20)


def attributes(info):
    """(attribute, words) of a section .nv.info"""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form != 4: size = 0  # the value is in the header
        yield attribute, struct.unpack_from(f"<{size // 4}I", info, at + 4)
        at += 4 + size


def decoded(code, arch):
    """(offset, opcode, kind, where a jump would go) of each instruction"""
    for at, (low, high) in zip(range(0, len(code), 16), struct.iter_unpack("<QQ", code)):
        distance = low >> 34 | (high & 0x3ffff) << 30  # of a jump, from the next instruction, in units of 4 bytes
        if distance >> 47: distance -= 1 << 48
        target = at + 16 + 4 * (distance if arch < 90 else distance << 8 | low >> 16 & 0xff)
        into_nothing = low & 0xff01ff == 0xff0184  # an LDS without a register, which nvcc puts before LDGSTS
        yield at, 0 if into_nothing else low & 0x1ff, high >> 9 & 7, target


def instructions(code, arch, functions):
    """How many of some kinds a kernel has. functions: {offset: name} of those that the compiler added."""
    count, calls, loops, waits = collections.Counter(), [], [], False
    for at, opcode, kind, target in decoded(code, arch):
        count["wide"] += opcode in GLOBAL_ACCESS and kind == SIXTEEN_BYTES
        count["tensor"] += opcode in TENSOR
        count["atomics"] += opcode in FLOAT_ATOMICS or opcode in TYPED_ATOMICS and kind in FLOAT_TYPES
        waits |= opcode == WAIT
        count["early"] += not waits and (opcode in OF_MEMORY or opcode == EXIT)
        if opcode == CALL and re.search("(div|rem)_[su]64", functions.get(target, "")): calls.append(at)
        if opcode == BRANCH and target < at: loops.append((target, at))
    count["stale"] = sum(low & 0x1ff == LOAD and high >> 13 & 15 == NON_COHERENT
                         for low, high in struct.iter_unpack("<QQ", code))
    count["divisions"] = sum(any(begin <= call <= end for begin, end in loops) for call in calls)
    return count


def kernels(library):
    """(architecture, name, Counter of what it takes and does) of each."""
    for found in re.finditer(rb"\x7fELF\x02\x01.{12}\xbe\x00", library, re.S):  # of the machine CUDA
        elf = library[found.start():]
        start, flags, step, count, names = struct.unpack_from("<QI6xHHH", elf, 0x28)
        arch = flags >> 8 & 0xff if elf[7] == 0x41 else flags & 0xff  # of CUDA 13 or 12
        rows = [struct.unpack_from("<II16xQQ", elf, start + i * step) for i in range(count)]
        text = lambda at: elf[at:elf.index(b"\0", at)].decode()
        title = [text(rows[names][2] + row[0]) for row in rows]
        content = {name: elf[offset:offset + size] for name, (_, _, offset, size) in zip(title, rows)}
        symbols, functions = [], collections.defaultdict(dict)  # by section: {offset: name}
        for name, section, offset in struct.iter_unpack("<I2xHQ8x", content[".symtab"]):
            symbols.append(text(rows[title.index(".strtab")][2] + name))
            if section < count: functions[title[section]][offset] = symbols[-1]
        figures = collections.defaultdict(collections.Counter)
        for attribute, words in attributes(content[".nv.info"]):
            if len(words) == 2 and words[0] < len(symbols): figures[symbols[words[0]]][attribute] = words[1]
        for name in title:
            if not name.startswith(".text."): continue
            kernel = name.removeprefix(".text.")
            row = instructions(content[name], arch, functions[name])
            row.update(kernels=1, registers=figures[kernel][REGISTERS], threads=1024,
                       stack=max(figures[kernel][FRAME_SIZE], figures[kernel][STACK_SIZE]))
            if arch < 90 or "Previous" not in kernel: row["early"] = row["stale"] = 0
            for attribute, words in attributes(content.get(f".nv.info.{kernel}", b"")):
                if attribute == LAUNCH_BOUNDS and len(words) == 3: row["threads"] = math.prod(words)
            yield arch, kernel, row, content[name]


def faults(row):
    if row["stack"]: yield f"{row['stack']} bytes of local memory. Use fewer registers, or index arrays with constants"
    # Registers are given out to four warps at a time, in units of 8 a thread; a multiprocessor has 65536.
    if math.ceil(row["threads"] / 128) * 128 * math.ceil(row["registers"] / 8) * 8 > 65536:
        yield f"a block of {row['threads']} threads of {row['registers']} registers is too large. Add __launch_bounds__"
    if row["atomics"]: yield f"{row['atomics']} float atomics or compare-and-swaps. Reduce in a fixed tree"
    if row["early"]: yield f"{row['early']} accesses or exits before it waits. Let previous.wait() be the first statement"
    if row["stale"]: yield f"{row['stale']} non-coherent loads. Use no __restrict__ and no __ldg with Previous"
    if row["divisions"]: yield f"{row['divisions']} divisions of 64-bit integers in a loop. Use 32 bits and Divisor"


def regions(code):
    """(instructions, how many of each kind, waits for memory, is a loop) of each loop, less those inside, and of the
    rest"""
    all = list(decoded(code, 90))
    loops = sorted({(target, at) for at, opcode, _, target in all if opcode == BRANCH and target < at},
                   key=lambda loop: loop[1] - loop[0])
    end = max((at for at, opcode, _, _ in all if opcode == EXIT), default=len(code))  # padding follows
    length, kinds, waiting = collections.Counter(), collections.defaultdict(collections.Counter), set()
    for at, opcode, kind, _ in all:
        loop = next((loop for loop in loops if loop[0] <= at <= loop[1]), None)
        length[loop] += at <= end
        if opcode in (LOAD, LDGDEPBAR): waiting.add(loop)
        if opcode == LDSM: kind = SIXTEEN_BYTES
        if opcode in OF_ONE_BYTE: kinds[loop][OF_ONE_BYTE[opcode] + (kind // 2 if kind < 4 else kind - 2)] += 1
        if opcode in (LDGSTS, HMMA): kinds[loop][ASYNC if opcode == LDGSTS else PRODUCT] += 1
    return [(length[loop], kinds[loop], loop in waiting, loop is not None) for loop in length]


def turns(parts, counted):
    """How often a warp runs each region, if it does what was counted: the likeliest numbers (Richardson and Lucy)"""
    # What is in no loop runs once. Of loops that differ in nothing else, the one that was unrolled most does the work.
    found = [kinds.total() ** 3 if is_loop else 1 for _, kinds, _, is_loop in parts]
    for _ in range(300):
        sums = collections.Counter()
        for n, (_, kinds, _, _) in zip(found, parts):
            for kind in kinds: sums[kind] += n * kinds[kind]
        for i, (_, kinds, _, is_loop) in enumerate(parts):
            if not is_loop or not kinds: continue
            found[i] *= sum(kinds[k] * counted[k] / sums[k] for k in kinds if sums[k]) / kinds.total()
    return found


def limits(device, machine_code, registers, tensor_bytes, node):
    """Microseconds that a kernel takes by each limit"""
    blocks, threads, shared, ran, moved, *counts = map(int, node)
    warps, parts = math.ceil(threads / 32), regions(machine_code)
    of_warp = list(zip(turns(parts, [n / ran / warps for n in counts]), parts))
    of_registers = 65536 // 4 // (math.ceil(registers / 8) * 8 * 32) * 4 // warps
    resident = min(32, 64 // warps, of_registers, (228 << 10) // (shared + 1024))
    most = math.ceil(blocks / device.processors)  # blocks that one multiprocessor gets
    return {
        "issue": most * warps * sum(n * part[0] for n, part in of_warp) / 4 / device.clocks,
        "latency": math.ceil(most / resident) * sum(n * part[2] for n, part in of_warp) *
                   (FAR if tensor_bytes > device.cache else NEAR),
        "bandwidth": min(tensor_bytes or math.inf, moved * blocks / ran) / device.bytes,
        "tensor": most * counts[PRODUCT] / ran * 4096 * device.processors / device.flops(FLOPS),
    }


def plain_name(name):
    """A demangled kernel as the emulator names it, less its parameters"""
    name, depth = re.sub(r"\(anonymous namespace\)::|hs::|cuda::|void ", "", name), 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0: return name[:i]
    return name


def estimate(library, nodes, device):
    """Prints what each kernel of some steps may take, and which limit rules."""
    print(f"estimates for {device.name}: {device.processors} multiprocessors, {device.clocks / 1000:.2f} GHz, "
          f"{device.bytes / 1e6:.1f} TB/s, a cache of {device.cache / 1e6:.0f} MB; none is measured")
    compiled = [(name, row, code) for arch, name, row, code in kernels(library) if arch == 90]
    names = subprocess.run("c++filt", input="\n".join(row[0] for row in compiled), capture_output=True, text=True)
    found = {plain_name(name): row[1:] for name, row in zip(names.stdout.splitlines(), compiled)}
    for step in nodes.strip().split("\n\n"):
        title, *lines = step.split("\n")
        took, count = collections.Counter(), collections.Counter()
        by_limit = collections.defaultdict(collections.Counter)
        for line in lines:
            name, tensor_bytes, flops, *counted = line.split("\t")
            if name == "kernel":
                name = plain_name(counted[0])
                row, code = found[name]
                each = limits(device, code, row["registers"], float(tensor_bytes), counted[1:])
            else:
                each = {"tensor": float(flops) / device.flops(LIBRARY_FLOPS),
                        "bandwidth": float(counted[0] or tensor_bytes) / device.bytes}
            took[name] += max(NODE, LAUNCH + max(each.values()))
            count[name] += 1
            by_limit[name].update(each, launch=NODE - LAUNCH)
        print(f"{title.rstrip(': ')}: {len(lines)} nodes, {sum(took.values()):.0f} us")
        for name, us in took.most_common(10):
            print(f"{us:6.1f} us {max(by_limit[name], key=by_limit[name].get):9} {count[name]:3} x {name}")


def main():
    if len(sys.argv) in (4, 5) and sys.argv[1] == "estimate":
        library, nodes, *record = map(pathlib.Path, sys.argv[2:])
        device = device_of(json.loads(record[0].read_text())) if record else Device()
        return estimate(library.read_bytes(), nodes.read_text(), device)
    if len(sys.argv) != 3 or sys.argv[1] not in ("check", "update"): sys.exit(__doc__)
    library, totals, broken = pathlib.Path(sys.argv[2]).read_bytes(), collections.defaultdict(collections.Counter), 0
    for arch, name, row, _ in kernels(library):
        totals[arch].update(row)
        for fault in faults(row):
            broken += 1
            print(f"sm_{arch}: {name}: {fault}")
    version = re.search(rb"release [0-9.]+, V([0-9.]+)", library)
    if not totals or not version: sys.exit(f"{sys.argv[2]}: no machine code of CUDA that is not compressed")
    lines = [f"nvcc {version[1].decode()}; written by tests/cubin.py update"]
    lines += [f"sm_{arch}: {row['kernels']} kernels, {row['registers']} registers, {row['wide']} accesses of 16 bytes, "
              f"{row['tensor']} tensor-core instructions" for arch, row in sorted(totals.items())]
    if sys.argv[1] == "update": LOCK.write_text("\n".join(lines) + "\n")
    lock = LOCK.read_text().splitlines()
    print(*lines, sep="\n")
    if lines[0] != lock[0]: print(f"not compared: the lock is of {lock[0]}")
    differs = lines[0] == lock[0] and not set(lines) <= set(lock)  # a build may lack an architecture
    if differs: print("the lock has others; if that is meant, tests/cubin.py update:", *lock[1:], sep="\n")
    sys.exit(1 if broken or differs else 0)


if __name__ == "__main__":
    main()

"""Compares what tests/cubin.py reads from machine code with NVIDIA's own tools: `tests/cubin.py calibrate`."""
import pathlib
import re
import shutil
import subprocess
import tempfile

import cubin


def disassembled(text):
    """{symbol: what count_opcodes() returns} from what nvdisasm wrote"""
    result, name, labels, fresh = {}, None, {}, []
    words_of = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
    for line in text.splitlines():
        if start := re.match(r"\.text\.(\S+):", line):
            name, labels = start[1], {}
            result[name] = [0] * 6 + [[0] * 5, [0] * 5]
            calls, loops, fresh = [], [], []
        if label := re.match(r"(\.L_\w+):", line): fresh.append(label[1])
        operation = re.match(r"\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", line)
        if not name or not operation: continue
        at, row = int(operation[1], 16), result[name]
        labels.update((label, at) for label in fresh)
        fresh = []
        words = operation[2].split(".")
        row[0] += words[0] == "LDL"
        row[1] += words[0] == "STL"
        row[2] += words[0] in ("HMMA", "HGMMA")
        row[3] += bool(re.search(r"\b(ATOM|RED)G?S?\.\S*(\bB?F(16|32|64)|\bCAST?\b)", line))
        row[4] += words[0] != "NOP"
        if words[0] == "CALL" and re.search(cubin.DIVISION, line): calls.append(at)
        if words[0] == "BRA" and (to := re.search(r"`\((\.L_\w+)\)", line)) and labels.get(to[1], at) < at:
            loops.append((labels[to[1]], at))
        row[5] = sum(any(begin <= call <= end for begin, end in loops) for call in calls)
        if words[0] in ("LDG", "STG"):
            width = max([words_of.get(word, 0) for word in words]) or 4
            row[6 if words[0] == "LDG" else 7][width.bit_length() - 1] += 1
    return {name: (*row[:6], tuple(row[6]), tuple(row[7])) for name, row in result.items()}


def compare(path):
    """0 if cubin.py reads every kernel of the file as NVIDIA's tools do."""
    tools = [shutil.which(tool) for tool in ("cuobjdump", "nvdisasm")]
    if None in tools: cubin.fail(4, "calibrate needs cuobjdump and nvdisasm on the PATH")
    usage = subprocess.run([tools[0], "-res-usage", path], capture_output=True, text=True, check=True).stdout
    theirs = {}
    for arch, part in re.findall(r"arch = sm_(\d+)(.*?)(?=\nFatbin|\Z)", usage, re.S):
        for symbol, registers, stack, shared in re.findall(
                r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)", part):
            theirs[symbol, int(arch)] = int(registers), int(shared), int(stack)
    compared, differences = 0, []
    for code_file in cubin.cubins(pathlib.Path(path).read_bytes()):
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(code_file)
            file.flush()
            text = subprocess.run([tools[1], file.name], capture_output=True, text=True, check=True).stdout
        code = disassembled(text)
        for kernel in cubin.read_cubin(code_file)[1]:
            ours = (kernel.registers, kernel.shared, kernel.stack) + kernel[6:-1]  # no launch bounds
            expected = theirs.get((kernel.symbol, kernel.arch), ()) + code.get(kernel.symbol, ())
            compared += 1
            if ours != expected: differences.append(f"{kernel.symbol}, sm_{kernel.arch}: {ours}, expected {expected}")
    for line in differences: print(line)
    print(f"{compared} kernels compared with cuobjdump and nvdisasm: {len(differences)} differ")
    return 1 if differences or not compared else 0

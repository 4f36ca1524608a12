#!/usr/bin/env python3
"""Writes dropout/*.npy: which elements dropout keeps, for a few streams and rates. Needs Python alone.

Philox4x32-10 is written here from its paper (Salmon, Moraes, Dror, Shaw, SC 2011) and checked against its authors'
vectors; the layout of the counter is that of engine/random.h, the use of the bits that of kernels/dropout/dropout.h.
"""
import fractions
import pathlib
import struct

ELEMENTS = 1000
DROPOUT = 2  # the purpose
CASES = [  # seed, layer, step, micro-step, rate
    (1, 0, 0, 0, 0.5),
    (42, 3, 7, 0, 0.25),
    (2**52 + 12345, 2**24 - 1, 2**31, 5, 0.1),
    (7, 1, 2, 3, 0.9),
    (7, 1, 2, 3, 1e-9),
    (7, 1, 2, 4, 1 - 1e-9),
]
VECTORS = [  # Random123, tests/kat_vectors, "philox4x32 10": counter, key, result
    ((0,) * 4, (0,) * 2, (0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8)),
    ((0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344), (0xa4093822, 0x299f31d0),
     (0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1)),
]


def philox(counter, key):
    c0, c1, c2, c3 = counter
    for r in range(10):
        k0, k1 = ((k + r * step) % 2**32 for k, step in zip(key, (0x9E3779B9, 0xBB67AE85)))
        (high0, low0), (high1, low1) = divmod(0xD2511F53 * c0, 2**32), divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return c0, c1, c2, c3


def kept(seed, layer, step, micro_step, rate):
    """A byte for each element: 1 if it is kept."""
    blocks = b"".join(
        struct.pack("<4I", *philox((block, micro_step, step, DROPOUT << 24 | layer), (seed % 2**32, seed // 2**32)))
        for block in range((ELEMENTS + 7) // 8))
    limit = int(fractions.Fraction(rate) * 2**16 + fractions.Fraction(1, 2))
    limit = min(max(limit, 1), 2**16 - 1)
    return bytes(number >= limit for number, in struct.iter_unpack("<H", blocks))[:ELEMENTS]


def save(path, dtype, shape, data):
    """Version 1.0 of numpy's format, as numpy.save writes it."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def main():
    for counter, key, result in VECTORS: assert philox(counter, key) == result
    folder = pathlib.Path(__file__).resolve().parent / "dropout"
    folder.mkdir(exist_ok=True)
    save(folder / "cases.npy", "<f8", (len(CASES), 5), b"".join(struct.pack("<5d", *case) for case in CASES))
    masks = [kept(*case) for case in CASES]
    save(folder / "kept.npy", "|u1", (len(CASES), ELEMENTS), b"".join(masks))
    for case, mask in zip(CASES, masks): print(f"{case}: {sum(mask)} of {ELEMENTS} kept")


if __name__ == "__main__":
    main()

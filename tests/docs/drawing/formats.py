"""Number formats: the bits of f32, tf32, bf16 and f16, their range and their precision, from the masks of the code."""
import math

from drawing.svg import Picture, found, number

FLOAT16, GEMM = "engine/float16.h", "kernels/gemm/gemm.h"
LEFT, BIT, ROW = 84, 14.5, 44


def formats():
    """(name, exponent bits, mantissa bits, bits in memory)"""
    ones = lambda text: int(text, 16).bit_count()
    inf, = found(FLOAT16, r"magnitude > 0x([0-9a-f]+)u\) \{  // NaN")
    mantissa, = found(FLOAT16, r"mantissa = magnitude & 0x([0-9a-f]+)u")
    half_exponent, = found(FLOAT16, r"\(h\.bits >> \d+\) & 0x([0-9a-f]+)u")
    half_mantissa, = found(FLOAT16, r"h\.bits & 0x([0-9a-f]+)u;")
    upper, = found(FLOAT16, r"static_cast<uint32_t>\(b\.bits\) << (\d+)")
    tf32, = found(GEMM, r"bool tf32 = .*rounded to (\d+) bits of mantissa")
    exponent = ones(inf)
    return [("f32", exponent, ones(mantissa), 32), ("tf32", exponent, int(tf32), 32),
            ("bf16", exponent, ones(mantissa) - int(upper), 32 - int(upper)),
            ("f16", ones(half_exponent), ones(half_mantissa), 16)]


def scientific(value):
    if 1e-4 < value < 1e6:
        return f"{value:.6g}" if value > 1 else f"{value:.2g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits}e{int(power)}"


def limits(exponent, mantissa):
    """Smallest normal number, largest one, distance from 1 to the next one."""
    bias = 2 ** (exponent - 1) - 1
    return 2.0 ** (1 - bias), (2 - 2.0 ** -mantissa) * 2.0 ** bias, 2.0 ** -mantissa


def draw():
    rows = formats()
    picture = Picture("Number formats: f32, tf32, bf16 and f16", "; ".join(
        f"{name}: 1 sign, {e} exponent and {m} mantissa bits, from {scientific(limits(e, m)[0])} to "
        f"{scientific(limits(e, m)[1])}, 1 + {scientific(limits(e, m)[2])} is the next number after 1"
        for name, e, m, _ in rows), 440)
    for x, words in ((604, "largest"), (684, "smallest"), (764, "epsilon")):
        picture.text(x, 30, words, "soft")
    picture.text(684, 45, "normal", "soft")
    x = LEFT
    for kind, words in (("orange", "sign"), ("blue", "exponent: range"), ("green", "mantissa: precision"), ("grey", "not used")):
        picture.box(x, 24, 14, 14, kind, 2)
        picture.text(x + 20, 36, words, "soft")
        x += 38 + 7 * len(words)
    for at, (name, exponent, mantissa, stored) in enumerate(rows):
        y = 58 + at * ROW
        picture.text(24, y + 18, name, bold=True, size=15)
        bit = 0
        for kind, bits in (("orange", 1), ("blue", exponent), ("green", mantissa), ("grey", stored - 1 - exponent - mantissa)):
            if not bits:
                continue
            picture.box(LEFT + bit * BIT, y, bits * BIT, 28, kind, 0)
            ticks = "".join(f"M{number(LEFT + (bit + i) * BIT)} {y + 28}v-7" for i in range(1, bits))
            picture.add("path", class_=f"{kind} hollow", d=ticks or None)
            picture.text(LEFT + BIT * (bit + bits / 2), y + 17, str(bits), anchor="middle", bold=True)
            bit += bits
        smallest, largest, epsilon = limits(exponent, mantissa)
        for x, value in ((604, largest), (684, smallest), (764, epsilon)):
            picture.text(x, y + 18, scientific(value))
    draw_ranges(picture, rows, 58 + len(rows) * ROW + 14)
    return picture.svg()


def draw_ranges(picture, rows, y):
    """The normal numbers of each format on an axis of powers of ten."""
    at = lambda power: LEFT + (power + 40) * 9.0
    picture.text(24, y + 12, "Normal numbers, by powers of ten", bold=True)
    picture.text(816, y + 12, "epsilon: from 1 to the next number", "soft", anchor="end")
    bottom = y + 28 + len(rows) * 28
    for power in range(-40, 41, 10):
        picture.line([(at(power), y + 24), (at(power), bottom + 4)], "grid")
        picture.text(at(power), bottom + 20, "1" if power == 0 else f"1e{power}", "soft", anchor="middle")
    for i, (name, exponent, mantissa, _) in enumerate(rows):
        smallest, largest, _ = limits(exponent, mantissa)
        begin, end = at(math.log10(smallest)), at(math.log10(largest))
        picture.text(24, y + 43 + i * 28, name, bold=True, size=15)
        picture.box(begin, y + 28 + i * 28, end - begin, 20, "blue")
        digits = f"{(mantissa + 1) * math.log10(2):.1f} decimal digits"
        picture.text((begin + end) / 2, y + 43 + i * 28, digits if end - begin > 150 else "", anchor="middle")
        if end - begin <= 150:
            picture.text(end + 8, y + 43 + i * 28, digits)

"""Matrix products of one instruction: AMX's tiles and mma.sync's fragments. Sizes and places come from the sources."""
import re

from drawing.svg import Picture, Stale, expect, found, number, source

AMX, MMA = "kernels/cpu/amx.h", "kernels/cuda/mma.cuh"
EMULATOR = "tests/cuda_emulator/source/mma.cpp"  # on whose fragments every test of a kernel with mma runs


def frame(picture, x, y, width, height):
    picture.add("rect", x=float(x), y=float(y), width=float(width), height=float(height), class_="mark")


def grid(picture, x, y, rows, columns, width, height, kinds):
    """Cells in stripes of two columns, of these kinds in turn."""
    for column in range(0, columns, 2):
        picture.box(x + column * width, y, 2 * width, rows * height, kinds[column // 2 % len(kinds)] + " bare", 0)
    ways = [f"M{number(x + column * width)} {y}v{rows * height}" for column in range(columns + 1)]
    ways += [f"M{x} {y + row * height}h{number(columns * width)}" for row in range(rows + 1)]
    picture.add("path", class_=f"{kinds[-1]} hollow", stroke_width="0.7", d="".join(ways))


def amx():
    names = "tile_rows", "tile_row_bytes", "tile_depth"
    rows, row_bytes, depth = (int(found(AMX, rf"int64_t {name} = (\d+);")[0]) for name in names)
    expect(AMX, "b[k / 2][2 * i + k % 2] = ")  # the pairs of B
    products = re.findall(r"Tiles::template multiply<(\d), (\d), (\d)>\(\)", source(AMX))
    sums = row_bytes // 4
    if depth * 2 != row_bytes or len(products) != 4:
        raise Stale(f"{AMX}: rows of {row_bytes} bytes, depth {depth}, {len(products)} products; expected 64, 32 and 4")
    picture = Picture(f"A product of AMX tiles: {rows} x {depth} by {depth} x {sums} bf16 values",
                      f"Three tiles of {rows} rows of {row_bytes} bytes. A row of A times a column of pairs of B is one "
                      "f32 sum of C. Below, the eight tile registers: two of A and two of B give two by two sums.", 466)
    size, top, height, m, n = 240, 78, 11, 5, 9  # m, n: the framed sum
    for i, (name, kinds, columns, holds, order) in enumerate((
            ("A", ("grey", "blue"), depth, f"{rows} rows of {depth} bf16", "a row is a row of A, K from left to right"),
            ("B", ("grey", "green"), depth, f"{rows} rows of {sums} pairs of bf16", "a row is two rows of B, in pairs along K"),
            ("C", ("orange",), sums, f"{rows} rows of {sums} f32 sums", "C[m][n] += sum of A[m][k] B[k][n]"))):
        left, width = 24 + i * 276, size / columns
        picture.text(left, 36, name, bold=True, size=16)
        picture.text(left + 20, 36, holds)
        picture.text(left, 58, order, "soft", size=12.5)
        grid(picture, left, top, rows, columns, width, height, kinds)
        if i < 2:
            picture.text(left + size + 18, top + rows * height / 2 + 6, "×="[i], anchor="middle", size=18)
    frame(picture, 24, top + m * height, size, height)
    frame(picture, 300 + n * size / sums, top, size / sums, rows * height)
    frame(picture, 576 + n * size / sums, top + m * height, size / sums, height)
    y = top + rows * height + 26
    picture.text(24, y, "Framed: a row of A, the pairs of a column of B, and the sum of their products in C.")
    picture.text(24, y + 20, f"One instruction: {rows} x {sums} sums of {depth} products, {rows * sums * depth:,} "
                 f"multiply-adds. A tile is {rows} x {row_bytes} bytes, {rows * row_bytes // 1024} KiB.")
    draw_registers(picture, products, y + 44)
    return picture.svg()


def draw_registers(picture, products, y):
    """The registers of a block: each sum is in the row of its tile of A and in the column of its tile of B."""
    lefts, tops = sorted({a for _, a, _ in products}), sorted({b for _, _, b in products})
    picture.text(24, y + 10, "The eight tile registers", bold=True)
    places = [(a, "A", "blue", 0, 1 + i) for i, a in enumerate(lefts)]
    places += [(b, "B", "green", 1 + i, 0) for i, b in enumerate(tops)]
    places += [(total, "sums", "orange", 1 + tops.index(b), 1 + lefts.index(a)) for total, a, b in products]
    for register, words, kind, column, row in places:
        picture.box(24 + column * 100, y + 24 + row * 38, 92, 30, kind)
        picture.text(70 + column * 100, y + 44 + row * 38, f"tmm{register}: {words}", anchor="middle")
    for i, words in enumerate(("Four loads serve four products: each tile of A and of B is used twice.",
                               "The sums stay in registers from one step along K to the next,", "and are stored after the last.",
                               "A tile is always whole: elements beyond a matrix are zeros.")):
        picture.text(356, y + 48 + i * 22, words)


def value(expression, **known):
    """An index of the emulator's: + * / % mean the same in Python, if the / of positive integers becomes //."""
    if not re.fullmatch(r"[\w +*/%()]+", expression):
        raise Stale(f"{EMULATOR}: `{expression}` is not an index that this picture can compute")
    return eval(expression.replace("/", "//"), {"__builtins__": {}}, known)


def fragments():
    """M, N and K; (matrix, row, column) -> (lane, register); the expressions of `group` and `pair`."""
    M, N, K = map(int, found(MMA, r"mma_m(\d+)n(\d+)k(\d+)_f16"))
    d, a, b = map(int, found(MMA, r"_f16\(float \(&d\)\[(\d)\], const uint32_t \(&a\)\[(\d)\], const uint32_t \(&b\)\[(\d)\]"))
    lanes = found(EMULATOR, r"const int group = ([^,;]+), pair = ([^;]+);\n\s+for \(int which")
    places = {  # registers, values in each, row and column
        "A": (a, 2, found(EMULATOR, r"wide_a\[(.+?)\]\[(.+?)\] = widen\(\(\*part->a\)\[i\], which")),
        "B": (b, 2, found(EMULATOR, r"wide_b\[(.+?)\]\[(.+?)\] = widen\(\(\*part->b\)\[i\], which")),
        "D": (d, 1, found(EMULATOR, r"const int row = (lane[^,]+), column = ([^;]+);")),
    }
    cells = {}
    for lane in range(32):
        group, pair = (value(text, lane=lane) for text in lanes)
        for matrix, (registers, values, texts) in places.items():
            for i in range(registers):
                for which in range(values):
                    at = (value(text, lane=lane, group=group, pair=pair, i=i, which=which) for text in texts)
                    cells[matrix, *at] = lane, i
    for matrix, rows, columns in (("A", M, K), ("B", K, N), ("D", M, N)):
        places = {(row, column) for name, row, column in cells if name == matrix}
        if places != {(row, column) for row in range(rows) for column in range(columns)}:
            raise Stale(f"{EMULATOR}: the fragments of {matrix} are not its {rows} x {columns} values of {MMA}")
    return (M, N, K), cells, lanes


def mma(shown=13):
    (M, N, K), cells, lanes = fragments()
    picture = Picture(f"The fragments of mma.sync m{M}n{N}k{K}: which lane has which values",
                      f"A of {M} x {K}, B of {K} x {N} and D of {M} x {N} values, in pairs, each with the number of the lane "
                      f"that has it; those of lane {shown} are framed.", 484)
    width, height, top = 22, 20, 66
    legend = top + M * height + 26
    for matrix, left, rows, columns, words, kinds, names in (
            ("A", 24, M, K, "16 bits", ("blue", "violet", "green", "orange"), ("a[0]", "a[1]", "a[2]", "a[3]")),
            ("B", 420, K, N, "16 bits", ("blue", "green"), ("b[0]", "b[1]")),
            ("D", 640, M, N, "f32", ("blue", "blue", "violet", "violet"), ("d[0], d[1]", None, "d[2], d[3]", None))):
        picture.text(left, 34, matrix, bold=True, size=16)
        picture.text(left + 20, 34, f"{rows} x {columns}, {words}")
        wide, tall = (1, 2) if matrix == "B" else (2, 1)  # of a pair
        for column in range(columns):
            picture.text(left + (column + 0.5) * width, top - 8, str(column), "soft", size=12, anchor="middle")
        frames = []
        for row in range(0, rows, tall):
            for column in range(0, columns, wide):
                lane, i = cells[matrix, row, column]
                place = left + column * width, top + row * height, wide * width, tall * height
                picture.box(*place, kinds[i], 0)
                picture.text(place[0] + place[2] / 2, place[1] + place[3] / 2 + 4.5, str(lane), size=12, anchor="middle",
                             bold=lane == shown)
                if lane == shown:
                    frames.append(place)
        for place in frames:
            frame(picture, *place)
        pairs = [(kind, name) for kind, name in zip(kinds, names) if name]
        for i, (kind, name) in enumerate(pairs):
            x = left + i * columns * width / len(pairs)
            picture.box(x, legend - 11, 14, 14, kind, 2)
            picture.text(x + 20, legend + 1, name)
    for x, sign in ((398, "×"), (618, "=")):
        picture.text(x, top + 166, sign, size=18, anchor="middle")
    picture.text(24, legend + 32, "The number in a pair is the lane that has it: two 16-bit values in one register, two f32 "
                 "sums in two. D = A B + C; C is as D.", "soft")
    group, pair = (value(text, lane=shown) for text in lanes)
    picture.text(24, legend + 52, f"Framed: lane {shown}, with group = {lanes[0]} = {group} and pair = {lanes[1]} = {pair}.",
                 "soft")
    return picture.svg()

"""The fixed tree of sums: seven leaves on one, two and three ranks, by the rules of engine/leaf_tree.cpp."""
from drawing.svg import Picture, expect

CODE = "engine/leaf_tree.cpp"
RULES = (  # what this file computes as the code does
    "return {leaves * rank / working, leaves * (rank + 1) / working};",
    "while (!kept_.empty() && sum.index % 2 == 1 && kept_.back() == TreeNode{sum.level, sum.index - 1}) {",
    "sum = {sum.level + 1, sum.index / 2};",
    "for (int64_t leaf = own.begin; leaf + 1 < own.end; ++leaf) counter.add();",
    "for (int level = 1; int64_t{1} << (level - 1) < leaves_; ++level) add_level(level);",
    "const int64_t half = int64_t{1} << left.level, middle = right.index * half;",
    "if (middle >= leaves_) {",
    "exchange(right, {right_first, right_last}, left_first, right_first, round);",
    "exchange(left, {left_first, left_last}, left_last + 1, right_last + 1, round);",
    "return static_cast<int>(((leaf + 1) * working_ - 1) / leaves_);",
)
LEAVES, COLOURS, PANEL, STEP, LEVEL = 7, ("blue", "orange", "green"), 268, 35, 62


def rank_of(leaf, ranks):
    return ((leaf + 1) * ranks - 1) // LEAVES


def nodes(ranks):
    """Each sum of two: (level, index), the ranks of its left and of its right child's leaves."""
    level = 1
    while 1 << (level - 1) < LEAVES:
        half = 1 << (level - 1)
        for index in range((LEAVES - 1) // (2 * half) + 1):
            begin, middle = 2 * index * half, (2 * index + 1) * half
            if middle < LEAVES:
                end = min(middle + half, LEAVES)
                yield ((level, index), (rank_of(begin, ranks), rank_of(middle - 1, ranks)),
                       (rank_of(middle, ranks), rank_of(end - 1, ranks)))
        level += 1


def order_on_one_rank():
    """The number of each addition, where one rank has all leaves: those of its counter, then the last leaf's."""
    order, kept = {}, []
    for leaf in range(LEAVES - 1):
        node = (0, leaf)
        while kept and node[1] % 2 == 1 and kept[-1] == (node[0], node[1] - 1):
            kept.pop()
            node = (node[0] + 1, node[1] // 2)
            order[node] = len(order) + 1
        kept.append(node)
    for node, _, _ in nodes(1):
        order.setdefault(node, len(order) + 1)
    return order


def letters(level, index):
    all_of = "abcdefghijklmnop"[index << level:min((index + 1) << level, LEAVES)]
    return all_of if len(all_of) < 5 else f"{all_of[0]} to {all_of[-1]}"


def draw_tree(picture, left, ranks):
    place = {(0, leaf): (left + 29 + leaf * STEP, 66 + 3 * LEVEL) for leaf in range(LEAVES)}
    sums, sent = list(nodes(ranks)), 0

    def at(node):  # a node without a right child is its left child
        while node not in place:
            node = (node[0] - 1, node[1] * 2)
        return node

    for node, lower, upper in sums:
        level, index = node
        children = at((level - 1, 2 * index)), at((level - 1, 2 * index + 1))
        place[node] = x, y = sum(place[child][0] for child in children) / 2, 66 + (3 - level) * LEVEL
        for child, missing in zip(children, (upper[1] - lower[1], upper[0] - lower[0])):
            picture.line([place[child], (x, y)], dashes="5 4" if missing else None, width=1.5)
            sent += missing
    for leaf in range(LEAVES):
        x, y = place[0, leaf]
        picture.box(x - 13, y - 12, 26, 24, COLOURS[rank_of(leaf, ranks)], 2)
        picture.text(x, y + 5, letters(0, leaf), anchor="middle", bold=True)
    order = order_on_one_rank()
    for node, lower, upper in sums:
        x, y = place[node]
        parts, width = upper[1] - lower[0] + 1, 56 if node[0] > 1 else 40
        for part in range(parts):
            picture.box(x - width / 2 + part * width / parts, y - 12, width / parts, 24, COLOURS[lower[0] + part], 0)
        picture.text(x, y + 5, letters(*node), anchor="middle", bold=True)
        if ranks == 1:
            picture.text(x + width / 2 + 4, y - 4, str(order[node]), "soft")
    return len(sums), sent


def draw():
    expect(CODE, *RULES)
    picture = Picture("The fixed tree of sums of seven micro-batches", "The same tree of additions three times, its leaves a "
                      "to g on one, two and three ranks. Which rank adds what differs, and which two sums meet does not.", 370)
    for i, ranks in enumerate((1, 2, 3)):
        left, middle = 24 + i * PANEL, 150 + i * PANEL
        picture.text(middle, 34, "1 rank" if ranks == 1 else f"{ranks} ranks", bold=True, size=15, anchor="middle")
        additions, sent = draw_tree(picture, left, ranks)
        words = f"{additions} additions, in this order" if ranks == 1 else f"{sent} messages (dashed)"
        picture.text(middle, 290, words, anchor="middle")
    for y, words in ((324, "A colour is a rank. A sum in several colours is computed on each of these ranks: its two terms are "
                           "the same there."),
                     (344, "A dashed line is a sum that one rank sends to others. g has no neighbour, and is passed on, not "
                           "added to zero.")):
        picture.text(24, y, words, "soft")
    return picture.svg()

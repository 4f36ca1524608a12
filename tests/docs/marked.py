"""Parts of pages that scripts of this folder write: each stands between <!-- NAME:begin --> and <!-- NAME:end -->."""


def replaced(text, name, part):
    """The page with another part of that name; None if it has no such markers."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->\n"
    before, has_begin, rest = text.partition(begin)
    _, has_end, after = rest.partition(end)
    return before + begin + part + end + after if has_begin and has_end else None

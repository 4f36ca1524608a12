"""What the pictures share: a canvas that becomes an SVG, and the reading of sources and records.

Colours are classes, so one style sheet holds the light and the dark ones. An SVG has no references to other files.
"""
import html
import json
import pathlib
import re

top = pathlib.Path(__file__).resolve().parents[3]
WIDTH = 840

# class: fill and line of boxes, (light, dark)
BOXES = {
    "blue": ("#d6e4f7;stroke:#4a6fa5", "#22385a;stroke:#7fa6dd"),
    "orange": ("#fbdfc2;stroke:#b96a22", "#5c3b1b;stroke:#e0a066"),
    "green": ("#d3edd9;stroke:#3a8554", "#1d4a31;stroke:#74c492"),
    "violet": ("#e5d9f8;stroke:#7757ab", "#41305f;stroke:#b399e6"),
    "grey": ("#eef0f3;stroke:#8a93a0", "#2a313b;stroke:#78828f"),
}
STYLE = [  # selector, light, dark
    (".ground", "fill:#fff", "fill:#12171e"), ("text", "fill:#1c2733", "fill:#e6ecf5"),
    (".soft", "fill:#56616e", "fill:#a4afbc"), (".line", "stroke:#6b7683;fill:none", "stroke:#97a2b0;fill:none"),
    (".grid", "stroke:#dfe3e8;fill:none", "stroke:#2c343f;fill:none"), (".head", "fill:#6b7683", "fill:#97a2b0"),
    (".mark", "stroke:#b3261e;fill:none;stroke-width:2.5", "stroke:#ff8a80;fill:none;stroke-width:2.5"),
] + [(f".{name}", f"fill:{light}", f"fill:{dark}") for name, (light, dark) in BOXES.items()]
STYLE += [(".bare", "stroke:none", "stroke:none"), (".hollow", "fill:none", "fill:none")]  # after the colours: they win


class Stale(Exception):
    """A source or a record is not what a picture was drawn for: its sentence names both."""


def source(path):
    return (top / path).read_text()


def record(path):
    return json.loads(source(path))


def expect(path, *lines):
    """The picture follows these lines of the source: if one has changed, it must be drawn by another rule."""
    text = "".join(source(path).split())
    for line in lines:
        if "".join(line.split()) not in text:
            raise Stale(f"{path} does not have `{line}` any more, expected as the picture follows it")


def found(path, pattern):
    """The groups of a regular expression's first match in the source."""
    match = re.search(pattern, source(path))
    if not match:
        raise Stale(f"{path} has no match of `{pattern}`, expected one")
    return match.groups()


def number(value):
    return f"{value:.1f}".removesuffix(".0")


def mebibytes(size):
    return f"{size / 2**20:.1f} MiB"


class Picture:
    """Shapes and texts in the order of their drawing. Sizes are in pixels of a page 840 wide."""

    def __init__(self, title, description, height):
        self.title, self.description, self.height, self.parts = title, description, height, []

    def add(self, element, text=None, **attributes):
        words = "".join(f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, float) else value}"'
                        for key, value in attributes.items() if value is not None)
        self.parts.append(f"<{element}{words}/>" if text is None else
                          f"<{element}{words}>{html.escape(text, quote=False)}</{element}>")

    def text(self, x, y, text, kind=None, size=None, anchor=None, bold=False, mono=False):
        self.add("text", text, x=float(x), y=float(y), class_=kind, font_size=size, text_anchor=anchor,
                 font_weight="bold" if bold else None, font_family="ui-monospace,monospace" if mono else None)

    def box(self, x, y, width, height, kind, round=4):
        self.add("rect", x=float(x), y=float(y), width=float(width), height=float(height), rx=round or None, class_=kind)

    def line(self, points, kind="line", arrow=False, dashes=None, width=None):
        way = "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.add("path", class_=kind, d=f"M{way}", stroke_dasharray=dashes, stroke_width=width,
                 marker_end="url(#head)" if arrow else None)

    def svg(self):
        light = "".join(f"{selector}{{{rule}}}" for selector, rule, _ in STYLE)
        dark = "".join(f"{selector}{{{rule}}}" for selector, _, rule in STYLE)
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" role="img" '
            'aria-labelledby="title desc" font-family="system-ui,sans-serif" font-size="13">',
            f'<title id="title">{html.escape(self.title)}</title>',
            f'<desc id="desc">{html.escape(self.description)}</desc>',
            f"<style>{light}\n@media(prefers-color-scheme:dark){{{dark}}}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path class="head" d="M0 0L8 4L0 8z"/></marker>',
            f'<rect class="ground" width="{WIDTH}" height="{self.height}" rx="8"/>',
            *self.parts, "</svg>"]) + "\n"

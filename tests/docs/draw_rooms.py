"""Draws the rooms of mcpbus as its modules are today: ``python tests/docs/draw_rooms.py`` writes `docs/rooms.svg`."""

import ast
import sys
import textwrap
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from test_layers import BELOW, imports, room_of, tree  # noqa: E402 - that is where the rooms are

PICTURE = ROOT / "docs/rooms.svg"
WIDTH, HEIGHT, GAP, LETTERS = 520, 58, 18, 84
TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="#678"/></marker></defs>'
)
ROOF = (
    "What an author imports: Server, Bus and the public names; the command line, examples, clients for tests."
)
"""The roof is no package, and says this of itself."""


def draw():
    """The picture, as SVG: each room above those that it imports from, with arrows but where a longer way says the same."""
    sources = tree()
    rooms = {module: room_of(module) for module in sources}
    arrows = {
        (rooms[module], rooms[name])
        for module, name in imports(sources)
        if name in rooms and rooms[module] != rooms[name]
    }
    ordered = sorted(BELOW, key=lambda room: (-_height(room, arrows), room))
    places = {room: GAP // 2 + number * (HEIGHT + GAP) for number, room in enumerate(ordered)}
    width, height = WIDTH + 150, len(places) * (HEIGHT + GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        TIP,
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *(_box(room, y, sources) for room, y in places.items()),
        *(_arrow(places[start], places[end]) for start, end in sorted(_needed(arrows))),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _height(room, arrows):
    return 1 + max((_height(below, arrows) for above, below in arrows if above == room), default=-1)


def _needed(arrows):
    """The arrows that no longer way makes superfluous."""

    def reached(room, without):
        steps = {end for start, end in arrows if start == room and (start, end) != without}
        return steps.union(*(reached(step, None) for step in steps))

    return {(start, end) for start, end in arrows if end not in reached(start, (start, end))}


def _arrow(start, end):
    x, y1, y2 = WIDTH + 12, start + HEIGHT * 2 // 3, end + HEIGHT // 3
    bulge = x + 24 + (end - start - HEIGHT) // 4
    return f'<path d="M{x} {y1} C{bulge} {y1} {bulge} {y2} {x + 2} {y2}" fill="none" stroke="#678" marker-end="url(#tip)"/>'


def _box(room, y, sources):
    package = "mcpbus_actors" if room == "actors" else f"mcpbus.{room}"
    said = ROOF if room == "roof" else ast.get_docstring(ast.parse(sources[package])).split("\n\n")[0]
    lines = textwrap.wrap(" ".join(said.split()).replace("`", ""), LETTERS)
    text = "".join(
        f'<text x="24" y="{y + 36 + 14 * number}" font-size="11" fill="#333">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect x="10" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef6f5" stroke="#009485"/>'
        f'<text x="24" y="{y + 20}" font-size="14" font-weight="bold" fill="#111">{room}</text>{text}'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())

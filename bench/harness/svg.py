"""Draws pictures as SVG, without a plotting library. A picture has a few KiB.

Shows latency and bandwidth over size, with one line per peer and the bound dashed; or bars for a
single size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from harness.curves import Panel, colours_of, has_curves, panels_of, size_label
from harness.results import BOUND, OURS, Row, Work, is_ours, value_text

WIDTH, HEIGHT = 460, 300  #: of one panel
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 34, 40
LEGEND = 20  #: height of one line
BAR, BAR_LEFT, BAR_RIGHT = 20, 160, 70  #: height of a bar with its gap; space for names and values


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis."""

    low: float
    high: float
    begin: float  #: in pixels
    end: float

    @staticmethod
    def of(values: Iterable[float], begin: float, end: float) -> Axis:
        found = list(values)
        return Axis(min(found), max(max(found), min(found) * 1.1), begin, end)

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def decades(self) -> list[float]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1)]


def style(name: str, colour: str) -> str:
    width = 2.6 if name == OURS else 1.4
    dashes = ' stroke-dasharray="6 4"' if name == BOUND else ""
    return f'fill="none" stroke="{colour}" stroke-width="{width}"{dashes}'


def text(x: float, y: float, what: str, anchor: str = "middle", weight: str = "normal") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(what)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def diagram(panel: Panel, colours: dict[str, str]) -> str:
    """Returns a panel as SVG, relative to its upper left corner."""
    points = [point for line in panel.lines for point in line.points]
    across = Axis.of((x for x, _ in points), LEFT, WIDTH - RIGHT)
    up = Axis.of((y for _, y in points), HEIGHT - BOTTOM, TOP)
    parts = [text(WIDTH / 2, 18, panel.title, weight="bold")]
    for tick in up.decades():
        parts += [rule(LEFT, up.at(tick), WIDTH - RIGHT, up.at(tick))]
        parts += [text(LEFT - 6, up.at(tick) + 4, panel.label(tick), "end")]
    for size in panel.sizes():
        parts += [rule(across.at(size), TOP, across.at(size), HEIGHT - BOTTOM)]
        parts += [text(across.at(size), HEIGHT - BOTTOM + 16, size_label(size))]
    for line in panel.lines:
        colour = colours[line.name]
        for stretch in panel.stretches(line):
            places = [(across.at(x), up.at(y)) for x, y in stretch]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{path}" {style(line.name, colour)}/>')
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in places
            ]
    return "\n".join(parts)


def legend(names: Sequence[str], colours: dict[str, str], top: float) -> str:
    parts = []
    for index, name in enumerate(names):
        x, y = LEFT + index % 5 * 165, top + index // 5 * LEGEND
        dashed = style(name, colours[name])
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 24}" y2="{y}" {dashed}/>')
        parts.append(text(x + 30, y + 4, name, "start"))
    return "\n".join(parts)


def curves(rows: Sequence[Row], works: Sequence[Work]) -> str:
    """Draws one row of two panels per work, and one legend below."""
    names = sorted({row["peer"] for row in rows} - {OURS, BOUND})
    colours = colours_of(rows)
    shown = [OURS, *names, *([BOUND] if any(row["peer"] == BOUND for row in rows) else [])]
    parts = []
    for index, work in enumerate(works):
        mine = [row for row in rows if Work.of(row) == work]
        if not mine:
            continue
        for column, panel in enumerate(panels_of(work, mine)):
            drawn = diagram(panel, colours)
            at = f"translate({column * WIDTH},{index * HEIGHT})"
            parts.append(f'<g transform="{at}">{drawn}</g>')
    bottom = len(works) * HEIGHT + LEGEND
    parts.append(legend(shown, colours, bottom))
    height = bottom + (len(shown) + 4) // 5 * LEGEND
    return document(parts, height)


def block(title: str, rows: Sequence[Row], colours: dict[str, str]) -> list[str]:
    """Returns horizontal bars, one per row, relative to their upper left corner."""
    longest = max(row["median_us"] for row in rows)
    parts = [text(BAR_LEFT, 14, title, "start", "bold")]
    for index, row in enumerate(rows):
        top = BAR * (index + 1) + 2
        width = max(1, row["median_us"] / longest * (WIDTH - BAR_LEFT - BAR_RIGHT))
        place = f'x="{BAR_LEFT}" y="{top}" width="{width:.1f}" height="{BAR - 5}"'
        parts.append(text(BAR_LEFT - 6, top + 11, row["peer"], "end"))
        parts.append(f'<rect {place} fill="{colours[row["peer"]]}"/>')
        value = value_text(Work.of(row), row["median_us"])
        parts.append(text(BAR_LEFT + width + 5, top + 11, value, "start"))
    return parts


def bars(rows: Sequence[Row], works: Sequence[Work]) -> str:
    """Draws one block of bars per work, two side by side. Shorter bars are better."""
    colours = colours_of(rows)
    blocks = []
    for work in works:
        mine = [row for row in rows if Work.of(row) == work]
        mine.sort(key=lambda row: (row["peer"] != OURS, not is_ours(row["peer"])))
        if mine:
            blocks.append((len(mine), block(str(work), mine, colours)))
    parts, top = [], 0
    for first in range(0, len(blocks), 2):
        line = blocks[first : first + 2]
        for column, (_, drawn) in enumerate(line):
            parts.append(f'<g transform="translate({column * WIDTH},{top})">')
            parts += [*drawn, "</g>"]
        top += BAR * (max(count for count, _ in line) + 2)
    return document(parts, top)


def document(parts: Sequence[str], height: int) -> str:
    size = f'width="{2 * WIDTH}" height="{height}" viewBox="0 0 {2 * WIDTH} {height}"'
    font = 'font-family="sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>\n'
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def picture(rows: Sequence[Row], works: Sequence[Work]) -> str:
    return curves(rows, works) if has_curves(rows) else bars(rows, works)

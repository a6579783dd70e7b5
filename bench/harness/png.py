"""The pictures as PNG, for where an SVG cannot be shown: the same lines, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure  # without pyplot, which would look for a screen

from harness.curves import (
    Line,
    colours_of,
    has_curves,
    lines_of,
    rate_text,
    size_label,
    time_label,
)
from harness.results import BOUND, OURS, Row, Work, is_ours, value_text

WIDTH, HEIGHT = 9.2, 3.0  #: inches of a row of panels
BAR = 0.25  #: inches of one, with its gap
DPI = 100
IN_A_ROW = 5  #: names in the legend


def draw(rows: Sequence[Row], works: Sequence[Work], path: Path) -> None:
    there = [work for work in works if any(Work.of(row) == work for row in rows)]
    make = curves if has_curves(rows) else bars
    figure = make(rows, there) if there else Figure()
    figure.savefig(path, dpi=DPI)


def curves(rows: Sequence[Row], works: Sequence[Work]) -> Figure:
    """A row of two panels a work, one legend below."""
    figure = Figure((WIDTH, HEIGHT * len(works) + 1), layout="constrained")
    colours = colours_of(rows)
    for work, (left, right) in zip(
        works, figure.subplots(len(works), 2, squeeze=False), strict=True
    ):
        mine = [row for row in rows if Work.of(row) == work]
        panel(left, lines_of(mine, lambda row: row["median_us"]), colours, time_label)
        panel(
            right,
            lines_of(mine, lambda row: row["bytes"] / row["median_us"] / 1e3),
            colours,
            rate_text,
        )
        left.set_title(f"{work}: time", fontsize="medium")
        right.set_title("size / time", fontsize="medium")
    drawn = {str(line.get_label()): line for axis in figure.axes for line in axis.get_lines()}
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=IN_A_ROW)
    return figure


def panel(
    axis: Axes, lines: Sequence[Line], colours: dict[str, str], label: Callable[[float], str]
) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    for line in lines:
        axis.plot(
            *zip(*line.points, strict=True),
            label=line.name,
            color=colours[line.name],
            linewidth=2.6 if line.name == OURS else 1.4,
            linestyle="--" if line.name == BOUND else "-",
        )
    sizes = sorted({x for line in lines for x, _ in line.points})
    axis.set_xticks(sizes, [size_label(size) for size in sizes], fontsize="small")
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(lambda value, _: label(value))
    axis.grid(color="#dddddd")


def bars(rows: Sequence[Row], works: Sequence[Work]) -> Figure:
    """A block of bars a work; shorter is better."""
    colours = colours_of(rows)
    blocks = [[row for row in rows if Work.of(row) == work] for work in works]
    heights = [len(block) + 2 for block in blocks]
    figure = Figure((WIDTH, BAR * sum(heights)), layout="constrained")
    panels = figure.subplots(len(blocks), 1, squeeze=False, height_ratios=heights)
    for work, block, (axis,) in zip(works, blocks, panels, strict=True):
        block.sort(
            key=lambda row: (row["peer"] == OURS, is_ours(row["peer"]))
        )  # the last is on top
        names = [row["peer"] for row in block]
        values = [row["median_us"] for row in block]
        drawn = axis.barh(names, values, color=[colours[name] for name in names])
        axis.bar_label(drawn, [value_text(work, value) for value in values], padding=3)
        axis.set_title(str(work), fontsize="medium")
        axis.set_xticks([])
        axis.margins(x=0.15)
    return figure

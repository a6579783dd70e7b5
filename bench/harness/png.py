"""Draws the pictures as PNG with matplotlib, for viewers without SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure  # not pyplot, which would look for a display

from harness.curves import Panel, colours_of, has_curves, panels_of, size_label
from harness.results import BOUND, OURS, Row, Work, is_ours, value_text

WIDTH, HEIGHT = 9.2, 3.0  #: height of a row of panels in inches
BAR = 0.25  #: height of a bar with its gap in inches
DPI = 100
IN_A_ROW = 5  #: names per row of the legend


def draw(rows: Sequence[Row], works: Sequence[Work], path: Path) -> None:
    there = [work for work in works if any(Work.of(row) == work for row in rows)]
    make = curves if has_curves(rows) else bars
    figure = make(rows, there) if there else Figure()
    figure.savefig(path, dpi=DPI)


def curves(rows: Sequence[Row], works: Sequence[Work]) -> Figure:
    """Draws one row of two panels per work, and one legend below."""
    figure = Figure((WIDTH, HEIGHT * len(works) + 1), layout="constrained")
    colours = colours_of(rows)
    for work, pair in zip(works, figure.subplots(len(works), 2, squeeze=False), strict=True):
        mine = [row for row in rows if Work.of(row) == work]
        for axis, panel in zip(pair, panels_of(work, mine), strict=True):
            diagram(axis, panel, colours)
    drawn = {str(line.get_label()): line for axis in figure.axes for line in axis.get_lines()}
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=IN_A_ROW)
    return figure


def diagram(axis: Axes, panel: Panel, colours: dict[str, str]) -> None:
    axis.set_title(panel.title, fontsize="medium")
    axis.set_xscale("log")
    axis.set_yscale("log")
    for line in panel.lines:
        for stretch in panel.stretches(line):
            axis.plot(
                *zip(*stretch, strict=True),
                label=line.name,
                color=colours[line.name],
                linewidth=2.6 if line.name == OURS else 1.4,
                linestyle="--" if line.name == BOUND else "-",
                marker=".",
            )
    sizes = panel.sizes()
    axis.set_xticks(sizes, [size_label(size) for size in sizes], fontsize="small")
    axis.minorticks_off()
    axis.yaxis.set_major_formatter(lambda value, _: panel.label(value))
    axis.grid(color="#dddddd")


def bars(rows: Sequence[Row], works: Sequence[Work]) -> Figure:
    """Draws one block of bars per work. Shorter bars are better."""
    colours = colours_of(rows)
    blocks = [[row for row in rows if Work.of(row) == work] for work in works]
    heights = [len(block) + 2 for block in blocks]
    figure = Figure((WIDTH, BAR * sum(heights)), layout="constrained")
    panels = figure.subplots(len(blocks), 1, squeeze=False, height_ratios=heights)
    for work, block, (axis,) in zip(works, blocks, panels, strict=True):
        block.sort(
            key=lambda row: (row["peer"] == OURS, is_ours(row["peer"]))
        )  # bars start at the bottom
        names = [row["peer"] for row in block]
        values = [row["median_us"] for row in block]
        drawn = axis.barh(names, values, color=[colours[name] for name in names])
        axis.bar_label(drawn, [value_text(work, value) for value in values], padding=3)
        axis.set_title(str(work), fontsize="medium")
        axis.set_xticks([])
        axis.margins(x=0.15)
    return figure

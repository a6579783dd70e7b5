"""The findings of the doctor, and their output as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["problem", "advice", "ok"]
_ORDER: tuple[Severity, ...] = ("problem", "advice", "ok")
_MARGIN = " " * 11
_WIDTH = 100
_MOST_TITLES = 6


@dataclass(frozen=True)
class Finding:
    """`problem`: jobs fail, or run far slower than possible. `advice`: may cause problems later."""

    severity: Severity
    what: str
    why: str = ""
    fix: tuple[str, ...] = ()  #: commands, or instructions if no command does it


def problem(what: str, why: str, *fix: str) -> Finding:
    return Finding("problem", what, why, fix)


def advice(what: str, why: str, *fix: str) -> Finding:
    return Finding("advice", what, why, fix)


def ok(what: str) -> Finding:
    return Finding("ok", what)


@dataclass
class Block:
    """Findings about one host, or about the connections between hosts."""

    title: str
    findings: list[Finding] = field(default_factory=list)
    table: list[str] = field(default_factory=list)  #: lines that are shown unchanged


def count(blocks: Iterable[Block], severity: Severity) -> int:
    return sum(one.severity == severity for block in blocks for one in block.findings)


def merged(blocks: Sequence[Block]) -> list[Block]:
    """Merges blocks that need the same remedies into one, with all their titles."""
    groups: dict[tuple[Finding, ...], list[Block]] = {}
    for block in blocks:
        worse = tuple(one for one in block.findings if one.severity != "ok")
        groups.setdefault(worse, []).append(block)
    result = []
    for worse, group in groups.items():
        titles = [block.title for block in group]
        more = len(titles) - _MOST_TITLES
        title = ", ".join(titles[:_MOST_TITLES]) + (f" and {more} more" if more > 0 else "")
        well = [
            one
            for one in group[0].findings
            if one.severity == "ok" and all(one in block.findings for block in group)
        ]
        result.append(Block(title, [*worse, *well]))
    return result


def report(blocks: Sequence[Block], verbose: bool) -> list[str]:
    """Returns the lines of the whole report; the last one has the counts."""
    lines: list[str] = []
    for block in blocks:
        lines += [clean(block.title), *_block_lines(block, verbose), ""]
    problems, pieces = count(blocks, "problem"), count(blocks, "advice")
    words = [
        f"{problems or 'no'} problem{'' if problems == 1 else 's'}",
        f"{pieces} piece{'' if pieces == 1 else 's'} of advice" if pieces else "no advice",
    ]
    return [*lines, ", ".join(words)]


def _block_lines(block: Block, verbose: bool) -> list[str]:
    lines: list[str] = []
    well = [one.what for one in block.findings if one.severity == "ok"]
    for one in sorted(block.findings, key=lambda one: _ORDER.index(one.severity)):
        if one.severity == "ok" and not verbose:
            continue
        lines += _wrapped(f"  {one.severity:<9}", one.what)
        lines += _wrapped(f"{_MARGIN}why: ", one.why) if one.why else []
        for index, step in enumerate(one.fix):
            lines.append(f"{_MARGIN}{'fix: ' if index == 0 else '     '}{clean(step)}")
    if well and not verbose:
        lines += _wrapped("  ok       ", "; ".join(well))
    return lines + [f"  {clean(line)}" for line in block.table]


def _wrapped(head: str, text: str) -> list[str]:
    """Wraps between words; continuation lines are aligned with the text of the first."""
    lines, line = [], head
    empty = True
    for word in clean(text).split():
        if not empty and len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line, empty = " " * len(head), True
        line += word if empty else f" {word}"
        empty = False
    return [*lines, line]


def clean(text: str) -> str:
    """Escapes control characters, so that texts of other hosts cannot control the terminal."""
    return "".join(one if one.isprintable() else " " for one in text)

"""Formats the output of a cell that ran on ranks, as HTML and as plain text. Pure."""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: Lines kept per rank; a notebook with more output could not be opened.
MOST_LINES = 5000
_LIVE_LINES = 12
_LAST_WORDS = 80  # characters of a summary

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_BOX = "border-left:3px solid {};margin:2px 0;padding-left:8px"
_PRE = "margin:4px 0;white-space:pre-wrap;font-size:90%"


@dataclass
class Block:
    """Output, result and state of one rank in one cell."""

    rank: int
    lines: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    line_count: int = 0
    value: str | None = None
    error: tuple[str, str] | None = None  #: last line, and traceback
    seconds: float | None = None  #: None while the cell runs, and if it did not finish

    def add(self, stream: str, line: str) -> None:
        """`line` ends with \
        , or with \\r if the next line overwrites it.
        """
        if self.lines and self.lines[-1][0] == stream and self.lines[-1][1].endswith("\r"):
            self.lines.pop()
            self.line_count -= 1
        self.lines.append((stream, line))
        self.line_count += 1

    def shown_lines(self) -> list[tuple[str, str]]:
        left_out = self.line_count - len(self.lines)
        head = [("stderr", f"... {left_out} lines are omitted")] if left_out else []
        return head + [(stream, _plain(line)) for stream, line in self.lines]

    def state(self) -> str:
        if self.seconds is None:
            return "ended" if self.error else "running"
        return f"{self.seconds:.2f} s"

    def last_words(self) -> str:
        if self.error:
            words = self.error[0].splitlines()[0]
        elif self.value is not None:
            words = (self.value.splitlines() or [""])[0]
        else:
            words = next((_plain(line) for _, line in reversed(self.lines) if line.strip()), "")
        return words if len(words) <= _LAST_WORDS else words[: _LAST_WORDS - 1] + "…"


def as_html(blocks: Sequence[Block]) -> str:
    """One collapsed block per rank. Blocks with an error, and a single block, are open."""
    return "".join(_details(block, is_open=len(blocks) == 1) for block in blocks)


def _details(block: Block, is_open: bool) -> str:
    color = "#c62828" if block.error else "#2e7d32"
    summary = f"<b>rank {block.rank}</b> · {block.state()}"
    words = html.escape(block.last_words())
    if words:
        summary += f' · <code style="background:none;color:inherit">{words}</code>'
    body = "".join(
        f'<span style="color:#a05a00">{html.escape(line)}</span>\n'
        if stream == "stderr"
        else html.escape(line) + "\n"
        for stream, line in block.shown_lines()
    )
    if block.value is not None:
        body += f"<b>{html.escape(block.value)}</b>\n"
    if block.error:
        body += f'<span style="color:#c62828">{html.escape(block.error[1])}</span>'
    body = body or "<i>no output</i>"
    opened = " open" if is_open or block.error else ""
    return (
        f'<details{opened} style="{_BOX.format(color)}">'
        f'<summary style="cursor:pointer">{summary}</summary>'
        f'<pre style="{_PRE}">{body.rstrip()}</pre></details>'
    )


def as_text(blocks: Iterable[Block]) -> str:
    lines = []
    for block in blocks:
        said = [line for _, line in block.shown_lines()]
        said += block.value.splitlines() if block.value is not None else []
        said += block.error[1].splitlines() if block.error else []
        lines += [f"[{block.rank}] {line}" for line in said]
    return "\n".join(lines)


def live_lines(recent: Iterable[tuple[int, str]]) -> list[str]:
    """The last lines of all ranks, shown while a cell runs."""
    return [f"[{rank}] {_plain(line)}" for rank, line in [*recent][-_LIVE_LINES:]]


def as_live_html(lines: Sequence[str], done: int, size: int) -> str:
    body = html.escape("\n".join(lines))
    return (
        f'<div style="{_BOX.format("#1565c0")}">running · {done} of {size} ranks have ended'
        f'<pre style="{_PRE}">{body}</pre></div>'
    )


def _plain(line: str) -> str:
    return _ESCAPES.sub("", line).rstrip("\r\n")

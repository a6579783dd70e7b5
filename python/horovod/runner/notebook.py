"""`%load_ext horovod`: ranks for a notebook, and cells that run on them (docs/notebooks.md)."""

from __future__ import annotations

import argparse
import atexit
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from horovod.runner import _program
from horovod.runner._blocks import Block, as_html, as_live_html, as_text, live_lines
from horovod.runner._session import Cell, JobLost, Session

_USAGE = """%hvd start -np N [flags of horovodrun]   start ranks
%%hvd [--rank 0,2-3]                     run a cell on all ranks, or on some
%hvd status                              list the ranks
%hvd stop                                end them"""
_SHOW_SECONDS = 0.25


class _Brief(BaseException):
    """Shown without a traceback: the place in this module does not help users."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class Refused(_Brief, ValueError):
    """An invalid magic line."""


class RankError(_Brief, RuntimeError):
    """A cell raised an exception on some ranks, or the ranks have ended."""


class CellInterrupted(_Brief, KeyboardInterrupt):
    """A cell was interrupted on its ranks."""


class Magics:
    """`%hvd` and `%%hvd` of one shell. Owns the session."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._session: Session | None = None

    def hvd(self, line: str, cell: str | None = None) -> None:
        words = shlex.split(line)
        if cell is not None:
            self._run(words, cell)
            return
        commands = {"start": self._start, "status": self._status, "stop": self._stop}
        if not words or words[0] not in commands:
            _refuse(_USAGE)
        commands[words[0]](words[1:])

    def _start(self, flags: Sequence[str]) -> None:
        if self._session is not None and self._session.look():
            _refuse("ranks are running already; end them with %hvd stop")
        self.close()
        try:
            self._session = Session(flags)
        except (ValueError, FileNotFoundError) as error:
            _refuse(str(error))
        except JobLost as lost:
            raise RankError(str(lost)) from None
        print(f"{self._session.size} ranks are running; run a cell on them with %%hvd")

    def _status(self, words: Sequence[str]) -> None:
        session = self._session
        if session is None or not session.look():
            print("no ranks; start them with %hvd start -np N")
            return
        started = shlex.join(["horovodrun", *session.flags])
        print(f"{session.size} ranks, {session.cells} cells; {started}")
        for rank, (pid, host) in sorted(session.hosts.items()):
            print(f"  rank {rank}: process {pid} on {host}")

    def _stop(self, words: Sequence[str]) -> None:
        self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
        self._session = None

    def _run(self, words: Sequence[str], source: str) -> None:
        session = self._session
        if session is None or not session.look():
            _refuse("there are no ranks; start them with %hvd start -np N")
        display = _Display(self._shell)
        try:
            cell = session.run(source, _ranks(words, session.size), display.live, _SHOW_SECONDS)
        except (JobLost, KeyboardInterrupt) as lost:
            self.close()
            display.finish()
            kind = RankError if isinstance(lost, JobLost) else CellInterrupted
            raise kind(str(lost)) from None
        display.live(cell)
        display.finish()
        _raise_for(cell)


def _raise_for(cell: Cell) -> None:
    if cell.interrupted_at is not None:
        text = "interrupted; the ranks are still running"
        if cell.released:
            text += (
                ", but some waited for other ranks, so Horovod was shut down on all: "
                "call hvd.init() again before the next operation"
            )
        raise CellInterrupted(text) from None
    lines: dict[str, list[str]] = {}
    for block in cell.blocks.values():
        if block.error:
            lines.setdefault(block.error[0], []).append(str(block.rank))
    if lines:
        said = [
            f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}: {line}"
            for line, ranks in lines.items()
        ]
        raise RankError("\n".join(said))


class _Display:
    """One output of the notebook, updated while the cell runs."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._handle: Any = None
        self._cell: Cell | None = None
        self._shown: list[str] | None = None

    def live(self, cell: Cell) -> None:
        self._cell = cell
        lines = live_lines(cell.recent)
        if not cell.is_over() and lines != self._shown:
            done = len(cell.blocks) - len(cell.running())
            self._write(as_live_html(lines, done, len(cell.blocks)), "\n".join(lines))
            self._shown = lines

    def finish(self) -> None:
        if self._cell is not None:
            blocks: list[Block] = [self._cell.blocks[rank] for rank in sorted(self._cell.blocks)]
            self._write(as_html(blocks), as_text(blocks))

    def _write(self, html: str, text: str) -> None:
        from IPython.display import display

        data = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _ranks(words: Sequence[str], size: int) -> list[int]:
    parser = argparse.ArgumentParser(prog="%%hvd", add_help=False, exit_on_error=False)
    parser.add_argument("--rank", "-r", default=f"0-{size - 1}")
    try:
        options, rest = parser.parse_known_args([*words])
        parts = [part.partition("-") for part in options.rank.split(",")]
        ranks = [rank for low, _, high in parts for rank in range(int(low), int(high or low) + 1)]
    except (argparse.ArgumentError, ValueError):
        rest, ranks = [*words], []
    if rest or not ranks or not all(0 <= rank < size for rank in ranks):
        _refuse(f"%%hvd {' '.join(words)}: expected --rank with ranks from 0 to {size - 1}")
    return sorted(set(ranks))


def _refuse(text: str) -> NoReturn:
    """Raises an error that stops "run all cells", which IPython's UsageError does not."""
    raise Refused(text) from None


def load(shell: Any) -> None:
    """Registers the magics. Adds horovodrun to the PATH of `!` lines if it is missing there."""
    if shutil.which("horovodrun") is None:
        folder = Path(_program.find()).parent
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    magics = Magics(shell)
    shell.horovod_magics = magics
    shell.register_magic_function(magics.hvd, magic_kind="line_cell", magic_name="hvd")
    atexit.register(magics.close)


def unload(shell: Any) -> None:
    magics: Magics = shell.horovod_magics
    magics.close()
    atexit.unregister(magics.close)
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("hvd", None)

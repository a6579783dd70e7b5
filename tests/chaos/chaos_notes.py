"""What the processes of a chaos run write down, and how it is read.

Each process appends lines of JSON to a file of its own. What a step will use is written before the
step, so it is there for every step that any rank has completed, also if others were killed in it.

Training states form a chain: the name of a state is a hash of the state before it and of the
generation in which the step was made. The name is part of the state that ranks commit, send and
restore. So the name of the last state tells which steps have led to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGINNING = ""  #: the name of the state before the first step
BIRTH, STEP, COMMIT, EPOCH, END = "birth", "step", "commit", "epoch", "end"


def next_state(state: str, generation: int) -> str:
    """Returns the name of a state. A generation makes at most one step from a state."""
    return hashlib.sha256(f"{state} {generation}".encode()).hexdigest()[:16]


class Notebook:
    """Written by one process. Each line is one system call, which SIGKILL does not divide."""

    def __init__(self, folder: Path) -> None:
        name = f"{os.getpid()}.{time.monotonic_ns()}.notes"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), **values}) + "\n"
        os.write(self._file, line.encode())


@dataclass(frozen=True)
class Part:
    """What one rank uses in a step. `before`, `after`: names of states."""

    pid: int
    at: float  #: when it began
    before: str
    after: str
    generation: int
    rank: int
    size: int
    epoch: int
    indices: tuple[int, ...]


@dataclass
class Process:
    pid: int
    born: float = 0.0
    parts: list[Part] = field(default_factory=list)
    commits: dict[str, float] = field(default_factory=dict)  #: when commit() returned, by state
    repeated: list[tuple[str, int, int]] = field(default_factory=list)  #: state, epoch, number
    end: str | None = None  #: the state at the end of training

    def take(self, note: dict[str, Any]) -> None:
        kind, at = note.pop("kind"), note.pop("at")
        if kind == BIRTH:
            self.born = at
        elif kind == STEP:
            after = next_state(note["before"], note["generation"])
            indices = tuple(note.pop("indices"))
            self.parts.append(Part(self.pid, at, after=after, indices=indices, **note))
        elif kind == COMMIT:
            self.commits[note["state"]] = at
        elif kind == EPOCH:
            self.repeated.append((note["state"], note["epoch"], note["repeated"]))
        else:
            self.end = note["state"]

    @property
    def generation(self) -> int:
        """In which it has begun its last step; -1: none."""
        return self.parts[-1].generation if self.parts else -1

    @property
    def last_commit(self) -> float:
        """0: none."""
        return next(reversed(self.commits.values()), 0.0)


class Reader:
    """Follows the files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[Process, int]] = {}

    def read(self) -> list[Process]:
        """Returns all processes that have begun, with what they have written by now."""
        for path in self._folder.glob("*.notes"):
            process, offset = self._read.get(path) or (Process(int(path.name.split(".")[0])), 0)
            with path.open("rb") as file:
                file.seek(offset)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            for line in whole.splitlines():
                process.take(json.loads(line))
            self._read[path] = process, offset + len(whole)
        return [process for process, _ in self._read.values()]


@dataclass(frozen=True)
class Step:
    """A step that has led to the end, with the part of each rank."""

    parts: Sequence[Part]
    ended: float  #: when the first rank had committed it, or a later step of the generation

    @property
    def generation(self) -> int:
        return self.parts[0].generation

    @property
    def begun(self) -> float:
        return min(part.at for part in self.parts)


def parts_by_state(processes: Sequence[Process]) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for part in _all_parts(processes):
        found.setdefault(part.after, []).append(part)
    return found


def _all_parts(processes: Sequence[Process]) -> Iterator[Part]:
    for process in processes:
        yield from process.parts

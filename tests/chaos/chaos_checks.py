"""What must hold after a chaos run. Each function returns the problems that it has found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from chaos_notes import BEGINNING, Part, Process, Step, parts_by_state


def chain(processes: Sequence[Process]) -> tuple[list[Step], list[str]]:
    """Returns the steps that have led to the state at the end, the first one first."""
    ends = {process.end for process in processes if process.end is not None}
    if len(ends) != 1:
        return [], [f"{len(ends)} different states at the end, not 1"]
    (name,) = ends
    parts = parts_by_state(processes)
    ended = _ends(processes)
    steps: list[Step] = []
    while name != BEGINNING:
        problem = _flaw(name, parts.get(name, []))
        if problem:
            return [], [problem]
        ranks = sorted(parts[name], key=lambda part: part.rank)
        later = steps[-1].ended if steps and steps[-1].generation == ranks[0].generation else 0.0
        # Without a commit, and with ranks that were lost after it, the last part is the best guess.
        steps.append(Step(ranks, ended.get(name) or later or max(part.at for part in ranks)))
        name = ranks[0].before
    return steps[::-1], []


def _ends(processes: Sequence[Process]) -> dict[str, float]:
    """When the first rank had committed a state."""
    found: dict[str, float] = {}
    for process in processes:
        for name, at in process.commits.items():
            found[name] = min(at, found.get(name, at))
    return found


def _flaw(name: str, parts: Sequence[Part]) -> str:
    """Why these are not the parts of one step of all ranks; empty: they are."""
    if not parts:
        return f"no rank has noted the step to state {name}"
    first = parts[0]
    where = f"generation {first.generation}, epoch {first.epoch}, state {name}"
    if {(part.before, part.size, part.epoch) for part in parts} != {
        (first.before, first.size, first.epoch)
    }:
        return f"{where}: ranks disagree about the step"
    ranks = sorted(part.rank for part in parts)
    if ranks != list(range(first.size)):
        return f"{where}: the step of {first.size} ranks has parts of the ranks {ranks}"
    return ""


def lost_commits(processes: Sequence[Process], steps: Sequence[Step]) -> list[str]:
    """A commit that has returned on any rank must have led to the end."""
    kept = {BEGINNING, *(step.parts[0].after for step in steps)}
    return [
        f"process {process.pid} has committed state {name}, which was lost"
        for process in processes
        for name in process.commits
        if name not in kept
    ]


def miscounted(processes: Sequence[Process], steps: Sequence[Step], samples: int) -> list[str]:
    """Each epoch uses each sample once, except for repeats at its end, which are reported."""
    epochs: dict[int, list[Step]] = {}
    for step in steps:
        epochs.setdefault(step.parts[0].epoch, []).append(step)
    if list(epochs) != list(range(len(epochs))):
        return [f"the epochs are {list(epochs)}"]
    reported = _reported(processes, steps)
    found = []
    for epoch, made in epochs.items():
        used = Counter(index for step in made for part in step.parts for index in part.indices)
        found += _miscounted_in(epoch, made[-1], used, samples, reported)
    return found


def _reported(processes: Sequence[Process], steps: Sequence[Step]) -> Mapping[int, set[int]]:
    """The numbers of repeats of each epoch, as ranks with a state of the chain have read them."""
    kept = {step.parts[0].after for step in steps}
    found: dict[int, set[int]] = {}
    for process in processes:
        for name, epoch, repeated in process.repeated:
            if name in kept:
                found.setdefault(epoch, set()).add(repeated)
    return found


def _miscounted_in(
    epoch: int, last: Step, used: Counter[int], samples: int, reported: Mapping[int, set[int]]
) -> list[str]:
    found = []
    missing = sorted(set(range(samples)) - used.keys())
    foreign = sorted(used.keys() - set(range(samples)))
    if missing or foreign:
        found.append(f"epoch {epoch}: samples {missing} were not used, {foreign} do not exist")
    repeats = used.total() - len(used)
    if repeats >= last.parts[0].size:
        found.append(f"epoch {epoch}: {repeats} repeats with {last.parts[0].size} ranks")
    if reported.get(epoch) != {repeats}:
        found.append(f"epoch {epoch}: {repeats} repeats, reported were {reported.get(epoch)}")
    return found


def indices_of(steps: Sequence[Step]) -> list[list[tuple[int, ...]]]:
    return [[part.indices for part in step.parts] for step in steps]

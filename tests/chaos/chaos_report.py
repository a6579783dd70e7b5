"""What a chaos run has shown: faults, goodput and recovery times."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from chaos_faults import (
    CUT,
    HEARTBEAT_S,
    KILL,
    KILL_TWO,
    LEAVE,
    LOSE_HOST,
    MEANING,
    STOP,
    STOP_AND_KILL,
    Fault,
)
from chaos_notes import Process, Step

LOSSES = (KILL, KILL_TWO, STOP_AND_KILL)


def goodput(steps: Sequence[Step], faults: Sequence[Fault]) -> float:
    """Returns the time in steps that have led to the end, without the time in which one of their
    ranks was stopped, divided by the time from the first to the last step."""
    useful = 0.0
    for begun, ended, step in _spans(steps):
        useful += ended - begun - _stopped_in(begun, ended, step, faults)
    return useful / (steps[-1].ended - steps[0].begun)


def shortfalls(steps: Sequence[Step], faults: Sequence[Fault], least_percent: float) -> list[str]:
    """Returns the problem of a run whose goodput is below the least, if it is."""
    found = goodput(steps, faults)
    if 100 * found >= least_percent:
        return []
    return [f"goodput {found:.2%} is below the least, {least_percent:g} %"]


def _spans(steps: Sequence[Step]) -> Iterator[tuple[float, float, Step]]:
    """A step of a generation begins when the one before has ended."""
    ended, generation = 0.0, -1
    for step in steps:
        begun = ended if step.generation == generation else max(ended, step.begun)
        yield begun, max(begun, step.ended), step
        ended, generation = max(begun, step.ended), step.generation


def _stopped_in(begun: float, ended: float, step: Step, faults: Sequence[Fault]) -> float:
    pids = {part.pid for part in step.parts}
    spans = sorted(
        (max(begun, fault.at), min(ended, fault.until))
        for fault in faults
        if fault.pids[0] in pids and fault.until > begun and fault.at < ended
    )
    total, reached = 0.0, begun
    for first, last in spans:
        total += max(0.0, last - max(first, reached))
        reached = max(reached, last)
    return total


def recoveries(steps: Sequence[Step], faults: Sequence[Fault], kinds: Sequence[str]) -> list[float]:
    """The times from a fault to the end of the first step of a later generation."""
    found = []
    for fault in faults:
        if fault.kind in kinds:
            ends = [step.ended for step in steps if step.generation > fault.generation]
            found += [min(ends) - fault.at] if ends else []
    return found


def resumptions(steps: Sequence[Step], faults: Sequence[Fault], kind: str) -> list[float]:
    """The times from the end of a short stop or cut to the end of the next step."""
    found = []
    for fault in faults:
        if fault.kind == kind and not fault.is_silence:
            ends = [step.ended for step in steps if step.ended > fault.until]
            found += [min(ends) - fault.until] if ends else []
    return found


def given_up(processes: Sequence[Process], fault: Fault) -> bool:
    """Whether a process that was silent has committed nothing since then."""
    pids = set(fault.pids[:1] if fault.kind == STOP_AND_KILL else fault.pids)
    silent = [process for process in processes if process.pid in pids]
    return any(process.last_commit < fault.until for process in silent)


def joins(processes: Sequence[Process], first_step: float) -> list[float]:
    """The times from the start of a script that joins to its first commit."""
    return [
        min(process.commits.values()) - process.born
        for process in processes
        if process.commits and process.born > first_step
    ]


def table(processes: Sequence[Process], steps: Sequence[Step], faults: Sequence[Fault]) -> str:
    kinds = Counter(fault.kind for fault in faults)
    lines = ["| fault | number |", "|---|---|"]
    lines += [f"| {MEANING[kind]} | {count} |" for kind, count in sorted(kinds.items())]
    silences = [fault for fault in faults if fault.is_silence]
    losses = [fault for fault in silences if given_up(processes, fault)]
    lines += [f"| all | {len(faults)} |"]
    lines += [
        f"| stops and cuts longer than the heartbeat of {HEARTBEAT_S:g} s | {len(silences)} |"
    ]
    lines += [f"| of these, those after which ranks were given up | {len(losses)} |", ""]
    lines += ["| time | number | median | worst |", "|---|---|---|---|"]
    times = {
        "kill -9 to the next committed step": recoveries(steps, faults, LOSSES),
        "SIGTERM to the next committed step without the rank": recoveries(steps, faults, [LEAVE]),
        "loss of a host to the next committed step": recoveries(steps, faults, [LOSE_HOST]),
        "SIGSTOP to the next committed step without the rank": recoveries(steps, losses, [STOP]),
        "cut to the next committed step without the host": recoveries(steps, losses, [CUT]),
        "SIGCONT, before the heartbeat, to the next committed step": resumptions(
            steps, faults, STOP
        ),
        "end of a cut, before the heartbeat, to the next committed step": resumptions(
            steps, faults, CUT
        ),
        "start of a process that joins to its first commit": joins(processes, steps[0].begun),
    }
    for what, seconds in times.items():
        if seconds:
            median, worst = statistics.median(seconds), max(seconds)
            numbers = f"{len(seconds)} | {median * 1e3:.0f} ms | {worst * 1e3:.0f} ms"
            lines.append(f"| {what} | {numbers} |")
    return "\n".join([*lines, "", *_totals(processes, steps, faults)])


def _totals(
    processes: Sequence[Process], steps: Sequence[Step], faults: Sequence[Fault]
) -> Iterator[str]:
    sizes = [len(step.parts) for step in steps]
    seconds = steps[-1].ended - steps[0].begun
    used = sum(len(part.indices) for step in steps for part in step.parts)
    generations = {step.generation for step in steps}
    yield f"{seconds:.1f} s, {len(processes)} processes, {len(generations)} generations with steps"
    yield (
        f"{len(steps)} committed steps of {statistics.mean(sizes):.2f} ranks on average, "
        f"{steps[-1].parts[0].epoch + 1} epochs, {used} samples"
    )
    yield f"goodput {goodput(steps, faults):.1%}: time in committed steps, divided by all time"

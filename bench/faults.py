"""Measures how long it takes until a rank that fails is an error on all other ranks.

    ./dev bench faults [--trials 50] [--only WORDS] [--np 4] [--json FILE]

For each fault (such as `kill -9`) and each moment (such as negotiation) it starts jobs, in which
one rank fails after a random time. It takes the time from the fault to the exception in Python on
the slowest of the others. Each of them must raise HorovodInternalError, and name the rank that
failed, which changes from trial to trial. Ranks use the runtime without a framework, since
importing one takes longer than a trial, but for torch.distributed, whose error is DistBackendError.

In an elastic job, it takes the time from the fault to the next commit of the slowest survivor.

Ranks that are silent are given up after HOROVOD_HEARTBEAT_SECONDS, here 1 s, once the default of
5 s. Several such jobs wait at the same time. Two hosts are network namespaces (needs root).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from harness import fault_table, jobs, namespaces, ours, peers, results
from harness.jobs import Launch, Missing
from harness.places import PROGRAMS
from harness.results import TARGET, Row, Work, limit
from start import RATE, over_hosts, place_of

ALONE = "This benchmark has no peers and a single size: --peers, --sizes and --plot do not apply."
RANK = str(PROGRAMS / "fault_rank.py")
START_LIMIT_S = 60
ERROR_LIMIT_S = 60
END_LIMIT_S = 30
POLL_S = 0.005
WHOLE_TEXT_OF_STEP = "goes on"  #: in place of an error, of a job that goes on

#: The goals in seconds: of an error after a death, of one after silence, which are set by knobs,
#: and of the next step of an elastic job. Silence may take longer by LATE_S, since beats come late
#: on busy cores, and the rank is an error on all others then (docs/laboratory.md). In init, ranks
#: do not ask each other for signs of life: the launcher sees those that are stopped, but for hosts
#: that are cut off the timeout of the start counts, and then a second for the launcher to answer.
DEATH_S, HEARTBEAT_S, DEFAULT_HEARTBEAT_S, STEP_S = 0.2, 1.0, 5.0, 1.0
LATE_S, START_S, ANSWER_S = 0.1, 3.0, 1.0
SILENT = ("--heartbeat-seconds", f"{HEARTBEAT_S:g}")


#: Faults that the caller does: to cut the link between two hosts, and to end all processes of the
#: launcher's host, or of the other one, at once. Ranks that fail wait for it.
OF_HOSTS = ("cut", "kill_host", "kill_other")


@dataclass(frozen=True)
class Cell:
    """`does`, `moment`: see programs/fault_rank.py, or OF_HOSTS. `ranks`: that fail; none: one
    other than 0, which changes. `delay`: least and most seconds from the begin of the moment to
    the fault."""

    fault: str
    when: str
    does: str
    moment: str
    ranks: tuple[int, ...] = ()
    delay: tuple[float, float] = (0.01, 0.15)
    flags: tuple[str, ...] = ()
    goal_s: float = DEATH_S
    hosts: int = 1
    together: int = 1  #: jobs at the same time

    def text(self) -> str:
        return f"{self.fault}, {self.when}"

    def failing(self, index: int, np: int) -> tuple[int, ...]:
        if self.does == "kill_host":
            return tuple(range(np // 2))
        if self.moment == COMMIT and self.hosts == 2:
            return tuple(range(np // 2, np))
        if self.does == "cut":
            return (np - 1,) if self.moment in (START, NEGOTIATION) else ()
        return self.ranks or (1 + index % (np - 1),)


NEGOTIATION, PACKING, TRANSFER, BACKEND, START, SHUTDOWN, RESET, COMMIT = (
    "negotiation",
    "packing",
    "transfer",
    "backend",
    "start",
    "shutdown",
    "reset",
    "commit",
)
MOMENTS = {
    NEGOTIATION: "negotiation",
    PACKING: "packing of small tensors",
    TRANSFER: "transfer of 64 MiB",
    BACKEND: "all_reduce of torch.distributed, 64 MiB",
    START: "init",
    SHUTDOWN: "shutdown",
    RESET: "reset of an elastic job, to its next step",
    COMMIT: "training of an elastic job, to its next commit",
}
ELASTIC = ("--min-np", "2")
SOON = (0.0, 0.03)
#: When ranks on two hosts have called shutdown, and the operation still runs.
LATER = (0.06, 0.16)


def deaths(fault: str, does: str) -> list[Cell]:
    """Of a process that ends at any moment."""
    usual = Cell(fault, "", does, TRANSFER)
    moments = (NEGOTIATION, PACKING, TRANSFER, START, SHUTDOWN)
    delays = {NEGOTIATION: (0.01, 0.1), START: SOON, SHUTDOWN: SOON}
    return [
        *(
            replace(usual, when=MOMENTS[one], moment=one, delay=delays.get(one, usual.delay))
            for one in moments
        ),
        replace(usual, when="transfer, of two ranks at once", ranks=(1, 2)),
        replace(usual, when="transfer, of rank 0 (Root)", ranks=(0,)),
        Cell(fault, MOMENTS[RESET], does, RESET, (2,), SOON, ELASTIC, STEP_S),
    ]


def kills() -> list[Cell]:
    fault = "kill -9"
    return [*deaths(fault, "kill"), Cell(fault, MOMENTS[BACKEND], "kill", BACKEND)]


def exits() -> list[Cell]:
    return [
        *deaths("os._exit", "_exit"),
        Cell("sys.exit", MOMENTS[NEGOTIATION], "exit", NEGOTIATION),
        Cell("out of memory", MOMENTS[NEGOTIATION], "memory", NEGOTIATION),
    ]


def in_elastic_job(silence: Cell) -> Cell:
    flags, goal_s = (*SILENT, *ELASTIC), HEARTBEAT_S + STEP_S
    return replace(silence, when=MOMENTS[COMMIT], moment=COMMIT, flags=flags, goal_s=goal_s)


def stops() -> list[Cell]:
    fault = f"SIGSTOP, heartbeat of {HEARTBEAT_S:g} s"
    goal_s = HEARTBEAT_S + LATE_S
    usual = Cell(fault, "", "stop", TRANSFER, flags=SILENT, goal_s=goal_s, together=4)
    moments = (NEGOTIATION, PACKING, TRANSFER)
    return [
        *(replace(usual, when=MOMENTS[moment], moment=moment) for moment in moments),
        replace(usual, when=MOMENTS[SHUTDOWN], moment=SHUTDOWN, delay=SOON),
        replace(usual, when="transfer, of two ranks at once", ranks=(1, 2)),
        replace(usual, when="transfer, of rank 0 (Root)", ranks=(0,)),
        in_elastic_job(usual),
        *stops_in_start(usual),
        Cell(
            "SIGSTOP",
            MOMENTS[TRANSFER],
            "stop",
            TRANSFER,
            goal_s=DEFAULT_HEARTBEAT_S + LATE_S,
            together=8,
        ),
    ]


def stops_in_start(usual: Cell) -> list[Cell]:
    """In init, and in the reset, of which it is a part."""
    in_start = replace(usual, when=MOMENTS[START], moment=START, delay=SOON)
    in_reset = replace(in_start, when=MOMENTS[RESET], moment=RESET, ranks=(2,))
    flags, goal_s = (*SILENT, *ELASTIC), HEARTBEAT_S + STEP_S
    return [in_start, replace(in_reset, flags=flags, goal_s=goal_s)]


def partitions() -> list[Cell]:
    """One rank of the host that is cut off has not called init when the others wait in it, or not
    submitted the tensor of which they negotiate."""
    fault = f"network partition, heartbeat of {HEARTBEAT_S:g} s"
    flags = (*SILENT, "--grace-seconds", "20")  # so that the launcher does not end before them
    goal_s = HEARTBEAT_S + LATE_S
    cell = Cell(fault, "", "cut", "", flags=flags, goal_s=goal_s, hosts=2, together=5)
    in_start = f"network partition, timeout of the start of {START_S:g} s"
    start_flags = (*flags, "--start-timeout", f"{START_S:g}")
    moments = (NEGOTIATION, PACKING, TRANSFER)
    return [
        *(replace(cell, when=MOMENTS[moment], moment=moment) for moment in moments),
        replace(cell, when=MOMENTS[SHUTDOWN], moment=SHUTDOWN, delay=LATER, together=2),
        replace(
            cell,
            fault=in_start,
            when=MOMENTS[START],
            moment=START,
            flags=start_flags,
            goal_s=START_S + ANSWER_S,
        ),
        replace(in_elastic_job(cell), together=2),
    ]


def lost_hosts() -> list[Cell]:
    """An elastic job goes on where its launcher is."""
    fault, when = "kill -9 of all on another host", MOMENTS[COMMIT]
    return [Cell(fault, when, "kill_other", COMMIT, flags=ELASTIC, goal_s=STEP_S, hosts=2)]


def lost_launchers() -> list[Cell]:
    """Their agents give ranks of other hosts the time to raise the error."""
    fault = "kill -9 of all on the launcher's host"
    cells = [
        Cell(fault, MOMENTS[moment], "kill_host", moment, hosts=2, together=together)
        for moment, together in ((NEGOTIATION, 5), (PACKING, 2), (TRANSFER, 2), (START, 5))
    ]
    in_shutdown = Cell(fault, MOMENTS[SHUTDOWN], "kill_host", SHUTDOWN, delay=LATER, hosts=2)
    return [*cells, replace(in_shutdown, together=2)]


CELLS = (*kills(), *exits(), *stops(), *partitions(), *lost_hosts(), *lost_launchers())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=ALONE)
    parser.add_argument("--np", type=int, default=4)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--only", default="", help="words that a fault and its moment contain")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--ours", type=Path, metavar="BUILD", default=peers.default_build())
    return parser.parse_args()


# ---- one trial ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    ranks: tuple[int, ...]  #: that failed
    seconds: tuple[float, ...]  #: from the fault to the error, on each other rank that had one
    texts: tuple[str, ...]  #: the errors
    silent: int  #: other ranks without an error
    misnamed: int  #: errors that name none of the ranks, or hosts, that failed
    is_late: bool = False  #: a rank had ended in order before the fault

    @property
    def good(self) -> bool:
        return self.silent == 0 and self.misnamed == 0


def names_one_of(text: str, culprits: Sequence[int | str]) -> bool:
    """Of ranks, alone or in a list such as "ranks 2 and 3", or of hosts by their addresses."""
    names = [
        rf"\b{re.escape(one)}\b" if isinstance(one, str) else rf"\branks? (\d+(, | and ))*{one}\b"
        for one in culprits
    ]
    return any(re.search(name, text) for name in names)


class Job:
    """A job of `cell` in which `ranks` fail after `delay` seconds. Its notes are in `folder`."""

    def __init__(self, launch: Launch, folder: Path, cell: Cell, ranks: tuple[int, ...]) -> None:
        self.cell = cell
        self.ranks = ranks
        self._folder = folder
        with (folder / "output").open("wb") as output:
            self._process = jobs.started(launch, output, output)

    def await_notes(self, what: str, ranks: Sequence[int], limit_s: float) -> bool:
        """Returns whether all of them came before the limit, and before the end of the job."""
        deadline = time.monotonic() + limit_s
        files = [self._folder / f"{rank}.{what}" for rank in ranks]
        while True:
            is_over = self.cell.hosts == 1 and self._process.poll() is not None
            if all(file.exists() for file in files):
                return True
            if is_over or time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)

    def await_start(self, np: int) -> None:
        if not self.await_notes("pid", range(np), START_LIMIT_S):
            raise SystemExit(f"the job did not start:\n{(self._folder / 'output').read_text()}")

    def processes(self, ranks: Sequence[int]) -> list[int]:
        return [int((self._folder / f"{rank}.pid").read_text()) for rank in ranks]

    def others(self, np: int) -> list[int]:
        first = (1,) if self.cell.moment == RESET else ()
        return [rank for rank in range(np) if rank not in (*self.ranks, *first)]

    def judge(self, np: int, failed_at: int | None, culprits: dict[int, list[int | str]]) -> Trial:
        """`failed_at`: if ranks have not noted it. `culprits`: those that each rank may name."""
        notes = [self._folder / f"{rank}.fault" for rank in self.ranks]
        times = [int(note.read_text()) for note in notes if note.exists()]
        ends = [int(note.read_text()) for note in self._folder.glob("*.ended")]
        if not failed_at and not times:  # the job has ended before
            return Trial(self.ranks, (), (), len(self.others(np)), 0, bool(ends))
        at = failed_at or min(times)
        files = {rank: self._folder / f"{rank}.error" for rank in self.others(np)}
        errors = {r: json.loads(f.read_text()) for r, f in files.items() if f.exists()}
        wrong = [
            error["text"]
            for rank, error in errors.items()
            if not self._is_right(error["text"], culprits.get(rank, list(self.ranks)))
        ]
        return Trial(
            self.ranks,
            tuple((error["at"] - at) / 1e9 for error in errors.values()),
            tuple(error["text"] for error in errors.values()),
            len(files) - len(errors),
            len(wrong),
            bool(ends) and min(ends) < at,
        )

    def _is_right(self, text: str, culprits: Sequence[int | str]) -> bool:
        if self.cell.moment in (RESET, COMMIT):
            return text == WHOLE_TEXT_OF_STEP
        return names_one_of(text, culprits)

    def end(self) -> None:
        """What is stopped is killed, and the rest ends by itself."""
        if self.cell.does == "stop":
            for rank in self.ranks:
                with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                    os.kill(*self.processes([rank]), signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_LIMIT_S)
        jobs.end(self._process)


def launch_of(build: Path, cell: Cell, np: int, arguments: list[str]) -> Launch:
    launch = ours.python_job(build, np, RANK, arguments)
    if cell.hosts > 1:
        over = over_hosts(build, cell.hosts)
        begin = launch.command.index(sys.executable)
        command = [*over.launcher(np), *launch.command[begin:]]
        launch = Launch(command, {**launch.env, **over.env(np)})
    begin = launch.command.index("-np")
    return replace(launch, command=[*launch.command[:begin], *cell.flags, *launch.command[begin:]])


def words_of(cell: Cell, folder: str, ranks: tuple[int, ...], delay_s: float) -> list[str]:
    """The arguments of a rank."""
    does = ("wait" if ranks else "none") if cell.does in OF_HOSTS else cell.does
    failing = ",".join(map(str, ranks)) or "-"
    return [folder, does, cell.moment, failing, f"{delay_s:.4f}"]


@contextlib.contextmanager
def started(build: Path, cell: Cell, np: int, index: int, delay_s: float) -> Iterator[Job]:
    ranks = cell.failing(index, np)
    with tempfile.TemporaryDirectory() as name:
        words = words_of(cell, name, ranks, delay_s)
        job = Job(launch_of(build, cell, np, words), Path(name), cell, ranks)
        try:
            yield job
        finally:
            job.end()


def run_trial(build: Path, cell: Cell, np: int, index: int, delay_s: float) -> Trial:
    """On one host. Again, and sooner, if the fault comes late: on busy cores the operation for
    which ranks wait in shutdown may have ended."""
    for delay in (delay_s, delay_s / 2, 0.0):
        with started(build, cell, np, index, delay) as job:
            job.await_start(np)
            job.await_notes("error", job.others(np), ERROR_LIMIT_S)
            trial = job.judge(np, None, {})
        if not trial.is_late:
            break
    return trial


def run_on_hosts(build: Path, cell: Cell, np: int, delays: Sequence[float]) -> list[Trial]:
    """Several jobs at once, on two hosts. The launcher is on the first one."""
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(started(build, cell, np, index, delay))
            for index, delay in enumerate(delays)
        ]
        for job in running:
            job.await_start(np)
        time.sleep(max(delays))
        here, there = list(range(np // 2)), list(range(np // 2, np))
        stack.callback(end_all_on_hosts)
        failed_at = time.monotonic_ns()
        if cell.does == "cut":
            namespaces.cut(1)
        else:
            namespaces.kill_all(1 if cell.does == "kill_other" else 0)
        if (cell.does, cell.moment) == ("cut", COMMIT):
            stop_agents({process for job in running for process in job.processes(there)})
        sides = [[*here, namespaces.address(0)], [*there, namespaces.address(1)]]
        culprits = {rank: sides[1 if rank in here else 0] for rank in range(np)}
        for job in running:
            job.await_notes("error", job.others(np), ERROR_LIMIT_S)
        return [job.judge(np, failed_at, culprits) for job in running]


def stop_agents(ranks: set[int]) -> None:
    """Nothing comes from agents that are cut off. The replacement for ssh connects them by pipes,
    which no cut of a network reaches."""
    for process in set(namespaces.processes(1)) - ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)


def end_all_on_hosts() -> None:
    namespaces.cut(1, off=False)
    for host in range(2):
        namespaces.kill_all(host)


def measure(build: Path, cell: Cell, np: int, delays: Sequence[float]) -> list[Trial]:
    if cell.hosts > 1:
        parts = [delays[i : i + cell.together] for i in range(0, len(delays), cell.together)]
        return [trial for part in parts for trial in run_on_hosts(build, cell, np, part)]
    with ThreadPoolExecutor(cell.together) as several:
        numbered = enumerate(delays)
        return list(several.map(lambda one: run_trial(build, cell, np, *one), numbered))


# ---- the results -------------------------------------------------------------------------------


def rows_of(cell: Cell, np: int, trials: Sequence[Trial]) -> tuple[list[Row], list[Row]]:
    """Returns the rows, and those that are missing. The slowest rank of each trial counts."""
    work = Work(place_of(cell.hosts), cell.fault, cell.when, np)
    worst = [max(trial.seconds) * 1e6 for trial in trials if trial.seconds]
    bad = [trial for trial in trials if not trial.good]
    why = f"{len(bad)} of {len(trials)} trials without an error that names the rank, on all ranks"
    missing = [{**vars(work), "peer": results.OURS, "why": why}] if bad else []
    if not worst:
        return [], missing
    row = {"peer": results.OURS, **vars(work), "bytes": 0, "median_us": statistics.median(worst)}
    rounds = {str(number): us for number, us in enumerate(worst, 1)}
    goal = limit(TARGET, work, 0, cell.goal_s * 1e6)
    return [{**row, "min_us": min(worst), "rounds": rounds}, goal], missing


def measured(cell: Cell, arguments: argparse.Namespace) -> list[Trial]:
    draw = random.Random(f"{arguments.seed} {cell.text()}")
    delays = [draw.uniform(*cell.delay) for _ in range(arguments.trials)]
    trials = measure(arguments.ours.resolve(), cell, arguments.np, delays)
    for trial in trials:
        if not trial.good:
            print(f"{cell.text()}: rank {trial.ranks}: {trial.silent} silent: {trial.texts}")
    return trials


def main() -> int:
    arguments = parse_arguments()
    found = results.document("faults", arguments)
    cells = [cell for cell in CELLS if arguments.only in cell.text()]
    bad = 0
    for hosts in sorted({cell.hosts for cell in cells}):
        wired = namespaces.hosts(hosts, RATE) if hosts > 1 else contextlib.nullcontext()
        try:
            with wired:
                for cell in (cell for cell in cells if cell.hosts == hosts):
                    begin = time.monotonic()
                    trials = measured(cell, arguments)
                    rows, missing = rows_of(cell, arguments.np, trials)
                    found.replace([], rows, missing)
                    bad += len(missing)
                    if sys.stderr.isatty():
                        print(f"{cell.text()}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
        except Missing as reason:
            print(f"missing: {hosts} hosts: {reason}")
    if arguments.json:
        found.save(arguments.json)
    print(fault_table.table(found.rows))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

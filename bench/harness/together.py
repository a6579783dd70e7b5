"""Contests inside one job: the contestants are Python functions in the same processes, which run
by turns. The ranks use both horovod.torch and torch.distributed with Gloo."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import options, pictures, results
from harness.calls import exit_code
from harness.jobs import Launch, run
from harness.ours import python_job
from harness.results import Row, Work
from harness.rounds import TRIALS, Outcome, contenders, order, tell
from harness.tables import report

MOST_CALLS = 20000


@dataclass(frozen=True)
class Task:
    """One cell, with its contestants."""

    work: Work
    bytes: int
    #: by contestant: a function that does the work once. If it has a method `after`, that is called
    #: afterwards, and its time is not counted.
    contestants: Mapping[str, Callable[[], object]]
    is_correct: Callable[[str], bool] = lambda name: True
    least_calls: int = 2
    share: int = 1  #: number of operations in one call; times are per operation
    target_us: float | None = None  #: a fixed limit, if there is one


# ---- on each rank ------------------------------------------------------------------------------


class Ranks:
    """All ranks of the job, over Gloo, to coordinate the contests themselves."""

    def __init__(self, folder: str, asked: Collection[str] | None) -> None:
        """`asked`: names of the peers that take part; None: all."""
        import torch
        import torch.distributed as gloo

        import horovod.torch as hvd

        hvd.init()
        threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        torch.set_num_threads(threads)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        where = f"file://{folder}/gloo"
        gloo.init_process_group("gloo", where, rank=hvd.rank(), world_size=hvd.size())
        self.rank, self.size = hvd.rank(), hvd.size()
        self.asked = asked
        self._group_of_ours: object = None

    def group_of_ours(self) -> object:
        """Returns a process group of torch.distributed that runs on this project. Collective."""
        import torch.distributed as distributed

        if self._group_of_ours is None:
            self._group_of_ours = distributed.new_group(backend="hvd")
        return self._group_of_ours

    def has(self, name: str) -> bool:
        """Returns whether a contestant takes part. Ours always do."""
        return not results.is_peer(name) or options.is_asked_for(short_of(name), self.asked)

    def greatest(self, values: Sequence[float]) -> list[float]:
        import torch
        import torch.distributed as gloo

        tensor = torch.tensor(values, dtype=torch.float64)
        gloo.all_reduce(tensor, gloo.ReduceOp.MAX)
        found: list[float] = tensor.tolist()
        return found

    def end(self) -> None:
        import torch.distributed as gloo

        import horovod.torch as hvd

        gloo.barrier()
        gloo.destroy_process_group()
        hvd.shutdown()


def short_of(name: str) -> str:
    """Returns the name of a contestant's peer for --peers: the first word. The other words say how
    the peer is used."""
    return name.replace(",", " ").split()[0].lower()


def compete(ranks: Ranks, task: Task, rounds: int, seconds: float) -> None:
    """Runs all rounds of one task. Rank 0 prints one row per contestant and round. Results are
    checked in the first and the last round."""
    names = [name for name in task.contestants if ranks.has(name)]
    calls = {name: calls_within(ranks, task, name, seconds) for name in names}
    if task.target_us is not None and ranks.rank == 0:
        target = results.limit(results.TARGET, task.work, task.bytes, task.target_us)
        print(json.dumps(target), flush=True)
    printed: list[Row] = []  # equal on all ranks, so all omit the same contestants
    correct: dict[str, bool] = {}
    hopeful = set(names)
    for number in range(1, rounds + 1):
        for index in order(len(names), number):
            name = names[index]
            if name not in hopeful:
                continue
            times = times_of(ranks, task.contestants[name], calls[name])
            if number in (1, rounds):  # checking a gigabyte takes longer than reducing it
                correct[name] = ranks.greatest([not task.is_correct(name)])[0] == 0
            row = {"peer": name, "round": number, **vars(task.work), "bytes": task.bytes}
            scale = 1e6 / task.share
            row |= {"median_us": statistics.median(times) * scale, "min_us": min(times) * scale}
            printed.append(row | {"count": len(times), "correct": correct[name]})
            if ranks.rank == 0:
                print(json.dumps(printed[-1]), flush=True)
        if number == TRIALS:
            found = contenders(row for row in printed if results.is_peer(row["peer"]))
            hopeful = {name for name in names if not results.is_peer(name) or name in found}


def calls_within(ranks: Ranks, task: Task, name: str, seconds: float) -> int:
    """Returns the number of calls that take `seconds` including `after`, which may take much longer
    than the call if the call only starts an operation."""
    calls, took = task.least_calls, 0.0
    while True:
        begin = time.perf_counter()
        times_of(ranks, task.contestants[name], calls)
        took = ranks.greatest([time.perf_counter() - begin])[0]
        if took >= seconds / 8 or calls >= MOST_CALLS:
            return max(task.least_calls, min(MOST_CALLS, int(seconds * calls / took)))
        calls *= 4


def leave_out(ranks: Ranks, work: Work, names: Iterable[str], why: str) -> None:
    """Prints contestants as gaps in the table."""
    for name in sorted(names) if ranks.rank == 0 else []:
        print(json.dumps({"peer": name, **vars(work), "why": why}), flush=True)


def times_of(ranks: Ranks, work: Callable[[], object], calls: int) -> list[float]:
    """Returns the times of consecutive calls in seconds. The time of a call is that of the slowest
    rank."""
    after = getattr(work, "after", None)
    times = []
    ranks.greatest([0])  # all ranks begin at the same time
    before = time.perf_counter()
    for _ in range(calls):
        work()
        now = time.perf_counter()
        times.append(now - before)
        if after is not None:
            after()
            now = time.perf_counter()
        before = now
    return ranks.greatest(times)


# ---- the bench that starts them ----------------------------------------------------------------


def parse_worker(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--worker", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help="for a contestant in one round of one task")
    parser.add_argument("--limit", type=float, default=900, help="seconds that one job may take")
    arguments = options.parse(parser)
    if arguments.seconds is None:
        arguments.seconds = 0.1 if arguments.quick else 0.4
    return arguments


@dataclass(frozen=True)
class Job:
    """A job, and the rows that it should print."""

    launch: Launch
    works: Sequence[Work]
    rounds: int  #: number of the last round
    peer: str = results.OURS  #: its last row shows that a work is complete

    def run(self, limit_s: float) -> tuple[list[Row], list[Row]]:
        """Returns its rows, and its gaps if it fails. Rows that it printed before are kept."""
        ended = run(self.launch, limit_s)
        if not ended.why:
            return ended.rows, []
        done = [
            Work.of(row)
            for row in ended.rows
            if row["peer"] == self.peer and row.get("round") == self.rounds
        ]
        lacking = [work for work in self.works if work not in done] or [self.works[-1]]
        why = f"the job {ended.why}"
        return ended.rows, [{**vars(work), "peer": self.peer, "why": why} for work in lacking]


def nothing_beside(np: int) -> tuple[list[Job], list[Row]]:
    return [], []


@dataclass(frozen=True)
class Bench:
    name: str
    script: str  #: run by every rank, with --worker
    works: Callable[[int], Sequence[Work]]  #: of a job with this number of ranks, in order
    extra: Sequence[str] = ()  #: arguments of this script only
    #: other jobs with this number of ranks, and targets
    beside: Callable[[int], tuple[list[Job], list[Row]]] = nothing_beside


def contest(bench: Bench, np: int, folder: str, arguments: argparse.Namespace) -> Job:
    words = ["--worker", folder, "--rounds", str(arguments.rounds)]
    words += ["--seconds", str(arguments.seconds), *bench.extra]
    if arguments.peers is not None:
        words += ["--peers", *arguments.peers]
    launch = python_job(arguments.ours.resolve(), np, bench.script, words)
    return Job(launch, bench.works(np), arguments.rounds)


@dataclass
class Measured:
    """The results of all jobs with one number of ranks."""

    works: list[Work]
    rows: list[Row]
    gaps: list[Row]  #: failures and wrong results
    left_out: list[Row]  #: reported as missing by the jobs


def measure(bench: Bench, np: int, arguments: argparse.Namespace) -> Measured:
    """Runs a contest and the jobs beside it."""
    beside, limits = bench.beside(np)
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        jobs = [contest(bench, np, folder, arguments), *beside]
        ended = [job.run(arguments.limit) for job in jobs]
    printed = [row for rows, _ in ended for row in rows]
    gaps = unique(gap for _, lacking in ended for gap in lacking)
    rows: list[Row] = []
    works = list(dict.fromkeys([work for job in jobs for work in job.works]))
    for work in works:  # separately, since a wrong result concerns one work
        outcome = Outcome([row for row in printed if "round" in row and Work.of(row) == work])
        rows += results.collapse(outcome)
        gaps += [{**vars(work), "peer": peer, "why": why} for peer, why in outcome.missing.items()]
    rows += [*limits, *(row for row in printed if row["peer"] == results.TARGET)]
    rows += results.of_before(options.document_before(arguments), rows)
    return Measured(works, rows, gaps, [row for row in printed if "why" in row])


def unique(gaps: Iterable[Row]) -> list[Row]:
    """Removes duplicates: jobs of the same kind fail for the same reason."""
    found: list[Row] = []
    for gap in gaps:
        if gap not in found:
            found.append(gap)
    return found


def main(bench: Bench, arguments: argparse.Namespace) -> int:
    """Measures, prints, and writes the requested files; returns the exit code."""
    found = results.document(bench.name, arguments)
    measured: list[Work] = []
    gaps: list[Row] = []
    for np in arguments.np:
        tell(f"np {np}")
        all_of_np = measure(bench, np, arguments)
        found.replace(all_of_np.works, all_of_np.rows, [*all_of_np.gaps, *all_of_np.left_out])
        measured += all_of_np.works
        gaps += all_of_np.gaps
        if arguments.json:
            found.save(arguments.json)
    tell("")
    if arguments.plot:
        pictures.draw(found, measured, arguments.plot)
    print(report(found, measured))
    return exit_code(gaps)


def script_path(file: str) -> str:
    return str(Path(file).resolve())

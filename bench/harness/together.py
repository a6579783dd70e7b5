"""Contests inside one job: where every contestant is a few lines of Python in the same processes,
they take turns there. The ranks have horovod.torch and torch.distributed with Gloo side by side."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import options, pictures, results
from harness.jobs import Launch, run
from harness.ours import python_job
from harness.results import Row, Work
from harness.rounds import TRIALS, Outcome, contenders, order, tell
from harness.tables import report

MOST_CALLS = 20000


@dataclass(frozen=True)
class Task:
    """One cell, as its contestants do it."""

    work: Work
    bytes: int
    #: by contestant: does the work once. What has a method `after` is to be tidied up by it before
    #: the next time, while the clock stands still.
    contestants: Mapping[str, Callable[[], object]]
    is_correct: Callable[[str], bool] = lambda name: True
    least_calls: int = 2
    share: int = 1  #: how many operations are in one call; times are those of one
    target_us: float | None = None  #: what we want to stay below, where that is a fixed time


# ---- on each rank ------------------------------------------------------------------------------


class Ranks:
    """All ranks of the job, by Gloo, for what the contests themselves must agree on."""

    def __init__(self, folder: str) -> None:
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


def compete(ranks: Ranks, task: Task, rounds: int, seconds: float) -> None:
    """All rounds of one task; rank 0 prints a row for each contestant and round. Results are looked
    at in the first round and in the last."""
    names = list(task.contestants)
    calls = {name: calls_within(ranks, task, name, seconds) for name in names}
    if task.target_us is not None and ranks.rank == 0:
        target = results.limit(results.TARGET, task.work, task.bytes, task.target_us)
        print(json.dumps(target), flush=True)
    printed: list[Row] = []  # on every rank, so that all leave out the same
    correct: dict[str, bool] = {}
    hopeful = set(names)
    for number in range(1, rounds + 1):
        for index in order(len(names), number):
            name = names[index]
            if name not in hopeful:
                continue
            times = times_of(ranks, task.contestants[name], calls[name])
            if number in (1, rounds):  # to look at a gigabyte takes longer than to reduce it
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
    """As many as take so long with all that belongs to them, tidying up included: where an
    operation is only begun, to wait for its end may take a hundred times as long."""
    calls, took = task.least_calls, 0.0
    while True:
        begin = time.perf_counter()
        times_of(ranks, task.contestants[name], calls)
        took = ranks.greatest([time.perf_counter() - begin])[0]
        if took >= seconds / 8 or calls >= MOST_CALLS:
            return max(task.least_calls, min(MOST_CALLS, int(seconds * calls / took)))
        calls *= 4


def leave_out(ranks: Ranks, work: Work, names: Iterable[str], why: str) -> None:
    """Contestants that are a gap in the table."""
    for name in sorted(names) if ranks.rank == 0 else []:
        print(json.dumps({"peer": name, **vars(work), "why": why}), flush=True)


def times_of(ranks: Ranks, work: Callable[[], object], calls: int) -> list[float]:
    """Seconds of calls that follow each other; of each, the slowest rank's."""
    after = getattr(work, "after", None)
    times = []
    ranks.greatest([0])  # all begin together
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


def nothing_beside(np: int) -> tuple[list[Launch], list[Row]]:
    return [], []


def main(
    bench: str,
    script: str,
    extra: Sequence[str],
    arguments: argparse.Namespace,
    beside: Callable[[int], tuple[list[Launch], list[Row]]] = nothing_beside,
) -> int:
    """A job of `script --worker` for each number of ranks, and those `beside` it, with limits."""
    found = results.document(bench, arguments)
    measured: list[Work] = []
    for np in arguments.np:
        tell(f"np {np}")
        with tempfile.TemporaryDirectory(prefix="bench") as folder:
            words = ["--worker", folder, "--rounds", str(arguments.rounds)]
            words += ["--seconds", str(arguments.seconds), *extra]
            launch = python_job(arguments.ours.resolve(), np, script, words)
            jobs = [run(launch, arguments.limit)]
        others, limits = beside(np)
        jobs += [run(launch, arguments.limit) for launch in others]
        printed = [row for ended in jobs for row in ended.rows]
        limits += [row for row in printed if row["peer"] == results.TARGET]
        outcome = Outcome([row for row in printed if "round" in row])
        rows = results.collapse(outcome)
        works = list(dict.fromkeys(Work.of(row) for row in outcome.rows))  # wrong results, too
        missing: list[Row] = [
            {**vars(work), "peer": peer, "why": why}
            for peer, why in outcome.missing.items()
            for work in works
        ]
        missing += [row for row in printed if "why" in row]
        for why in dict.fromkeys(ended.why for ended in jobs if ended.why):
            print(f"missing: a job of {np} ranks {why}")
        rows += limits
        rows += results.of_before(options.document_before(arguments), rows)
        found.replace(works, rows, missing)
        measured += works
        if arguments.json:
            found.save(arguments.json)
    tell("")
    if arguments.plot and measured:
        pictures.draw(found, measured, arguments.plot)
    print(report(found, measured))
    return 0 if measured else 1


def script_path(file: str) -> str:
    return str(Path(file).resolve())

"""Measures how fast an elastic job recovers from a lost rank, and takes a new one.

    ./dev bench recovery [--trials 50] [--joins 20] [--np 4] [--hosts 1 2] [--transfers 5]
                         [--rounds 9] [--json FILE]

Each trial starts a job that trains a small network with torch and commits after each step. It kills
one rank with SIGKILL at a random moment, and waits until a replacement trains. Two times are taken:
from the kill to the next commit of the slowest survivor, and from the start of the replacement's
process to its first commit. The victim changes from trial to trial. In `--joins` further trials a
step takes 50 ms more, which is sleep. There it takes how long the survivors stall while the
replacement joins: the time between two commits of the slowest one, less the usual one.

Two hosts are network namespaces (needs root). Between them it also measures how long a large state
takes to reach a rank that replaces a killed one, up to its copy for the next restore. The bound is
the time of one plain connection for as many bytes over the same link, measured after each transfer.

It also measures what an elastic job costs while nothing fails: steps of 50 ms on one host, two
ranks, with a commit after each step or each 10th step in an elastic job, and without in any other
job. The jobs run in turn, `--rounds` times. Trials, joins, transfers or rounds can be 0.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import bounds, namespaces, ours, peers, recovery_table, results
from harness.elastic_jobs import Commits, born, made_elastic, started
from harness.jobs import Launch, Missing, run
from harness.places import PROGRAMS
from harness.recovery_table import MEDIAN, WORST
from harness.results import BOUND, OURS, TARGET, Row, Work, limit, row_of
from start import RATE, over_hosts, place_of

ALONE = "This benchmark has no peers and a single size: --peers, --sizes and --plot do not apply."
TRAINING = str(PROGRAMS / "elastic_training.py")
STEPS = str(PROGRAMS / "elastic_steps.py")
START_LIMIT_S = 300
RECOVERY_LIMIT_S = 60
JOIN_LIMIT_S = 300
#: Commits of all ranks before the kill, and of all ranks after the replacement has joined.
WARM_COMMITS = 20

RECOVERY, JOINER, STALL = (
    "kill -9 to the next commit",
    "start of a new process to its first commit",
    "stall of the others while it joins, steps of 50 ms",
)
LONG_STEP = ("--step-s", "0.05")
#: The goals in seconds, by kind and number of hosts. A stall is compared with a step.
MOST_S = {(RECOVERY, 1): 0.5, (RECOVERY, 2): 1.0, (JOINER, 1): 10.0, (JOINER, 2): 10.0}

TRANSFER, TO_JOINER = "state of 256 MiB", "to a rank that joins"
STATE_MIB = 256
TRANSFER_NP, TRANSFER_RATE = 2, "1gbit"  #: on two hosts
#: Commits before the kill, each of which copies the state.
FEW_COMMITS = 3

COST = "step of 50 ms"
COST_NP = 2
PLAIN, EACH, TENTH = "not elastic", "elastic, commit after each", "elastic, commit after each 10th"
EVERY = 10  #: steps are timed in blocks of this size
STEPS_OF_A_JOB = 100
STEPS_LIMIT_S = 120
#: The goal for a step of an elastic job, as a multiple of one that is not.
MOST_COST = 1.01


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=ALONE)
    parser.add_argument("--np", type=int, default=4)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--joins", type=int, default=20, help="trials with longer steps")
    parser.add_argument("--transfers", type=int, default=5, help="of a large state to a new rank")
    parser.add_argument("--rounds", type=int, default=9, help="of the steps while nothing fails")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--ours", type=Path, metavar="BUILD", default=peers.default_build())
    return parser.parse_args()


# ---- one trial ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    recovery: float
    joiner: float
    stall: float  #: the longest of a survivor
    step: float  #: the median time between two commits before the kill


def judge(commits: Commits, victim: int, killed_at: float, born_at: dict[int, float]) -> Trial:
    """Returns the times of a trial. `born_at`: the start of the processes that joined."""
    survivors = {pid: noted for pid, noted in commits.items() if pid not in (victim, *born_at)}
    last = max(commit.generation for commit in commits[victim])
    recovered = [
        next(commit.at for commit in noted if commit.generation > last)
        for noted in survivors.values()
    ]
    joined = {pid: commits[pid][0] for pid in born_at}
    first = min(commit.generation for commit in joined.values())
    gaps = [
        after.at - before.at
        for noted in survivors.values()
        for before, after in itertools.pairwise(noted)
        if before.generation < first <= after.generation and before.generation > last
    ]
    before_kill = [commit.at for commit in commits[victim]]
    step = statistics.median(b - a for a, b in itertools.pairwise(before_kill))
    return Trial(
        max(recovered) - killed_at,
        max(commit.at - born_at[pid] for pid, commit in joined.items()),
        max(gaps) - step,
        step,
    )


def launch_of(build: Path, hosts: int, np: int, words: Sequence[str]) -> Launch:
    launch = ours.python_job(build, np, TRAINING, words)
    if hosts > 1:
        over = over_hosts(build, hosts)
        begin = launch.command.index(sys.executable)
        command = [*over.launcher(np), *launch.command[begin:]]
        launch = Launch(command, {**launch.env, **over.env(np)})
    return made_elastic(launch, np)


@dataclass(frozen=True)
class Trials:
    """Jobs of `np` ranks on `hosts`, whose program gets `words`."""

    build: Path
    hosts: int
    np: int
    words: tuple[str, ...] = ()

    def launch(self, folder: str) -> Launch:
        return launch_of(self.build, self.hosts, self.np, [folder, *self.words])


def run_trial(of: Trials, victim: int, delay_s: float) -> Trial:
    np = of.np
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with started(of.launch(name), folder) as job:
            before = job.await_commits(WARM_COMMITS, np, 0, START_LIMIT_S)
            (killed,) = (pid for pid, noted in before.items() if noted[-1].rank == victim)
            time.sleep(delay_s)
            killed_at = time.monotonic()
            os.kill(killed, signal.SIGKILL)
            job.await_commits(1, np - 1, 1, RECOVERY_LIMIT_S)
            after = job.await_commits(WARM_COMMITS, np, 1, JOIN_LIMIT_S)
            born_at = {pid: born(pid) for pid in after.keys() - before.keys()}
        return judge(after, killed, killed_at, born_at)


# ---- a large state -----------------------------------------------------------------------------


def transfer_us(folder: Path) -> float:
    """Returns the time of the last sync, of its slowest rank."""
    lines = [line.split() for file in folder.glob("*.syncs") for line in file.open()]
    syncs = [[int(word) for word in words] for words in lines]
    last = max(generation for _, _, generation in syncs)
    begins, ends = zip(*(times for *times, generation in syncs if generation == last), strict=True)
    return (max(ends) - min(begins)) / 1e3


def run_transfer(build: Path) -> float:
    """Returns the us until a rank that joins has the state."""
    np = TRANSFER_NP
    jobs = Trials(build, 2, np, ("--state-mib", str(STATE_MIB)))
    with tempfile.TemporaryDirectory() as name:
        with started(jobs.launch(name), Path(name)) as job:
            before = job.await_commits(FEW_COMMITS, np, 0, START_LIMIT_S)
            (killed,) = (pid for pid, noted in before.items() if noted[-1].rank == np - 1)
            os.kill(killed, signal.SIGKILL)
            job.await_commits(1, np, 1, JOIN_LIMIT_S)
        return transfer_us(Path(name))


def plain_us(work: Work) -> float:
    """Returns the us of one connection for as many bytes, in one direction."""
    size = STATE_MIB << 20
    ended = bounds.over_wire(replace(work, kind="broadcast"), [size], 2)
    if ended.why or not ended.rows:
        raise Missing(f"the time of one connection: {ended.why}")
    return float(ended.rows[0]["median_us"])


def transfer_rows(work: Work, times: Sequence[float], plain: Sequence[float]) -> list[Row]:
    size = STATE_MIB << 20
    return [row_of(OURS, work, size, times), row_of(BOUND, work, size, plain)]


def transfers(build: Path, count: int) -> tuple[list[Row], str]:
    """Returns the rows, and a line of text."""
    work = Work(f"{place_of(2)}, {TRANSFER_RATE}", TRANSFER, TO_JOINER, TRANSFER_NP)
    bounds.program()
    times, plain = [], []
    with namespaces.hosts(2, TRANSFER_RATE):
        for _ in range(count):
            times.append(run_transfer(build))
            plain.append(plain_us(work))
    share = statistics.median(plain) / statistics.median(times)
    seconds = ", ".join(f"{us / 1e6:.2f}" for us in times)
    return transfer_rows(work, times, plain), f"{work}: {seconds} s; bound / ours {share:.2f}"


# ---- while nothing fails -----------------------------------------------------------------------


def step_us(launch: Launch) -> float:
    """Returns the median step of rank 0."""
    ended = run(launch, STEPS_LIMIT_S)
    if ended.why:
        raise SystemExit(f"{STEPS}: {ended.why}")
    return float(ended.rows[0]["step_us"])


def steps(build: Path, rounds: int) -> dict[str, list[float]]:
    """Returns the times of the rounds in us, of jobs that are elastic and not."""

    def job(every: int) -> Launch:
        return ours.python_job(build, COST_NP, STEPS, [str(STEPS_OF_A_JOB), str(every)])

    launches = {
        PLAIN: job(EVERY),
        EACH: made_elastic(job(1), COST_NP),
        TENTH: made_elastic(job(EVERY), COST_NP),
    }
    found: dict[str, list[float]] = {what: [] for what in launches}
    for number in range(rounds):
        for what in sorted(launches, reverse=number % 2 == 1):
            found[what].append(step_us(launches[what]))
    return found


def cost_rows(found: dict[str, list[float]]) -> list[Row]:
    rows = []
    for what, us in found.items():
        made = Work(place_of(1), COST, what, COST_NP)
        rounds = {str(number): value for number, value in enumerate(us, 1)}
        row = {"peer": results.OURS, **vars(made), "bytes": 0, "rounds": rounds}
        rows.append({**row, "median_us": statistics.median(us), "min_us": min(us)})
    most = MOST_COST * statistics.median(found[PLAIN])
    return [*rows, limit(TARGET, Work(place_of(1), COST, TENTH, COST_NP), 0, most)]


def cost_text(found: dict[str, list[float]]) -> str:
    plain = found[PLAIN]
    text = (
        f"while nothing fails, np {COST_NP}, {len(plain)} rounds: a step takes "
        f"{statistics.median(plain) / 1e3:.2f} ms"
    )
    for what in (TENTH, EACH):
        times = found[what]
        more = [e / p - 1 for e, p in zip(times, plain, strict=True)]
        text += (
            f"; {what}: {statistics.median(times) / 1e3:.2f} ms "
            f"({statistics.median(times) / statistics.median(plain) - 1:+.2%}; "
            f"rounds from {min(more):+.2%} to {max(more):+.2%})"
        )
    return text


# ---- the results -------------------------------------------------------------------------------


def recovery_rows(hosts: int, np: int, trials: Sequence[Trial]) -> list[Row]:
    times = {RECOVERY: [t.recovery for t in trials], JOINER: [t.joiner for t in trials]}
    rows: list[Row] = []
    for kind, seconds in times.items():
        rows += rows_of(Work(place_of(hosts), kind, "", np), seconds, MOST_S[kind, min(hosts, 2)])
    return rows


def stall_rows(hosts: int, np: int, trials: Sequence[Trial]) -> list[Row]:
    """The others are to stall for less than one step."""
    step = statistics.median(trial.step for trial in trials)
    return rows_of(Work(place_of(hosts), STALL, "", np), [trial.stall for trial in trials], step)


def rows_of(work: Work, seconds: Sequence[float], most_s: float) -> list[Row]:
    """Returns the median and the worst. Each trial is a round."""
    us = [one * 1e6 for one in seconds]
    rows: list[Row] = []
    for what, value in ((MEDIAN, statistics.median(us)), (WORST, max(us))):
        made = replace(work, type=what)
        rows.append({**row_of(OURS, made, 0, us), "median_us": value})
        rows.append(limit(TARGET, made, 0, most_s * 1e6))
    return rows


def measure(of: Trials, count: int, seed: int) -> list[Trial]:
    draw = random.Random(seed)
    trials = []
    with namespaces.hosts(of.hosts, RATE) if of.hosts > 1 else contextlib.nullcontext():
        for index in range(count):
            trials.append(run_trial(of, index % of.np, draw.uniform(0.0, 0.3)))
            if sys.stderr.isatty():
                print(f"\r{index + 1} of {count}", end="", file=sys.stderr, flush=True)
    return trials


def measure_cost(arguments: argparse.Namespace) -> list[Row]:
    cost = steps(arguments.ours.resolve(), arguments.rounds)
    print(cost_text(cost), flush=True)
    return cost_rows(cost)


def measure_transfers(arguments: argparse.Namespace) -> list[Row]:
    rows, text = transfers(arguments.ours.resolve(), arguments.transfers)
    print(text, flush=True)
    return rows


def measure_recovery(hosts: int, arguments: argparse.Namespace) -> list[Row]:
    jobs = Trials(arguments.ours.resolve(), hosts, arguments.np)
    trials = measure(jobs, arguments.trials, arguments.seed)
    return told(recovery_rows(hosts, arguments.np, trials), trials)


def measure_stall(hosts: int, arguments: argparse.Namespace) -> list[Row]:
    jobs = Trials(arguments.ours.resolve(), hosts, arguments.np, LONG_STEP)
    trials = measure(jobs, arguments.joins, arguments.seed)
    return told(stall_rows(hosts, arguments.np, trials), trials)


def told(rows: list[Row], trials: Sequence[Trial]) -> list[Row]:
    step = statistics.median(trial.step for trial in trials)
    print(f"{len(trials)} trials, a step of {step * 1e3:.1f} ms\n")
    print(recovery_table.table(rows), flush=True)
    return rows


Part = tuple[str, Callable[[], list[Row]]]


def parts(arguments: argparse.Namespace) -> list[Part]:
    """Returns what is to be measured, with its name."""
    found: list[Part] = []
    if arguments.rounds:
        found.append(("steps", functools.partial(measure_cost, arguments)))
    if arguments.transfers and max(arguments.hosts) > 1:
        found.append(("transfers", functools.partial(measure_transfers, arguments)))
    for hosts in arguments.hosts:
        if arguments.trials:
            found.append((place_of(hosts), functools.partial(measure_recovery, hosts, arguments)))
        if arguments.joins:
            found.append((place_of(hosts), functools.partial(measure_stall, hosts, arguments)))
    return found


def main() -> int:
    arguments = parse_arguments()
    found = results.document("recovery", arguments)
    code = 1
    for name, measured in parts(arguments):
        try:
            rows = measured()
        except Missing as reason:
            print(f"missing: {name}: {reason}")
            continue
        found.replace([], rows, [])
        if arguments.json:
            found.save(arguments.json)
        code = 0
    return code


if __name__ == "__main__":
    sys.exit(main())

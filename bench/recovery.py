"""Measures how fast an elastic job recovers from a lost rank, and takes a new one.

    ./dev bench recovery [--trials 50] [--np 4] [--hosts 1 2] [--rounds 9] [--json FILE]

Each trial starts a job that trains a small network with torch and commits after each step. It kills
one rank with SIGKILL at a random moment, and waits until a replacement trains. Three times are
taken: from the kill to the next commit of the slowest survivor; from the start of the replacement's
process to its first commit; and the longest time between two commits of a survivor while the
replacement joins. The victim changes from trial to trial.

Two hosts are network namespaces (needs root).

Then it measures what an elastic job costs while nothing fails: steps of 50 ms on one host, two
ranks, with a commit after each step or each 10th step in an elastic job, and without in any other
job. The jobs run in turn, `--rounds` times. Trials or rounds can be 0.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness import jobs, namespaces, ours, peers, results
from harness.jobs import Launch, Missing, end, run
from harness.places import PROGRAMS
from harness.results import TARGET, Row, Work, limit
from start import RATE, over_hosts, place_of

ALONE = "This benchmark has no peers and a single size: --peers, --sizes and --plot do not apply."
TRAINING = str(PROGRAMS / "elastic_training.py")
STEPS = str(PROGRAMS / "elastic_steps.py")
START_LIMIT_S = 300
RECOVERY_LIMIT_S = 60
JOIN_LIMIT_S = 300
#: Commits of all ranks before the kill, and of all ranks after the replacement has joined.
WARM_COMMITS = 20
POLL_S = 0.005

RECOVERY, JOINER, STALL = (
    "kill -9 to the next commit",
    "start of a new process to its first commit",
    "time between two commits while it joins",
)
#: The goals in seconds, by kind and number of hosts. A stall is compared with nothing.
MOST_S = {(RECOVERY, 1): 0.5, (RECOVERY, 2): 1.0, (JOINER, 1): 10.0, (JOINER, 2): 10.0}

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
    parser.add_argument("--rounds", type=int, default=9, help="of the steps while nothing fails")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--ours", type=Path, metavar="BUILD", default=peers.default_build())
    return parser.parse_args()


# ---- one trial ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commit:
    at: float  #: seconds of the monotonic clock
    generation: int
    rank: int
    size: int


Commits = dict[int, list[Commit]]  #: by process


def commits_in(folder: Path) -> Commits:
    found: Commits = {}
    for file in folder.glob("*.commits"):
        *lines, _ = file.read_text().split("\n")  # the last one may be half-written
        numbers = [[int(word) for word in line.split()] for line in lines]
        found[int(file.stem)] = [Commit(at / 1e9, *rest) for at, *rest in numbers]
    return found


@dataclass(frozen=True)
class Trial:
    recovery: float
    joiner: float
    stall: float
    step: float  #: the median time between two commits before the kill

    def seconds(self, kind: str) -> float:
        return {RECOVERY: self.recovery, JOINER: self.joiner, STALL: self.stall}[kind]


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
    stalls = [
        after.at - before.at
        for noted in survivors.values()
        for before, after in itertools.pairwise(noted)
        if before.generation < first <= after.generation and before.generation > last
    ]
    before_kill = [commit.at for commit in commits[victim]]
    steps = [b - a for a, b in itertools.pairwise(before_kill)]
    return Trial(
        max(recovered) - killed_at,
        max(commit.at - born_at[pid] for pid, commit in joined.items()),
        max(stalls),
        statistics.median(steps),
    )


def born(pid: int) -> float:
    """Returns when a process was started, by the monotonic clock, to 10 ms."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    since_boot = int(words[19]) / os.sysconf("SC_CLK_TCK")
    return since_boot + time.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME)


class Job:
    """An elastic job whose ranks note their commits in `folder`."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        self.folder = folder
        with (folder / "output").open("wb") as output:
            self.process = jobs.started(launch, output, output)

    def await_commits(self, count: int, size: int, generation: int, limit_s: float) -> Commits:
        """Waits until `size` processes have `count` commits each as ranks of a job of that size, in
        `generation` or later."""
        deadline = time.monotonic() + limit_s
        while True:
            found = commits_in(self.folder)
            of_size = [
                pid
                for pid, noted in found.items()
                if sum(c.size == size and c.generation >= generation for c in noted) >= count
            ]
            if len(of_size) == size:
                return found
            if time.monotonic() > deadline or self.process.poll() is not None:
                said = (self.folder / "output").read_text()
                where = f"generation {generation} or later"
                raise SystemExit(f"no {size} ranks with {count} commits in {where}: {said}")
            time.sleep(POLL_S)


@contextlib.contextmanager
def started(launch: Launch, folder: Path) -> Iterator[Job]:
    job = Job(launch, folder)
    try:
        yield job
    finally:
        end(job.process)


def launch_of(build: Path, hosts: int, np: int, folder: Path) -> Launch:
    launch = ours.python_job(build, np, TRAINING, [str(folder)])
    if hosts > 1:
        over = over_hosts(build, hosts)
        begin = launch.command.index(sys.executable)
        command = [*over.launcher(np), *launch.command[begin:]]
        launch = Launch(command, {**launch.env, **over.env(np)})
    return made_elastic(launch, np)


def made_elastic(launch: Launch, np: int) -> Launch:
    begin = launch.command.index("-np")
    elastic = ["--min-np", str(np // 2)]
    command = [*launch.command[:begin], *elastic, *launch.command[begin:]]
    return replace(launch, command=command)


def run_trial(build: Path, hosts: int, np: int, victim: int, delay_s: float) -> Trial:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with started(launch_of(build, hosts, np, folder), folder) as job:
            before = job.await_commits(WARM_COMMITS, np, 0, START_LIMIT_S)
            (killed,) = (pid for pid, noted in before.items() if noted[-1].rank == victim)
            time.sleep(delay_s)
            killed_at = time.monotonic()
            os.kill(killed, signal.SIGKILL)
            job.await_commits(1, np - 1, 1, RECOVERY_LIMIT_S)
            after = job.await_commits(WARM_COMMITS, np, 1, JOIN_LIMIT_S)
            born_at = {pid: born(pid) for pid in after.keys() - before.keys()}
        return judge(after, killed, killed_at, born_at)


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


def rows_of(hosts: int, np: int, trials: Sequence[Trial]) -> list[Row]:
    """Each trial is a round."""
    rows: list[Row] = []
    for kind in (RECOVERY, JOINER, STALL):
        us = [trial.seconds(kind) * 1e6 for trial in trials]
        rounds = {str(number): value for number, value in enumerate(us, 1)}
        for what, value in (("median", statistics.median(us)), ("worst", max(us))):
            made = Work(place_of(hosts), kind, what, np)
            row = {"peer": results.OURS, **vars(made), "bytes": 0, "median_us": value}
            rows.append({**row, "min_us": min(us), "rounds": rounds})
            if most := MOST_S.get((kind, hosts)):
                rows.append(limit(TARGET, made, 0, most * 1e6))
    return rows


def table(hosts: int, np: int, trials: Sequence[Trial]) -> str:
    step = statistics.median(trial.step for trial in trials)
    lines = [f"{place_of(hosts)}, np {np}, {len(trials)} trials, a step of {step * 1e3:.1f} ms"]
    lines += ["", "| time | median | worst |", "|---|---|---|"]
    for kind in (RECOVERY, JOINER, STALL):
        seconds = [trial.seconds(kind) for trial in trials]
        median, worst = statistics.median(seconds), max(seconds)
        lines.append(f"| {kind} | {median * 1e3:.0f} ms | {worst * 1e3:.0f} ms |")
    return "\n".join(lines)


def measure(hosts: int, arguments: argparse.Namespace) -> list[Trial]:
    draw = random.Random(arguments.seed)
    build, np = arguments.ours.resolve(), arguments.np
    trials = []
    for index in range(arguments.trials):
        trials.append(run_trial(build, hosts, np, index % np, draw.uniform(0.0, 0.3)))
        if sys.stderr.isatty():
            print(f"\r{index + 1} of {arguments.trials}", end="", file=sys.stderr, flush=True)
    return trials


def main() -> int:
    arguments = parse_arguments()
    found = results.document("recovery", arguments)
    code = 1
    if arguments.rounds:
        cost = steps(arguments.ours.resolve(), arguments.rounds)
        found.replace([], cost_rows(cost), [])
        print(cost_text(cost), flush=True)
        code = 0
        if arguments.json:
            found.save(arguments.json)
    for hosts in arguments.hosts if arguments.trials else ():
        wired = namespaces.hosts(hosts, RATE) if hosts > 1 else contextlib.nullcontext()
        try:
            with wired:
                trials = measure(hosts, arguments)
        except Missing as reason:
            print(f"missing: {hosts} hosts: {reason}")
            continue
        found.replace([], rows_of(hosts, arguments.np, trials), [])
        if arguments.json:
            found.save(arguments.json)
        print(table(hosts, arguments.np, trials), flush=True)
        code = 0
    return code


if __name__ == "__main__":
    sys.exit(main())

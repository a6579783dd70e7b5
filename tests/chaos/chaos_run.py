"""Trains a small network with real processes while random ranks are killed, stopped and removed.

    ./dev chaos --minutes N [--np 4] [--min-np 1] [--every 3] [--seed 1] [--hosts 2]

Afterwards it compares the parameters, bit for bit, with those of one process that repeats the
committed steps, counts the samples of every epoch, and prints the recovery times. It exits with 1
if anything was lost, and leaves no process behind.

A seed chooses the faults. When they happen depends on the machine, so a run cannot be repeated
exactly.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import chaos_report
import torch
from chaos_checks import chain, indices_of, lost_commits, miscounted
from chaos_faults import HEARTBEAT_S, ON_ONE_HOST, WEIGHTS, Fault, Handles, Injector
from chaos_hosts import OneHost, hosts
from chaos_model import SAMPLES, replayed
from chaos_notes import Process, Reader, Step

SCRIPT = Path(__file__).with_name("chaos_rank.py")
START_LIMIT_S = 300
END_LIMIT_S = 120
#: How long ranks wait for one that is stopped when another one was lost, at least 1 s.
SURVIVOR_S = 2
LONGEST_STOP_S = 3.0
_PR_SET_PDEATHSIG = 1


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long faults go on")
    parser.add_argument("--np", type=int, default=4, help="ranks")
    parser.add_argument("--min-np", type=int, default=1, help="with fewer ranks the job waits")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two faults")
    parser.add_argument("--least-faults", type=int, default=0, help="at least as many")
    goodput = "below it, the run fails"
    parser.add_argument("--least-goodput", type=float, default=0, metavar="PERCENT", help=goodput)
    parser.add_argument("--seed", type=int, default=1, help="chooses the faults")
    parser.add_argument("--hosts", type=int, choices=[1, 2], default=1, help="2: as namespaces")
    parser.add_argument("--kinds", nargs="+", choices=WEIGHTS, help="of faults; all by default")
    parser.add_argument("--step-ms", type=float, default=20.0, help="sleep of each step")
    parser.add_argument("--commit-every", type=int, default=1, help="steps between two commits")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the notes are written")
    options = parser.parse_args(words)
    possible = WEIGHTS if options.hosts == 2 else ON_ONE_HOST
    options.kinds = options.kinds or list(possible)
    if set(options.kinds) - set(possible):
        parser.error(f"with --hosts 1, kinds are {', '.join(possible)}")
    return options


@dataclass
class Result:
    processes: list[Process]
    faults: list[Fault]
    steps: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def command_of(options: argparse.Namespace, place: OneHost, folder: Path) -> list[str]:
    """A host is used again 1 s after a failure."""
    launcher = os.environ.get("HOROVODRUN") or str(Path(sys.executable).with_name("horovodrun"))
    np, least = str(options.np), str(options.min_np)
    limits = ["-np", np, "--min-np", least, "-H", place.hosts_of(options.np)]
    limits += ["--survivor-timeout", str(SURVIVOR_S), "--heartbeat-seconds", str(HEARTBEAT_S)]
    limits += ["--blacklist-cooldown-range", "1", "1"]
    numbers = [str(options.step_ms), str(options.commit_every)]
    script = [sys.executable, str(SCRIPT), str(folder), *numbers]
    return place.command([launcher, *limits, *script])


def end_with_parent() -> None:
    """Runs in the launcher before it starts: it gets SIGTERM when this process ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def started(
    options: argparse.Namespace, place: OneHost, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The launcher. It has ended afterwards."""
    settings = {"HOROVOD_DETERMINISTIC": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "output").open("wb") as output:
        job = subprocess.Popen(
            command_of(options, place, folder),
            env={**os.environ, **settings, **place.environment()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
    try:
        yield job
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if job.poll() is None:
                job.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.wait(20)


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def run(options: argparse.Namespace, folder: Path) -> Result:
    """Runs the job to its end, and checks what it has left."""
    with hosts(options.hosts) as place:
        result = run_at(place, options, folder)
        result.problems += [f"process {pid} is left on a host" for pid in place.left()]
    if not result.problems:
        check(result, folder, options.least_goodput)
    return result


def run_at(place: OneHost, options: argparse.Namespace, folder: Path) -> Result:
    reader = Reader(folder)
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(started(options, place, folder))
        handles = stack.enter_context(contextlib.closing(Handles(job.pid, place)))
        draw, seconds = random.Random(options.seed), LONGEST_STOP_S
        injector = Injector(reader, handles, place, draw, options.every, seconds, options.kinds)
        has_begun = wait_until(
            lambda: job.poll() is not None or sum(bool(one.commits) for one in reader.read()) > 1,
            START_LIMIT_S,
        )
        seconds, least = options.minutes * 60, options.least_faults
        injector.run(seconds, least, lambda: has_begun and job.poll() is None)
        faults = "".join(f"{fault}\n" for fault in injector.faults)
        (folder / "faults").write_text(faults)
        (folder / "stop").touch()
        wait_until(lambda: job.poll() is not None, END_LIMIT_S)
        result = Result(reader.read(), injector.faults)
        if job.poll() != 0:
            how = "hung" if job.poll() is None else f"ended with {job.poll()}"
            result.problems.append(f"the job {how}: {tail(folder / 'output')}")
            return result
        result.problems += [f"process {pid} is left" for pid in handles.left()]
    return result


def tail(file: Path) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-12:])


def check(result: Result, folder: Path, least_goodput: float) -> None:
    result.steps, flaws = chain(result.processes)
    result.problems += flaws
    if not result.steps:
        result.problems.append("no step has led to the end")
        return
    result.problems += lost_commits(result.processes, result.steps)
    result.problems += miscounted(result.processes, result.steps, SAMPLES)
    result.problems += chaos_report.shortfalls(result.steps, result.faults, least_goodput)
    expected = replayed(indices_of(result.steps))
    for path in sorted(folder.glob("*.end")):
        if path.read_bytes() != expected:
            result.problems.append(f"rank {path.stem} ends with other bits than one process")


def main(words: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    torch.set_num_threads(1)  # as the ranks
    options = parse_arguments(words)
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        result = run(options, folder.resolve())
    if result.steps:
        print(chaos_report.table(result.processes, result.steps, result.faults))
    for problem in result.problems:
        print(f"problem: {problem}")
    print("problems: " + str(len(result.problems)), flush=True)
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measures how long survivors wait for the error after a rank is killed during an allreduce.

    ./dev bench faults [--trials 50] [--np 4] [--json FILE]

Each trial starts a job that sums 64 MiB again and again, kills one rank with SIGKILL at a random
moment, and takes the time from the kill to the exception in Python on each survivor. The victim
changes from trial to trial. The workers use the runtime without a framework, since importing one
takes longer than the trial.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import ours, peers, results
from harness.results import Work

ALONE = "This benchmark has no peers and a single size: --peers, --sizes and --plot do not apply."
PAYLOAD_BYTES = 64 << 20
START_LIMIT_S = 60
END_LIMIT_S = 60


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=ALONE)
    parser.add_argument("--np", type=int, default=4)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--ours", type=Path, metavar="BUILD", default=peers.default_build())
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def work(folder: Path) -> None:
    """Runs on one rank: reduces until it fails, and records the time and text of the error."""
    from horovod import _core

    _core.init()
    rank = _core.world().rank
    data = array.array("f", bytes(PAYLOAD_BYTES))
    address, count = data.buffer_info()
    tensor = address, (count,), _core.DTYPES["float32"], data
    try:
        for index in range(1 << 30):
            operation = _core.Operation(_core.ALLREDUCE)
            handle = _core.submit_tensors(operation, "bench", tensor, tensor, None)
            _core.wait(handle)
            _core.free(handle)
            if index == 2:
                (folder / f"pid.{rank}.new").write_text(str(os.getpid()))
                (folder / f"pid.{rank}.new").rename(folder / f"pid.{rank}")
    except Exception as error:
        seen = time.monotonic_ns()
        (folder / f"error.{rank}").write_text(json.dumps({"at": seen, "text": str(error)}))
        raise


@dataclass(frozen=True)
class Trial:
    victim: int
    seconds: list[float]  #: from the kill to the error, on each survivor that had one
    silent: int  #: survivors without an error
    misnamed: int  #: survivors whose error does not name the victim

    @property
    def good(self) -> bool:
        return self.silent == 0 and self.misnamed == 0


def await_pids(job: subprocess.Popen[bytes], folder: Path, np: int) -> list[int]:
    """Returns the processes of all ranks, once each has done a few rounds."""
    files = [folder / f"pid.{rank}" for rank in range(np)]
    deadline = time.monotonic() + START_LIMIT_S
    while not all(file.exists() for file in files):
        if time.monotonic() > deadline or job.poll() is not None:
            raise SystemExit(f"the job did not start:\n{(folder / 'output').read_text()}")
        time.sleep(0.01)
    return [int(file.read_text()) for file in files]


def judge(folder: Path, np: int, victim: int, killed_at: int) -> Trial:
    survivors = [rank for rank in range(np) if rank != victim]
    files = [folder / f"error.{rank}" for rank in survivors]
    errors = [json.loads(file.read_text()) for file in files if file.exists()]
    return Trial(
        victim,
        [(error["at"] - killed_at) / 1e9 for error in errors],
        len(survivors) - len(errors),
        sum(f"rank {victim}" not in error["text"] for error in errors),
    )


def run_trial(build: Path, np: int, victim: int, delay_s: float) -> Trial:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        launch = ours.python_job(build, np, __file__, ["--worker", name])
        env = {**os.environ, **launch.env}
        with (folder / "output").open("wb") as output:
            job = subprocess.Popen(launch.command, env=env, stdout=output, stderr=output)
            try:
                pids = await_pids(job, folder, np)
                time.sleep(delay_s)
                killed_at = time.monotonic_ns()
                os.kill(pids[victim], signal.SIGKILL)
                job.wait(END_LIMIT_S)
            finally:
                job.kill()
                job.wait()
        return judge(folder, np, victim, killed_at)


def table(np: int, trials: list[Trial]) -> str:
    seconds = sorted(second for trial in trials for second in trial.seconds)
    worst = [max(trial.seconds, default=float("inf")) for trial in trials]
    rows = {
        "trials": f"{len(trials)}, np {np}, {PAYLOAD_BYTES >> 20} MiB float32",
        "median of all survivors": f"{statistics.median(seconds) * 1e3:.1f} ms",
        "median of the slowest survivor": f"{statistics.median(worst) * 1e3:.1f} ms",
        "worst": f"{max(worst) * 1e3:.1f} ms",
        "survivors without an error": str(sum(trial.silent for trial in trials)),
        "errors that do not name the victim": str(sum(trial.misnamed for trial in trials)),
    }
    return "| kill -9 to the error | |\n|---|---|\n" + "\n".join(
        f"| {name} | {value} |" for name, value in rows.items()
    )


def save(arguments: argparse.Namespace, trials: list[Trial]) -> None:
    """The slowest survivor of each trial counts, as one round."""
    worst = [max(trial.seconds) * 1e6 for trial in trials if trial.seconds]
    rounds = {str(number): us for number, us in enumerate(worst, 1)}
    rows = []
    for what, us in (("median", statistics.median(worst)), ("worst", max(worst))):
        work = Work("one host", "kill -9 to the error", what, arguments.np)
        row = {"peer": results.OURS, **vars(work), "bytes": 0, "median_us": us}
        rows.append({**row, "min_us": min(worst), "rounds": rounds})
    bad = sum(not trial.good for trial in trials)
    why = f"{bad} of {len(trials)} trials without an error that names the victim"
    found = results.document("faults", arguments)
    missing = [{**vars(work), "peer": results.OURS, "why": why}] if bad else []
    found.replace([], rows, missing)
    found.save(arguments.json)


def main() -> None:
    arguments = parse_arguments()
    if arguments.worker:
        work(arguments.worker)
        return
    draw = random.Random(arguments.seed)
    trials = []
    for index in range(arguments.trials):
        build = arguments.ours.resolve()
        trials.append(run_trial(build, arguments.np, index % arguments.np, draw.uniform(0.05, 0.3)))
        if sys.stderr.isatty():
            print(f"\r{index + 1} of {arguments.trials}", end="", file=sys.stderr, flush=True)
    if arguments.json:
        save(arguments, trials)
    print(table(arguments.np, trials))
    if not all(trial.good for trial in trials):
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Measures the steps of trainers over our backend of torch.distributed, and over Gloo.

    ./dev bench trainers [--np 2] [--rounds 9] [--steps 60] [--json FILE]

Each job trains 21 layers (5.3 million parameters) by Lightning, Accelerate or Transformers, which
wrap it into DistributedDataParallel. The jobs of a round run in turn. A time is the median over the
steps of a job, from the beginning of a forward pass to that of the next one. The trainers are in
`.venv-trainers`, which `./dev test trainers` makes.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from harness import jobs, ours, peers, results, shapes
from harness.jobs import Launch
from harness.places import PROGRAMS, ROOT
from harness.results import OURS, Row, Work

ALONE = "This benchmark has fixed peers and one size: --peers, --sizes and --plot do not apply."
PROGRAM = str(PROGRAMS / "trainer_steps.py")
PYTHON = ROOT / ".venv-trainers" / "bin" / "python"
LIMIT_S = 120
GLOO = "Gloo"
BY_NAME = 'ours, strategy="horovod"'
NETWORK = "21 layers"
#: The backends of each trainer, by the name of their row.
BACKENDS = {OURS: "hvd", GLOO: "gloo"}
TRAINERS = {
    "Lightning": {**BACKENDS, BY_NAME: "horovod"},
    "Accelerate": BACKENDS,
    "Transformers": BACKENDS,
}

#: Of one trainer, by the name of the row: microseconds by round.
Times = dict[str, list[float]]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=ALONE)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60, help="of a job")
    parser.add_argument("--quick", action="store_true", help="one short round: a smoke test")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--ours", type=Path, metavar="BUILD", default=peers.default_build())
    return parser.parse_args()


def launch_of(build: Path, np: int, trainer: str, backend: str, steps: int) -> Launch:
    launch = ours.python_job(build.resolve(), np, PROGRAM, [trainer, backend, str(steps)])
    command = [str(PYTHON) if word == sys.executable else word for word in launch.command]
    return dataclasses.replace(launch, command=command)


def time_of(launch: Launch) -> float:
    ended = jobs.run(launch, LIMIT_S)
    if ended.why:
        raise SystemExit(f"a job has failed: {ended.why}")
    us: float = ended.rows[-1]["us"]
    return us


def measure(arguments: argparse.Namespace, trainer: str) -> Times:
    backends = TRAINERS[trainer]
    times: Times = {peer: [] for peer in backends}
    for number in range(arguments.rounds):
        names = list(backends)
        for peer in names if number % 2 == 0 else reversed(names):
            launch = launch_of(
                arguments.ours, arguments.np, trainer, backends[peer], arguments.steps
            )
            times[peer].append(time_of(launch))
    return times


def rows_of(np: int, trainer: str, times: Times) -> list[Row]:
    work, size = Work("torch", trainer, NETWORK, np), shapes.float_bytes(shapes.NETWORKS[NETWORK]())
    return [results.row_of(peer, work, size, us) for peer, us in times.items()]


def table(rows: list[Row]) -> str:
    us = {(row["kind"], row["peer"]): row["median_us"] for row in rows}
    lines = ["| trainer | backend | time of a step | Gloo / it |", "|---|---|---|---|"]
    for (trainer, peer), time in us.items():
        ratio = f"{us[trainer, GLOO] / time:.2f}"
        lines.append(f"| {trainer} | {peer} | {results.time_text(time)} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    arguments = parse_arguments()
    if not PYTHON.is_file():
        raise SystemExit(f"{PYTHON.parents[1].name} is missing: ./dev test trainers makes it")
    if arguments.quick:
        arguments.rounds, arguments.steps = 1, 20
    rows: list[Row] = []
    for trainer in TRAINERS:
        rows += rows_of(arguments.np, trainer, measure(arguments, trainer))
    if arguments.json:
        found = results.document("trainers", arguments)
        found.replace([], rows, [])
        found.save(arguments.json)
    print(table(rows))


if __name__ == "__main__":
    main()

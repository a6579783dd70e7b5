"""Runs every benchmark at every number of ranks, in order of importance, and writes the report.

    ./dev bench [--quick] [--rounds 9] [--results docs/performance] [--list]

Results are stored after every step, beside the pictures of the report. An interrupted run keeps its
results, and a repeated step replaces them. The report is docs/performance.md. The report of a quick
run, which is only a smoke test, is in build/bench-quick.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from harness import peers
from harness.places import RESULTS, ROOT


@dataclass(frozen=True)
class Step:
    seconds: int  #: duration on two cores, in nine rounds
    bench: str
    words: tuple[str, ...]
    store: str = ""  #: the name of its file; empty: the name of the bench

    @property
    def file(self) -> str:
        return f"{self.store or self.bench}.json"


def step(seconds: int, bench: str, *words: str, store: str = "") -> Step:
    return Step(seconds, bench, words, store)


TCP = ("--transport", "tcp")
#: The networks that fit into the memory of four ranks in every way. The other one comes last.
FITTING = ("ResNet-50", "21 layers", "1000 x 1 KiB")
STEPS = (
    step(75, "allreduce", "--np", "2"),
    step(155, "allreduce", "--np", "4"),
    step(350, "allreduce", "--np", "8"),
    step(155, "half", "--np", "2"),
    step(240, "collectives", "--np", "2"),
    step(280, "collectives", "--np", "4"),
    step(190, "allreduce", *TCP, "--np", "2", store="allreduce-tcp"),
    step(400, "allreduce", *TCP, "--np", "4", store="allreduce-tcp"),
    step(265, "step", "--np", "2", "--seconds", "0.2"),
    step(175, "step", "--np", "4", "--seconds", "0.2", "--networks", *FITTING),
    step(240, "train"),
    step(600, "distributed", "--np", "2", "--seconds", "0.05"),
    step(500, "trainers"),
    step(130, "with_jax", "--np", "2"),
    step(60, "overhead"),
    step(300, "half", "--np", "4"),
    step(600, "half", "--np", "8"),
    step(550, "collectives", *TCP, "--np", "2", store="collectives-tcp"),
    step(900, "collectives", *TCP, "--np", "4", store="collectives-tcp"),
    step(300, "net", "--np", "2", "--sizes", "8,4M,16M,64M"),
    step(650, "net", "--np", "3,4", "--hosts", "3,4", "--sizes", "8,4M,16M,64M", "--limit", "30"),
    step(300, "step", "--np", "4", "--seconds", "0.2", "--networks", "BERT-large"),
    step(330, "half", *TCP, "--np", "2", store="half-tcp"),
    step(700, "half", *TCP, "--np", "4", store="half-tcp"),
    step(60, "encrypt"),
    step(700, "faults"),
    step(2750, "recovery"),
    step(1400, "start"),
)


def command(made: Step, arguments: argparse.Namespace) -> list[str]:
    script = ROOT / "bench" / f"{made.bench}.py"
    words = [sys.executable, str(script), *made.words]
    words += ["--ours", str(arguments.ours), "--json", str(arguments.results / made.file)]
    if made.bench == "recovery":
        words += ["--rounds", "2" if arguments.quick else str(arguments.rounds)]
        words += ["--transfers", "1", "--joins", "2"] if arguments.quick else []
    if made.bench in ("faults", "recovery"):
        return [*words, "--trials", "4" if arguments.quick else "50"]
    return [*words, "--rounds", str(arguments.rounds), *(["--quick"] if arguments.quick else [])]


def report(arguments: argparse.Namespace) -> int:
    page = arguments.results / "performance.md"
    to = ["--to", str(page)] if arguments.quick else []
    script = ROOT / "bench" / "report.py"
    return subprocess.run([sys.executable, str(script), str(arguments.results), *to]).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rounds", type=int, default=9)
    add("--quick", action="store_true", help="a few short rounds, as a smoke test")
    add("--results", type=Path, default=None, help="a folder; docs/performance unless --quick")
    add("--list", action="store_true", help="list the steps and their durations in seconds")
    add("--ours", type=Path, metavar="BUILD", default=peers.default_build())
    arguments = parser.parse_args()
    if arguments.results is None:
        arguments.results = ROOT / "build" / "bench-quick" if arguments.quick else RESULTS
    failed = []
    for made in STEPS:
        words = command(made, arguments)
        title = " ".join([made.bench, *made.words])
        if arguments.list:
            print(made.seconds, shlex.join(words))
            continue
        print(f"\n==== {title}", flush=True)
        begin = time.monotonic()
        if subprocess.run(words).returncode != 0:
            failed.append(title)
        print(f"{time.monotonic() - begin:.0f} s", flush=True)
    if arguments.list:
        return 0
    if report(arguments) != 0:
        failed.append("report")
    print("failed: " + "; ".join(failed) if failed else "every bench ran")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

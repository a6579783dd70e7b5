"""The elastic examples go on when one of their ranks is killed, and take its replacement in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import pytest

from devtool.paths import ROOT, venv_program

#: By the module that each needs.
SCRIPTS = {"pytorch_mlp.py": "torch", "keras_mlp.py": "keras", "tensorflow2_mlp.py": "tensorflow"}
LIMITS = ("-np", "3", "--min-np", "2", "--heartbeat-seconds", "600", "--verbose")
OPTIONS = ("--epochs", "4", "--points", "3000", "--pause", "0.01")
PLACE = re.compile(r"process (\d+) is rank (\d) of (\d)")
WATCHDOG_SECONDS = 240


@dataclass
class Watched:
    """Reads what a job writes. Kills rank 1, and stops the others when they have trained an epoch
    without it, until the new one is ready: it may take long to import its framework."""

    output: str = ""
    first: dict[int, int] = field(default_factory=dict)  #: processes by their rank at the start
    waits: bool = True  #: for the new one

    def take(self, line: str) -> None:
        self.output += line
        found = PLACE.search(line)
        if found and len(self.first) < 3:
            self.first[int(found[2])] = int(found[1])
            if found[2] == "1":
                os.kill(self.first[1], signal.SIGKILL)
        if "epoch 1: " in line and self.waits:
            self.signal_survivors(signal.SIGSTOP)
        if "tells the workers that others join" in line or "no more workers are started" in line:
            self.waits = False
            self.signal_survivors(signal.SIGCONT)

    def signal_survivors(self, number: signal.Signals) -> None:
        for rank in (0, 2):
            os.kill(self.first[rank], number)


def watch(command: list[str]) -> tuple[Watched, int]:
    """Runs a job to its end. Returns its exit code, too."""
    watched = Watched()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        assert job.stdout is not None
        watchdog = threading.Timer(WATCHDOG_SECONDS, job.kill)
        watchdog.start()
        try:
            for line in job.stdout:
                watched.take(line)
        except BaseException:
            job.kill()
            raise
        finally:
            watchdog.cancel()
    return watched, job.returncode


@pytest.mark.parametrize("script", SCRIPTS)
def test_training_goes_on_without_a_killed_rank_and_then_with_a_new_one(script: str) -> None:
    pytest.importorskip(SCRIPTS[script])
    path = f"examples/elastic/{script}"
    command = [venv_program("horovodrun"), *LIMITS, sys.executable, path, *OPTIONS]
    watched, code = watch(command)
    output = watched.output
    assert code == 0, output
    first = watched.first
    told = [tuple(map(int, place)) for place in PLACE.findall(output)]
    without, last = ({(rank, pid) for pid, rank, size in told[3:] if size == n} for n in (2, 3))
    survivors = {(0, first[0]), (1, first[2])}
    assert without == survivors and survivors < last, output
    ((rank, pid),) = last - survivors
    assert rank == 2 and pid not in first.values(), output
    epochs = re.findall(r"epoch (\d): accuracy ([\d.]+), (\d) ranks", output)
    assert [int(epoch) for epoch, _, _ in epochs] == [1, 2, 3, 4], output
    assert float(epochs[-1][1]) > 0.9 and epochs[-1][2] == "3", output

"""horovodrun --dump of ranks that another program has started, as mpirun, srun or torchrun does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hang_causes import CAUSES, write_training
from launcher import WATCHDOG_SECONDS, horovodrun, wait_until
from started import each_with
from test_by_hand import ranks

pytest.importorskip("horovod._core")

Start = Callable[[list[dict[str, str]]], int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ranks with these variables, and returns the process that is their parent."""
    write_training(tmp_path, CAUSES["lock"].code)
    started: list[subprocess.Popen[bytes]] = []

    def start(variables: list[dict[str, str]]) -> int:
        command = [*each_with(variables), sys.executable, "train.py"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True
        )
        started.append(process)
        return process.pid

    yield start
    for one in started:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait(WATCHDOG_SECONDS)


def explained(process: int) -> Any:
    command = [horovodrun(), "--dump-json", str(process)]
    found: list[Any] = []

    def names_one() -> bool:
        result = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
        found.append(json.loads(result.stdout) if result.returncode == 0 else None)
        return found[-1] is not None and found[-1]["cause"]["operation"] != ""

    wait_until(names_one, "a dump that names a cause")
    return found[-1]


def test_the_parent_of_the_ranks_or_one_of_them_is_named(start: Start) -> None:
    found = explained(start(ranks(3)))
    processes = [one["process"] for one in found["ranks"]]
    for one in (found, explained(processes[0]), explained(processes[2])):
        cause = one["cause"]
        assert (cause["class"], cause["ranks"]) == ("lock", [2]), cause
        assert cause["text"].startswith("rank 2 has not submitted grad.fc.weight, which ranks 0, 1")
        assert [report["process"] for report in one["ranks"]] == processes
        remark = "horovodrun has not started these ranks: only ranks on this host are shown"
        assert one["remarks"] == [remark]


def test_ranks_of_another_host_are_not_known(start: Start) -> None:
    variables = ranks(3)
    here, _ = start(variables[:2]), start(variables[2:])
    found = explained(here)
    assert (found["cause"]["class"], found["cause"]["ranks"]) == ("unreachable", [2])
    assert found["cause"]["text"].startswith(
        "rank 2 cannot be reached, and ranks 0, 1 have awaited"
    )
    assert found["cause"]["text"].endswith("; it does not run on this host")

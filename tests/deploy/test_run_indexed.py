"""What starts the ranks of a pod of an Indexed Job."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devtool.paths import ROOT

PROGRAM = ROOT / "deploy" / "docker" / "bin" / "run-indexed"
TELL = """\
import os
names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
print(" ".join(os.environ["HOROVOD_" + name] for name in names) + "\\n", end="", flush=True)
file = os.environ["HOROVOD_SECRET_FILE"]
assert open(file).read() == "a secret" and os.stat(file).st_mode & 0o77 == 0
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    secret = tmp_path / "key"
    secret.write_text("a secret")
    secret.chmod(0o444)
    mine = {"JOB_COMPLETION_INDEX": "1", "PODS": "3", "SLOTS_PER_POD": "2", "FIRST_POD": "x-0.x"}
    return {**os.environ, **mine, "HOROVOD_SECRET_FILE": str(secret), "TMPDIR": str(tmp_path)}


def run(variables: dict[str, str], program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, sys.executable, "-c", program],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_each_rank_of_the_pod_knows_its_place(variables: dict[str, str], tmp_path: Path) -> None:
    ended = run(variables, TELL)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["2 6 0 2 1 3", "3 6 1 2 1 3"]
    assert [path.name for path in tmp_path.iterdir()] == ["key"], "the copied secret is gone"


def test_the_first_that_fails_ends_the_others_and_gives_the_status(
    variables: dict[str, str],
) -> None:
    one_fails = (
        "import os, sys, time\n"
        "sys.exit(7) if os.environ['HOROVOD_LOCAL_RANK'] == '1' else time.sleep(600)"
    )
    assert run(variables, one_fails).returncode == 7


@pytest.mark.parametrize("slots", ["1", "2"])
def test_a_rank_that_fails_before_it_is_waited_for_gives_the_status(
    variables: dict[str, str], tmp_path: Path, slots: str
) -> None:
    """The script is held up, as on a busy machine, until its ranks have ended."""
    late = tmp_path / "late"
    text = PROGRAM.read_text()
    assert text.count("\nleft=") == 1
    late.write_text(
        text.replace("\nleft=", "\nuntil [[ -z $(jobs -rp) ]]; do sleep 0.01; done\nleft=")
    )
    late.chmod(0o755)
    fails = [late, sys.executable, "-c", "raise SystemExit(7)"]
    ended = subprocess.run(
        fails, env={**variables, "SLOTS_PER_POD": slots}, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 7, ended.stderr


def test_the_end_of_the_pod_reaches_the_ranks(variables: dict[str, str]) -> None:
    waits = (
        "import signal, sys, time\n"
        "def told(*_):\n"
        "    print('told\\n', end='', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, told)\n"
        "print('there\\n', end='', flush=True)\n"
        "time.sleep(600)"
    )
    pod = subprocess.Popen(
        [PROGRAM, sys.executable, "-c", waits], env=variables, stdout=subprocess.PIPE, text=True
    )
    assert pod.stdout is not None
    assert [pod.stdout.readline() for _ in range(2)] == ["there\n"] * 2
    pod.send_signal(signal.SIGTERM)
    rest, _ = pod.communicate(timeout=60)
    assert rest == "told\n" * 2
    assert pod.returncode == 143


def test_the_end_of_the_pod_before_its_ranks_are_started_is_kept(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """The signal comes while the secret is copied."""
    stand = tmp_path / "mktemp"
    stand.write_text(f'#!/bin/sh\nkill -TERM $PPID\nexec {shutil.which("mktemp")} "$@"\n')
    stand.chmod(0o755)
    path = f"{tmp_path}:{variables['PATH']}"
    ended = run({**variables, "PATH": path}, "print('started')")
    assert (ended.returncode, ended.stdout) == (143, "")


@pytest.mark.parametrize("name", ["JOB_COMPLETION_INDEX", "PODS", "FIRST_POD"])
def test_what_is_missing_is_named(variables: dict[str, str], name: str) -> None:
    del variables[name]
    ended = run(variables, "")
    assert ended.returncode != 0
    assert name in ended.stderr

"""A state folder at the start and the end of a job. Ranks are threads of this process; no job."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from commit_ranks import EACH_COMMIT, Rank, Ranks, loaded_step, numbers

from horovod.common import _state_files
from horovod.common._departure import Departure
from horovod.common._elastic_commits import Commits, StateFolder
from horovod.common._state_files import commits
from horovod.common.elastic import ObjectState


@pytest.mark.parametrize("leaves", [False, True])
def test_two_commits_are_left_at_the_end(
    leaves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 has written its part, and looked for old commits, before the last one is complete."""
    ranks = Ranks(2, monkeypatch)
    write_part = _state_files.write_part

    def slow_on_one(commit: Any, part: int, parts: int, content: Any) -> None:
        time.sleep(0.2 * part)
        write_part(commit, part, parts, content)

    monkeypatch.setattr(_state_files, "write_part", slow_on_one)

    def train(rank: int) -> None:
        one = Rank(ranks, StateFolder(tmp_path, EACH_COMMIT))
        one.train(3)
        one.commits._folder = StateFolder(tmp_path, 1000)
        one.commits._next_at = time.monotonic() + 1000
        if leaves:
            one.departure.request()
        one.train(1)
        one.commits.finish()

    ranks.run(train)
    assert numbers(tmp_path) == [4, 3]


def test_what_is_loaded_is_said_and_a_misfit_names_the_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = Ranks(2, monkeypatch)
    ranks.run(lambda rank: Rank(ranks, StateFolder(tmp_path, EACH_COMMIT)).train(9))
    assert loaded_step(tmp_path) == 9
    assert caplog.messages == [f"continues from commit 9 in {tmp_path}"]
    state = ObjectState(lambda obj: obj, lambda: 0, epoch=0)
    with pytest.raises(ValueError, match="attributes of the state are") as caught:
        Commits(state, StateFolder(tmp_path, 0), Departure(), True).load()
    path = commits(tmp_path)[0].path
    said = "attributes of the state are ['step'] there and ['epoch'] here; use another folder"
    assert str(caught.value) == (
        f"the state in {path} does not fit this script: {said} (HOROVOD_STATE_DIR={tmp_path}), or "
        "the script that wrote it"
    )


def test_a_folder_that_is_none_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    state = ObjectState(lambda obj: obj, lambda: 0, step=0)

    def refused(path: Path, reason: str) -> None:
        said = f"cannot be written to HOROVOD_STATE_DIR={path}: {reason}; use another folder"
        with pytest.raises(ValueError, match=said):
            Commits(state, StateFolder(path, 0), Departure(), False)

    refused(file, "Not a directory")
    refused(file / "below", "Not a directory")
    refused(Path("/proc/none"), "No such file or directory")
    if os.geteuid() != 0:
        refused(Path("/none"), "Permission denied")
    Commits(state, StateFolder(tmp_path / "new" / "folder", 0), Departure(), False)
    assert list((tmp_path / "new" / "folder").iterdir()) == []

    def fail(folder: Path, number: int) -> None:
        raise OSError(number, "of the system")

    for number, reason in ((errno.EROFS, "Read-only file system"), (errno.ENOSPC, "")):
        monkeypatch.setattr(_state_files, "try_to_write", lambda path, n=number: fail(path, n))
        if reason:
            refused(tmp_path, reason)
        else:
            Commits(state, StateFolder(tmp_path, 0), Departure(), False)


#: Holds a folder until its input ends, and has a child that lives longer.
HOLDER = """
import os, sys, time
from pathlib import Path
from horovod.common._state_files import hold
try:
    hold(Path(sys.argv[1]))
except BlockingIOError:
    sys.exit("held")
if os.fork() == 0:
    os.close(1)
    time.sleep(3)
    os._exit(0)
print("holds", flush=True)
sys.stdin.read()
"""


def test_another_job_in_the_folder_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = Ranks(1, monkeypatch)
    one = Rank(ranks, StateFolder(tmp_path, 1000), is_elastic=True)
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"holds\n"
        for _ in range(2):
            ranks.run(lambda rank: one.commits.begin())
        assert caplog.messages == [f"another job writes to {tmp_path}: use one folder per job"]
    ranks.run(lambda rank: one.commits.begin())
    refused = subprocess.run(command, input=b"", capture_output=True)
    assert refused.stderr == b"held\n"
    one.commits.close()
    assert subprocess.run(command, input=b"", capture_output=True).stdout == b"holds\n"

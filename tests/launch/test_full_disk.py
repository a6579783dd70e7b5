"""A disk that is full: training continues, each file is complained about once, and a commit that
was not written completely is not used."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher import Jobs
from state_training import EACH_COMMIT, SELDOM, entries, training

from horovod.common._state_files import commits, read_newest
from horovod.common._state_parts import joined

pytest.importorskip("horovod._core")

STEPS = 200
DISK_KIB = 2000
# Each step of the second half takes what the disk still has, also what a commit has just freed.
FILL = """
def fill(path):
    try:
        with open(path, "ab", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        pass
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "none", str(folder)]
    made = subprocess.run(mount, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def usable_step(folder: Path) -> int:
    """Of the newest complete commit; 0 if there is none. Warns of those that are not used."""
    found = read_newest(folder, joined) if folder.exists() else None
    return 0 if found is None else int(found[1].own["attributes"]["step"])


def test_training_continues_and_each_file_is_complained_about_once(jobs: Jobs, disk: Path) -> None:
    end = f"state.step >= {STEPS}"
    deed = f"if state.step > {STEPS // 2}: fill({str(disk / 'filler')!r})"
    command = training(jobs.folder, deed, end, first=FILL)
    state, trace = disk / "state", disk / "trace.json"
    options = ["--output-filename", str(disk / "out"), "--timeline-filename", str(trace)]
    options += ["--state-dir", str(state), *EACH_COMMIT]
    result = jobs.run("-np", "2", *options, *command)
    assert result.code == 1, "files of the output are not complete"
    assert sum(line.endswith(":ended") for line in result.out_lines) == 2, result.err
    assert result.out.count("x" * 2000) == 2 * STEPS, "the console is complete"
    assert result.err.count("--output-filename: the std") == 1, result.err
    assert result.err.count("could not be written") == 1, result.err
    for file in (trace, disk / "trace.rank1.json"):
        assert result.err.count(f'the timeline "{file}" ends here: no room for it') == 1, result.err
        json.loads(file.read_text())
    assert "Traceback" not in result.err

    usable = usable_step(state)
    assert 0 < usable < STEPS
    assert len(commits(state)) <= 3, "two complete ones, and one that is not"
    subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
    command = training(jobs.folder, "pass", end)
    again = jobs.run("-np", "2", "--state-dir", str(state), *SELDOM, *command)
    assert again.code == 0, again.err
    assert {one.step for one in entries(again.out)} == {usable}

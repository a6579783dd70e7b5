"""What horovodrun --dump does if file systems, py-spy or visitors do not play their part."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from dead_files import dead_files_or_skip
from hang_causes import CAUSES, REDUCE, TRAINING, line_of
from hanging import dumped, explained, start_hanging
from launcher import Jobs, proc_number, wait_until, without_sanitizer

pytest.importorskip("horovod._core")

# ---- A file system that does not answer --------------------------------------------------------


def test_scripts_on_a_file_system_that_does_not_answer_do_not_block_the_dump(jobs: Jobs) -> None:
    """Their lines are named, without their texts."""
    text = TRAINING.format(reduce=REDUCE, hang=CAUSES["sleep"].code, steps=5)
    with dead_files_or_skip(jobs.folder / "dead", text.encode()) as files:
        job = jobs.start("-np", "3", sys.executable, str(files.file))
        found = explained(job, [2])
        assert all(one["stack"][0]["source"] for one in found["ranks"])
        files.die()
        found = explained(job, [2])
    assert found["cause"]["text"].endswith(" in hang") and found["remarks"] == []
    assert not any(frame["source"] for one in found["ranks"] for frame in one["stack"])


# ---- py-spy ------------------------------------------------------------------------------------

#: Says what it was asked. A process that it does not know has no stack.
STAND_IN = """#!/bin/sh
echo "$*" >> asked
[ -e slow ] && sleep 1000
cat <<'end'
[{"pid": 1, "thread_name": "MainThread", "active": true, "owns_gil": false, "frames": [
    {"name": "hang", "filename": "/job/train.py", "module": null, "line": 17, "locals": null}]}]
end
"""
NO_ANSWER = CAUSES["blocked_signals"].code


def with_stand_in(jobs: Jobs) -> dict[str, str]:
    folder = jobs.folder / "bin"
    folder.mkdir()
    (folder / "py-spy").write_text(STAND_IN)
    (folder / "py-spy").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def pid_of(found: dict[str, list[dict[str, int]]], rank: int) -> int:
    return next(one["process"] for one in found["ranks"] if one["rank"] == rank)


def test_py_spy_shows_the_stack_of_a_rank_that_does_not_answer(jobs: Jobs) -> None:
    found = explained(start_hanging(jobs, NO_ANSWER, env=with_stand_in(jobs)), [2])
    assert found["cause"]["class"] == "no_answer"
    assert found["cause"]["text"].endswith(", at train.py:17 in hang")
    asked = f"dump --json --nonblocking --pid {pid_of(found, 2)}"
    assert asked in (jobs.folder / "asked").read_text().splitlines()
    frames = [{"file": "/job/train.py", "line": 17, "function": "hang", "source": ""}]
    assert next(one["stack"] for one in found["ranks"] if one["rank"] == 2) == frames


def test_py_spy_is_not_asked_about_ranks_that_answer(jobs: Jobs) -> None:
    job = start_hanging(jobs, CAUSES["lock"].code, env=with_stand_in(jobs))
    explained(job, [2])
    (jobs.folder / "asked").unlink(missing_ok=True)
    explained(job, [2])
    assert not (jobs.folder / "asked").exists()


def test_a_py_spy_that_does_not_end_does_not_block_the_dump(jobs: Jobs) -> None:
    (jobs.folder / "slow").touch()
    found = explained(start_hanging(jobs, NO_ANSWER, env=with_stand_in(jobs)), [2])
    assert found["cause"]["class"] == "no_answer" and found["remarks"] == []
    assert all(one["stack"] for one in found["ranks"] if one["rank"] != 2)


@pytest.mark.skipif(shutil.which("py-spy") is None, reason="there is no py-spy")
@pytest.mark.parametrize("cause", ["blocked_signals", "sigstop"])
def test_the_real_py_spy_finds_the_line(jobs: Jobs, cause: str) -> None:
    found = explained(start_hanging(jobs, CAUSES[cause].code), [2])
    line = line_of(jobs.folder / "train.py")
    assert found["cause"]["text"].endswith(f", at train.py:{line} in hang")


# ---- Visitors at the socket --------------------------------------------------------------------

VISITORS = 100
TAKEN = 16  #: at the same time; the others wait in the queue of the socket


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def processor_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@without_sanitizer
def test_a_crowd_at_the_socket_of_dumps_takes_little_of_the_launcher(jobs: Jobs) -> None:
    """A rank that does not take signals makes a dump last long enough to be looked at."""
    job = start_hanging(jobs, NO_ANSWER)
    explained(job, [2])
    before, memory = descriptors(job.pid), proc_number(job.pid, "status", "VmRSS")
    began, used = time.monotonic(), processor_seconds(job.pid)
    most = 0
    with ExitStack() as crowd:
        visitors = []
        for _ in range(VISITORS):
            visitor = crowd.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            visitor.connect(f"\0horovod-dump-{job.pid}")
            visitor.setblocking(False)
            with suppress(BlockingIOError):
                visitor.sendall(os.urandom(1 << 20))  # nobody reads it
            visitors.append(visitor)

        def have_answers() -> bool:
            nonlocal most
            most = max(most, descriptors(job.pid))
            return all(map(has_answer, visitors))

        wait_until(have_answers, "the answer to everyone")
    elapsed, used = time.monotonic() - began, processor_seconds(job.pid) - used
    assert used < elapsed / 4, "those who wait in the queue do not keep it awake"
    assert before < most <= before + TAKEN + 8, (before, most)  # and those of the dump itself
    assert proc_number(job.pid, "status", "VmHWM") - memory < 32 << 10
    assert dumped(job)["cause"]["class"] == "no_answer"
    assert job.poll() is None


def has_answer(visitor: socket.socket) -> bool:
    with suppress(BlockingIOError):
        return visitor.recv(16, socket.MSG_PEEK) != b""
    return False

"""Jobs whose ranks fork the processes of cases."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import rank_jobs
import warm_jobs
from rank_jobs import Job
from warm_jobs import Kind, WarmJob

pytestmark = pytest.mark.skipif(rank_jobs.launcher() is None, reason="not built")

SECONDS = 60
CASES = f"""
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(warm_jobs.__file__).parent)!r})
import rank_jobs, warm_jobs

folder, (what, *_) = warm_jobs.serve(Path(sys.argv[1]))
rank_jobs.begin_telling(folder)
rank = os.environ["HOROVOD_RANK"]
rank_jobs.tell([os.getppid(), os.getpid(), os.environ.get("COLOUR")])
if what == "kill" and rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "fail":
    while rank == "0" and not Path(folder, "end.1").exists():
        time.sleep(0.01)
    print("rank", rank, "is here")
    sys.exit(3 + int(rank))
if what == "end the job":
    os.kill(os.getppid(), signal.SIGKILL)
"""


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[Kind]:
    script = tmp_path / "script.py"
    script.write_text(CASES)
    yield Kind(script, 2)
    warm_jobs.end_all()


def run(kind: Kind, what: str, **environment: str) -> Job:
    return warm_jobs.run_warm(kind, [what], SECONDS, environment)


def test_each_case_has_new_processes_of_the_same_ranks_and_its_own_environment(kind: Kind) -> None:
    first, second = run(kind, "tell", COLOUR="red"), run(kind, "tell")
    for rank in range(2):
        [[server, process, colour]], [[server_later, process_later, none]] = (
            first.told[rank],
            second.told[rank],
        )
        assert server == server_later and process != process_later
        assert colour == "red" and none is None
    assert first.returncode == second.returncode == 0


def test_the_first_process_that_fails_gives_the_exit_code(kind: Kind) -> None:
    job = run(kind, "fail")
    assert job.returncode == 4, job.output
    assert "rank 0 is here" in job.output and "rank 1 is here" in job.output


def test_a_process_that_is_killed_leaves_the_job_for_others(kind: Kind) -> None:
    assert run(kind, "kill").returncode == 128 + signal.SIGKILL
    assert run(kind, "tell").returncode == 0


def test_a_job_that_has_ended_is_started_again(kind: Kind) -> None:
    assert run(kind, "end the job").returncode != 0
    assert run(kind, "tell").returncode == 0


def test_there_are_never_too_many_ranks(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_jobs, "MOST_RANKS", 3)
    job = WarmJob(kind)
    warm_jobs._jobs[kind] = job
    assert run(Kind(kind.script, 1), "tell").returncode == 0
    assert job.process.poll() is None
    assert run(Kind(kind.script, 1, (("OTHER", "1"),)), "tell").returncode == 0
    assert job.process.poll() == 0

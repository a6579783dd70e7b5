"""S9: operations that wait for ranks which do not come are reported, with those ranks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from ranks import needs_job, run_alone, tell

import horovod.torch as hvd

pytestmark = needs_job

PERIOD = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}


def log_of_rank_0() -> Path:
    return Path(os.environ["STALL_LOG"])


def init_and_keep_the_log(*process_sets: hvd.ProcessSet) -> int:
    """Rank 0 reports; what it says goes to a file that all ranks can read."""
    if os.environ["HOROVOD_RANK"] == "0":
        os.dup2(os.open(log_of_rank_0(), os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
    hvd.init(process_sets=list(process_sets))
    return hvd.rank()


def missing_in(report: str) -> list[str]:
    """The lines about ranks."""
    return [line for line in report.splitlines() if line[:3] in ("0: ", "1: ", "2: ")]


def wait_for_report(*words: str, missing: list[str] | None = None) -> str:
    """The report that has all of them, and these lines about ranks: earlier ones may tell of ranks
    that a busy machine holds up. A watchdog ends what waits in vain."""
    while True:
        log = log_of_rank_0().read_text() if log_of_rank_0().exists() else ""
        for report in log.split("Missing ranks:")[1:]:
            if all(word in report for word in words) and missing in (None, missing_in(report)):
                return report
        time.sleep(0.05)


def leave_eight_names_to_wait() -> None:
    me = init_and_keep_the_log()
    if me == 2:
        of_others = "submitted by ranks 0, 1, not by rank 2"
        tell(wait_for_report("...", "rank 2: nothing is pending there", of_others))
    handles = [hvd.allreduce_async(torch.ones(1), name=f"n{i}") for i in range(8)]
    for handle in handles:
        hvd.synchronize(handle)


def test_s9_a_report_lists_six_names_of_a_missing_rank_and_what_it_does_instead(
    tmp_path: Path,
) -> None:
    job = run_alone(3, leave_eight_names_to_wait, STALL_LOG=str(tmp_path / "log"), **PERIOD)
    assert job.returncode == 0, job.output
    (report,) = job.told[2]
    line = next(line for line in report.splitlines() if line.startswith("2: ["))
    assert line.count("allreduce.n") == 6 and line.endswith(" ...]"), report
    assert "submitted by ranks 0, 1, not by rank 2" in report


def wait_for_one_while_another_has_joined() -> None:
    me = init_and_keep_the_log()
    if me == 0:
        assert hvd.allreduce(torch.ones(1), name="x", op=hvd.Sum) == 2
    elif me == 2:
        tell(wait_for_report("allreduce.x", missing=["2: [allreduce.x]"]))
        hvd.allreduce(torch.ones(1), name="x", op=hvd.Sum)
    hvd.join()


def test_s9_joined_ranks_are_not_missing(tmp_path: Path) -> None:
    job = run_alone(
        3, wait_for_one_while_another_has_joined, STALL_LOG=str(tmp_path / "log"), **PERIOD
    )
    assert job.returncode == 0, job.output
    assert len(job.told[2]) == 1, job.output


def wait_in_a_set() -> None:
    some = hvd.ProcessSet([0, 2])
    me = init_and_keep_the_log(some)
    if me != 0:  # a barrier of rank 1 meanwhile would be reported too
        tell(wait_for_report("broadcast.x", "message"))
    if me == 0:
        sent = hvd.send_async(torch.ones(1), 2, tag=7)
    if some.included():
        hvd.broadcast(torch.ones(1), 0, name="x", process_set=some)
    if me == 2:
        hvd.recv(torch.ones(1), 0, tag=7)
    hvd.barrier()
    if me == 0:
        hvd.synchronize(sent)


def test_s9_a_set_and_a_message_wait_for_their_members_only(tmp_path: Path) -> None:
    job = run_alone(3, wait_in_a_set, STALL_LOG=str(tmp_path / "log"), **PERIOD)
    assert job.returncode == 0, job.output
    (report,) = job.told[2]
    assert missing_in(report) == ["2: [message.0-2.7, broadcast.x]"], report


def never_submit_on_one_rank() -> None:
    me = init_and_keep_the_log()
    if me == 1:
        tell(wait_for_report("\n1!: [", "allreduce.x"))
        return
    with pytest.raises(hvd.HorovodInternalError, match=r"(?s)allreduce\.x.*not by rank 1"):
        hvd.allreduce(torch.ones(1), name="x")
    tell("explained")


def test_s9_beyond_the_shutdown_time_the_job_ends_and_every_error_has_the_report(
    tmp_path: Path,
) -> None:
    limits = {**PERIOD, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "6"}  # until rank 2 has come too
    job = run_alone(3, never_submit_on_one_rank, STALL_LOG=str(tmp_path / "log"), **limits)
    assert job.told[0] == job.told[2] == ["explained"], job.output
    assert len(job.told[1]) == 1, job.output


def wait_for_three_periods() -> None:
    me = init_and_keep_the_log()
    if me == 1:
        time.sleep(3.5)  # in which three reports would be written
    hvd.allreduce(torch.ones(1), name="x")
    if me == 0:
        tell(log_of_rank_0().read_text())


def test_s9_the_check_can_be_switched_off(tmp_path: Path) -> None:
    off = {**PERIOD, "HOROVOD_STALL_CHECK_DISABLE": "1"}
    job = run_alone(2, wait_for_three_periods, STALL_LOG=str(tmp_path / "log"), **off)
    assert job.returncode == 0 and job.told[0] == [""], job.output

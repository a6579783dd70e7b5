"""The bench of recovery: the times of a trial, from the commits that its ranks have noted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import recovery
from bench_rows import document
from harness import details, elastic_jobs, goals
from harness.elastic_jobs import Commit
from harness.goals import MET, NOT_MEASURED, judge
from harness.results import Work
from recovery import Trial

FIRST, SECOND, VICTIM, JOINED = 11, 12, 13, 14


def noted(*times: tuple[float, int]) -> list[Commit]:
    return [Commit(at, generation, 0, 3) for at, generation in times]


COMMITS = {
    FIRST: noted((1.0, 0), (1.1, 0), (1.5, 1), (1.6, 1), (2.0, 2), (2.1, 2)),
    SECOND: noted((1.0, 0), (1.1, 0), (1.55, 1), (1.6, 1), (2.25, 2), (2.3, 2)),
    VICTIM: noted((1.0, 0), (1.1, 0)),
    JOINED: noted((2.2, 2), (2.3, 2)),
}


def test_the_slowest_survivor_counts() -> None:
    trial = recovery.judge(COMMITS, VICTIM, 1.25, {JOINED: 1.3})
    assert trial.recovery == pytest.approx(0.3)
    assert trial.joiner == pytest.approx(0.9)
    assert trial.step == pytest.approx(0.1)
    assert trial.stall == pytest.approx(0.65 - 0.1)


def test_a_line_that_is_half_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "7.commits").write_text("1500000000 0 2 4\n16000")
    assert elastic_jobs.commits_in(tmp_path) == {7: [Commit(1.5, 0, 2, 4)]}


def test_the_start_of_a_process_is_on_the_clock_of_the_commits() -> None:
    assert elastic_jobs.born(os.getpid()) < time.monotonic()
    assert elastic_jobs.born(os.getpid()) > elastic_jobs.born(os.getppid()) - 1


def test_goals_are_met_by_all_hosts_only() -> None:
    of_recovery = next(goal for goal in goals.GOALS if goal.key == "recovery")
    trials = [Trial(0.4, 5.0, 0.2, 0.01), Trial(0.2, 4.0, 0.1, 0.01)]
    rows = recovery.recovery_rows(1, 4, trials)
    assert judge(of_recovery, {"recovery": rows}).state == NOT_MEASURED
    rows += recovery.recovery_rows(2, 4, trials)
    assert judge(of_recovery, {"recovery": rows}).state == MET
    worse = recovery.recovery_rows(1, 4, [*trials, Trial(0.6, 4.0, 0.1, 0.01)])
    found = judge(of_recovery, {"recovery": [*worse, *rows[len(worse) :]]})
    assert found.state == goals.MISSED
    assert found.shown.startswith("600.0 ms (kill -9 to the next commit worst, np 4, one host)")


def test_others_stall_for_less_than_a_step() -> None:
    goal = next(goal for goal in goals.GOALS if goal.key == "stall")
    trials = [Trial(0.4, 5.0, stall, 0.053) for stall in (0.04, 0.052, 0.03)]
    rows = recovery.stall_rows(1, 4, trials) + recovery.stall_rows(2, 4, trials)
    found = judge(goal, {"recovery": rows})
    assert (found.state, found.wanted) == (MET, "at most 53.0 ms")
    assert found.shown.startswith("52.0 ms (stall of the others while it joins, steps of 50 ms wo")
    rows = recovery.stall_rows(1, 4, [*trials, Trial(0.4, 5.0, 0.054, 0.053)])
    assert judge(goal, {"recovery": rows}).state == goals.MISSED


def test_the_slowest_rank_of_the_last_sync_counts(tmp_path: Path) -> None:
    (tmp_path / "11.syncs").write_text("1000 9000 0\n20000 25000 1\n500000 2400000 2\n")
    (tmp_path / "14.syncs").write_text("510000 2500000 2\n")
    assert recovery.transfer_us(tmp_path) == 2000


def test_a_state_arrives_at_most_of_the_rate_of_one_connection() -> None:
    goal = next(goal for goal in goals.GOALS if goal.key == "state-transfer")
    work = Work("2 hosts, 1gbit", recovery.TRANSFER, recovery.TO_JOINER, recovery.TRANSFER_NP)
    rows = recovery.transfer_rows(work, [2.6e6, 2.4e6, 2.5e6], [2.2e6, 2e6, 2.1e6])
    found = judge(goal, {"recovery": rows})
    assert (found.state, found.shown, found.wanted) == (MET, "0.84", "at least 0.8")
    rows = recovery.transfer_rows(work, [2.7e6] * 3, [2.1e6] * 3)
    assert judge(goal, {"recovery": rows}).state == goals.MISSED


def test_times_of_recovery_share_one_table() -> None:
    rows = recovery.recovery_rows(2, 4, [Trial(0.4, 5.0, 0.2, 0.01), Trial(0.2, 4.0, 0.1, 0.01)])
    rows += recovery.cost_rows({recovery.PLAIN: [50e3], recovery.TENTH: [50e3]})
    lines = details.section("recovery", [document("recovery", rows)], None).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    kill = "kill -9 to the next commit"
    assert [kill, "np 4, 2 hosts", "300.0 ms", "400.0 ms", "1.00 s"] in cells
    assert [cell[0] for cell in cells].count(kill) == 1
    assert ["ours", "50.0 ms", "50.0 ms"] in cells


def test_the_cost_of_a_commit_is_compared_with_a_job_that_is_not_elastic() -> None:
    of_cost = next(goal for goal in goals.GOALS if goal.key == "elastic-cost")
    times = {
        recovery.PLAIN: [50e3, 52e3, 51e3],
        recovery.EACH: [51e3, 52e3, 53e3],
        recovery.TENTH: [50.4e3, 52e3, 51.5e3],
    }
    assert judge(of_cost, {"recovery": recovery.cost_rows(times)}).state == MET
    text = recovery.cost_text(times)
    assert "each 10th: 51.50 ms (+0.98%; rounds from +0.00% to +0.98%)" in text
    assert "each: 52.00 ms (+1.96%; rounds from +0.00% to +3.92%)" in text
    times[recovery.TENTH] = [52e3] * 3
    assert judge(of_cost, {"recovery": recovery.cost_rows(times)}).state == goals.MISSED

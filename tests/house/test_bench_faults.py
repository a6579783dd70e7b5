"""The bench of faults: the time of a trial from the notes of its ranks, and the table."""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import faults
import pytest
from bench_rows import MACHINE
from faults import CELLS, Cell, Job, Trial
from harness import fault_table
from harness.jobs import Launch
from harness.places import PROGRAMS
from harness.results import Document

CELL = Cell("kill -9", "negotiation", "kill", "negotiation")


@pytest.fixture
def ended(tmp_path: Path) -> Job:
    """Rank 1 of three has failed at 1 s, by its own notes."""
    (tmp_path / "1.fault").write_text("1000000000")
    job = Job(Launch([sys.executable, "-c", ""], {}), tmp_path, CELL, (1,))
    job.end()
    return job


def note(folder: Path, rank: int, at: float, text: str) -> None:
    (folder / f"{rank}.error").write_text(json.dumps({"at": at * 1e9, "text": text}))


def test_a_trial_is_good_if_every_other_rank_names_the_one_that_failed(
    ended: Job, tmp_path: Path
) -> None:
    note(tmp_path, 0, 1.25, "rank 1 is lost")
    note(tmp_path, 2, 1.5, 'allreduce "x": rank 1 has ended')
    trial = ended.judge(3, None, {})
    assert trial.good and trial.seconds == (0.25, 0.5)


def test_a_trial_is_bad_if_a_rank_has_no_error_or_names_another_one(
    ended: Job, tmp_path: Path
) -> None:
    note(tmp_path, 0, 1.25, "rank 12 is lost")
    trial = ended.judge(3, None, {})
    assert not trial.good and (trial.silent, trial.misnamed) == (1, 1)


def test_a_rank_may_be_named_in_a_list() -> None:
    for culprit in (2, 3, 12):
        assert faults.names_one_of("ranks 2, 3 and 12 have not joined the job", [culprit])
    assert not faults.names_one_of("ranks 2, 3 and 12 have not joined within 4 s", [1, 4])
    assert faults.names_one_of("host 10.0.0.1 was lost with rank 1", ["10.0.0.1"])


def test_in_an_elastic_job_an_error_is_bad_although_it_names_the_rank(
    ended: Job, tmp_path: Path
) -> None:
    ended.cell = replace(CELL, moment=faults.COMMIT)
    note(tmp_path, 0, 1.25, faults.WHOLE_TEXT_OF_STEP)
    note(tmp_path, 2, 1.5, "rank 1 is lost")
    trial = ended.judge(3, None, {})
    assert not trial.good and (trial.silent, trial.misnamed) == (0, 1)


def test_a_trial_without_the_fault_is_bad(ended: Job, tmp_path: Path) -> None:
    (tmp_path / "1.fault").unlink()
    note(tmp_path, 0, 1.25, "rank 1 is lost")
    note(tmp_path, 2, 1.5, "rank 1 is lost")
    assert not ended.judge(3, None, {}).good


def test_a_fault_is_late_if_a_rank_had_ended_in_order(ended: Job, tmp_path: Path) -> None:
    (tmp_path / "0.ended").write_text("1100000000")
    assert not ended.judge(3, None, {}).is_late  # it should have got the error
    (tmp_path / "2.ended").write_text("900000000")
    assert ended.judge(3, None, {}).is_late
    (tmp_path / "1.fault").unlink()
    assert ended.judge(3, None, {}).is_late


def test_a_trial_whose_fault_comes_late_is_repeated_sooner(
    ended: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [Trial((1,), (), (), 2, 0, True), Trial((1,), (0.1,), ("",), 0, 0)]
    delays = []

    def started(build: Path, cell: Cell, np: int, index: int, delay_s: float) -> Any:
        delays.append(delay_s)
        return nullcontext(ended)

    monkeypatch.setattr(faults, "started", started)
    monkeypatch.setattr(Job, "await_start", lambda job, np: None)
    monkeypatch.setattr(Job, "judge", lambda *given: trials.pop(0))
    assert faults.run_trial(Path(), CELL, 3, 0, 0.4).good
    assert delays == [0.4, 0.2]


def test_ranks_that_are_cut_off_name_one_of_the_other_side(ended: Job, tmp_path: Path) -> None:
    ended.ranks = ()
    for rank in range(3):
        note(tmp_path, rank, 3, f"rank {2 if rank < 2 else 0} is lost")
    assert ended.judge(3, 10**9, {0: [2], 1: [2], 2: [0, 1]}).good
    assert ended.judge(3, 10**9, {0: [1], 1: [2], 2: [0, 1]}).misnamed == 1


def test_the_slowest_rank_of_a_trial_counts() -> None:
    trials = [Trial((1,), (0.01, slow), ("", ""), 0, 0) for slow in (0.02, 0.05, 0.03)]
    rows, missing = faults.rows_of(CELL, 4, trials)
    assert not missing
    line = fault_table.table(rows).splitlines()[-1]
    assert [word.strip() for word in line.strip("|").split("|")] == [
        "kill -9",
        "negotiation",
        "30.0 ms",
        "50.0 ms",
        "200.0 ms",
    ]


def test_bad_trials_are_told() -> None:
    trials = [Trial((1,), (0.01,), ("rank 2 is lost",), 1, 1), Trial((2,), (), (), 2, 0)]
    rows, missing = faults.rows_of(CELL, 4, trials)
    assert len(rows) == 2
    assert missing[0]["why"].startswith("2 of 2 trials")
    assert faults.rows_of(CELL, 4, trials[1:])[0] == []


def test_cells_differ_and_a_run_can_be_stored(tmp_path: Path) -> None:
    assert len({(cell.text(), cell.hosts) for cell in CELLS}) == len(CELLS)
    run = {"date": "2026-01-01 00:00", "machine": MACHINE, "command": ""}
    found = Document("faults", [], [], [], run)
    for cell in CELLS:
        found.replace([], *faults.rows_of(cell, 4, [Trial((1,), (0.1,), ("",), 0, 0)]))
    found.save(tmp_path / "faults.json")
    assert len(fault_table.table(found.rows).splitlines()) == len(CELLS) + 2


def test_an_elastic_job_goes_on_where_its_launcher_is(ended: Job, tmp_path: Path) -> None:
    cells = [cell for cell in CELLS if cell.moment == faults.COMMIT]
    assert {cell.does for cell in cells} == {"stop", "cut", "kill_other"}
    assert {cell.failing(0, 4) for cell in cells if cell.hosts == 2} == {(2, 3)}
    ended.cell = cells[0]
    for rank in (0, 2):
        note(tmp_path, rank, 2.5, faults.WHOLE_TEXT_OF_STEP)
    trial = ended.judge(3, 10**9, {})
    assert trial.good and trial.seconds == (1.5, 1.5)


@pytest.mark.parametrize(("moment", "is_noted"), [("start", True), ("transfer", False)])
def test_a_value_error_is_that_of_a_fault_in_init_only(
    moment: str, is_noted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("horovod._core")
    monkeypatch.syspath_prepend(str(PROGRAMS))
    rank: Any = importlib.import_module("fault_rank")

    def raise_it(fault: object) -> None:
        raise ValueError("rank 1 is lost")

    monkeypatch.setitem(rank.MOMENTS, moment, raise_it)
    monkeypatch.setattr(rank, "RANK", 0)
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path), "none", moment, "1", "0"])
    with pytest.raises(ValueError, match="rank 1 is lost"):
        rank.main()
    assert (tmp_path / "0.error").exists() == is_noted

"""Contests: bounds are measured with the others, and jobs that fail are not forgotten."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import overhead
import pytest
import step
from harness import bounds, calls, placement, results, together
from harness.jobs import Ended, Launch, Missing
from harness.placement import Placement
from harness.results import Row, Work
from harness.rounds import Contestant
from harness.together import Bench, Job, Task

WORK = Work("shm", "allreduce", "float32", 2)
OVER_TCP = Work("tcp", "broadcast", "float32", 2)
TORCH = Work("torch", "gradients", "ResNet-50", 2)
LATER = Work("torch", "backward", "ResNet-50", 2)


# ---- bounds ------------------------------------------------------------------------------------


def asked(**more: Any) -> argparse.Namespace:
    return argparse.Namespace(
        **{"rounds": 3, "before": None, "json": None, "plot": None, "peers": None, **more}
    )


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is asked of the program that measures bounds, which answers without measuring."""
    found: list[list[str]] = []

    def answer(launch: Launch, limit_s: float) -> Ended:
        found.append(list(launch.command)[1:])
        rows: list[Row] = [{"what": "signal", "us": 0.5}]
        rows += [{"what": "copy", "bytes": 64, "us": 3.0 + len(found)}]
        if found[-1][0] != "shared":
            rows = [{"what": "wire", "bytes": 64, "us": 7.0}]
        return Ended(0, rows, "", 0.1)

    monkeypatch.setattr(bounds, "program", lambda: "memory")
    monkeypatch.setattr(bounds, "run", answer)
    monkeypatch.setattr(bounds, "cores", lambda: 2)
    monkeypatch.setattr(placement, "here", lambda: Placement(lambda: 1.0))
    return found


def measured(work: Work) -> tuple[list[Row], list[Row]]:
    return calls.measure(work, [], functools.partial(bounds.in_machine, work, [64]), asked())


def test_a_bound_is_measured_in_every_round_and_is_the_median(commands: list[list[str]]) -> None:
    (row,), missing = measured(WORK)
    assert commands == [["shared", "64"]] * 3 and not missing
    assert row["peer"] == results.BOUND and Work.of(row) == WORK
    assert row["rounds"] == {"1": 4.5, "2": 5.5, "3": 6.5} and row["median_us"] == 5.5


def test_a_bound_over_tcp_is_that_of_the_bytes_that_are_sent(commands: list[list[str]]) -> None:
    (row,), _ = measured(OVER_TCP)
    assert commands[0] == ["tcp", "one", "64"] and row["median_us"] == 7
    work = Work("tcp", "allreduce", "float32", 4)
    assert bounds.sent_bytes(work, [8, 1024], 4) == {8: 12, 1024: 1536}
    bounds.over_loopback(work, [8, 1024])
    assert commands[-1] == ["tcp", "both", "12,1536"]


def test_a_bound_that_cannot_be_measured_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise Missing("no compiler")

    monkeypatch.setattr(bounds, "program", none)
    rows, (gap,) = measured(WORK)
    assert not rows and (gap["peer"], gap["why"]) == (results.BOUND, "no compiler")


@pytest.mark.parametrize(
    ("kind", "of_two", "of_four"),
    [
        ("allreduce", 1, 1),
        ("alltoall", 1, 1),
        ("reducescatter", 0.75, 0.625),
        ("allgather", 0.75, 0.625),  # the mirror
        ("broadcast", 0.5, 0.5),  # one only reads, the others only write
    ],
)
def test_a_core_touches_what_is_its_share_of_inputs_and_results(
    kind: str, of_two: float, of_four: float
) -> None:
    assert (bounds.touched(kind, 2), bounds.touched(kind, 4)) == (of_two, of_four)


# ---- cores that the host moves -----------------------------------------------------------------


class Moved:
    """A machine whose signals take what a list says, one after the other, and then 1 us."""

    def __init__(self, *signals_us: float | None) -> None:
        self.left: list[float | None] = [1.0, *signals_us]
        self.runs = 0
        self.placement = Placement(self.signal, self.sleep)
        self.slept = 0.0
        self.placement.are_apart()  # has seen how near they can be

    def signal(self) -> float | None:
        return self.left.pop(0) if self.left else 1.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds

    def run(self, seconds: float = 1.0) -> int:
        """How often the contestant ran for one run that counts."""

        def once(only: object) -> Ended:
            self.runs += 1
            return Ended(0, [{"run": self.runs}], "", seconds)

        before = self.runs
        ended = self.placement.held(Contestant("somebody", once)).run(None)
        assert ended.rows == [{"run": self.runs}]  # the last one counts
        return self.runs - before


def test_a_run_waits_for_cores_near_each_other() -> None:
    moved = Moved(4.0, 3.0, 2.0)
    assert moved.run() == 1 and moved.slept == 2 * placement.LOOK_S


def test_a_run_that_ends_with_cores_apart_is_repeated() -> None:
    assert Moved(1.0, 4.0, 4.0, 1.0, 1.0).run() == 2
    assert Moved(1.0, 2.0).run() == 1  # as near as ever: signals differ


def test_a_signal_that_cannot_be_measured_changes_nothing() -> None:
    moved = Moved(None, None, 2.0, 2.0)
    assert moved.run() == 1 and moved.run() == 1 and moved.slept == 0


def test_waiting_has_an_end_that_grows_with_what_was_run() -> None:
    moved = Moved(*[4.0] * 1000)
    moved.run(seconds=8.0)
    first = moved.placement.spent_s
    assert placement.LEAST_PATIENCE_S <= first <= placement.LEAST_PATIENCE_S + 8
    assert moved.run(seconds=8.0) == 1  # all has been spent
    assert moved.run(seconds=8.0) == 2


# ---- jobs in which all take turns --------------------------------------------------------------


def printed(work: Work, peer: str, number: int, **more: Any) -> Row:
    row = {"peer": peer, "round": number, **vars(work), "bytes": 4}
    return {**row, "median_us": 1.0, "min_us": 1.0, **more}


def job_that(rows: Sequence[Row], end: str = "") -> Launch:
    code = f"print({chr(10).join(map(json.dumps, rows))!r}, flush=True)\nimport os\n{end}"
    return Launch([sys.executable, "-c", code], {})


@pytest.fixture
def contest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Sequence[Row], str], tuple[int, str]]:
    """A bench whose one job prints rows and comes to an end: its exit code, and what it prints."""

    def made(rows: Sequence[Row], end: str) -> tuple[int, str]:
        monkeypatch.setattr(together, "python_job", lambda *words: job_that(rows, end))
        monkeypatch.setattr(sys, "argv", ["bench"])
        arguments = asked(rounds=2, np=[2], seconds=1.0, limit=30, ours=Path("build"))
        code = together.main(Bench("step", "step.py", lambda np: [TORCH, LATER]), arguments)
        return code, capsys.readouterr().out

    return made


BOTH = [printed(TORCH, peer, number) for number in (1, 2) for peer in ("ours", "DDP")]


def test_a_job_that_ends_well_has_no_gaps(contest: Callable[..., tuple[int, str]]) -> None:
    rows = BOTH + [printed(LATER, "ours", number) for number in (1, 2)]
    code, text = contest(rows, "")
    assert code == 0 and "missing" not in text


def test_a_job_that_fails_leaves_gaps_where_it_came_to_nothing(
    contest: Callable[..., tuple[int, str]],
) -> None:
    code, text = contest([*BOTH, printed(LATER, "ours", 1)], "raise SystemExit('Error: lost')")
    assert code == 1
    assert "missing: ours, backward ResNet-50, np 2, torch: the job ended with 1" in text
    assert "missing: ours, gradients" not in text


def test_a_job_that_fails_at_its_end_is_not_forgotten(
    contest: Callable[..., tuple[int, str]],
) -> None:
    rows = BOTH + [printed(LATER, "ours", number) for number in (1, 2)]
    code, text = contest(rows, "os.kill(os.getpid(), 9)")
    assert code == 1 and "missing: ours, backward" in text


def test_a_wrong_result_of_ours_is_a_failure_of_that_work_alone(
    contest: Callable[..., tuple[int, str]],
) -> None:
    rows = BOTH + [printed(LATER, "ours", number, correct=number == 1) for number in (1, 2)]
    code, text = contest(rows, "")
    assert code == 1
    assert text.count("missing:") == 1 and "backward" in text[text.index("missing:") :]


def test_a_peer_that_fails_is_a_gap_and_no_failure_of_ours() -> None:
    job = Job(job_that([], "raise SystemExit(3)"), [TORCH], 1, "Gloo")
    rows, (gap,) = job.run(30)
    assert not rows and gap["peer"] == "Gloo" and calls.exit_code([gap]) == 0


class Alone(together.Ranks):
    """One rank, without a library."""

    def __init__(self, asked: Sequence[str] | None) -> None:
        self.rank, self.size, self.asked = 0, 1, asked

    def greatest(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def end(self) -> None:
        pass


@pytest.mark.parametrize(
    ("peers", "entered"),
    [
        (None, ["ours", "ours, in one group", "Gloo in buckets", "DDP", "DDP, views", "bound"]),
        (["ddp"], ["ours", "ours, in one group", "DDP", "DDP, views", "bound"]),
        (["none"], ["ours", "ours, in one group", "bound"]),
    ],
)
def test_only_peers_that_were_asked_for_enter(
    peers: list[str] | None, entered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["ours", "ours, in one group", "Gloo in buckets", "DDP", "DDP, views", "bound"]
    task = Task(TORCH, 4, {name: lambda: None for name in names})
    together.compete(Alone(peers), task, rounds=1, seconds=0)
    found = [json.loads(line)["peer"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(found) == sorted(entered)


# ---- what is in the contests -------------------------------------------------------------------


def test_who_has_no_room_is_told_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(step, "fits", lambda ranks, shapes, copies: copies <= 1)
    labels = step.with_memory(Alone(None), TORCH, [(4,)], step.GRADIENTS, 0)
    assert labels == ["ours", "Gloo one by one", "ours, in one group"]
    gaps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [gap["peer"] for gap in gaps] == ["Gloo in buckets", "Gloo in buckets, no copies"]
    assert {gap["why"] for gap in gaps} == {"not enough memory"}


def test_a_step_without_us_is_measured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "horovod", "horovod.torch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["torch"], "set_num_threads", print, raising=False)
    monkeypatch.setattr(sys.modules["horovod"], "torch", sys.modules["horovod.torch"], False)
    monkeypatch.setattr(overhead, "trainer", lambda wrap: wrap)
    (work, *_) = overhead.tasks(1)
    task = overhead.training_step(Alone(None), work)
    assert list(task.contestants) == ["ours", "without us", "without us, again"]
    assert task.contestants["without us"] is task.contestants["without us, again"]


def test_without_tensorflow_its_works_are_gaps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    competed: list[Work] = []
    monkeypatch.setattr(overhead, "Ranks", lambda folder, asked: Alone(asked))
    monkeypatch.setattr(overhead, "training_step", lambda ranks, work: Task(work, 0, {}))
    monkeypatch.setattr(together, "compete", lambda ranks, task, *more: competed.append(task.work))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    overhead.work(asked(worker="folder", seconds=1.0))
    gaps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [work.transport for work in competed] == ["torch"]
    assert {Work.of(gap) for gap in gaps} == set(overhead.tasks(1)) - set(competed)
    assert all(gap["why"] == "is not in this environment" for gap in gaps)
    assert calls.exit_code(gaps) == 0

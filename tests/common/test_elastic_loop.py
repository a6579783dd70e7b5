"""How `run` of the frameworks starts the next generation. No job, no framework."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from horovod.common import _elastic_commits, _elastic_loop, basics, elastic_job
from horovod.common._elastic_software import Software, own_software, reject_misfits
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class Job:
    """Stands for shutdown, the launcher and init, and remembers what was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, is_elastic: bool) -> None:
        self.calls: list[str] = []
        monkeypatch.setattr(elastic_job, "is_elastic", lambda: is_elastic)
        monkeypatch.setattr(elastic_job, "pending_update", lambda: None)
        monkeypatch.setattr(elastic_job, "next_generation", self.noting("next_generation"))
        for name in ("shutdown", "init"):
            monkeypatch.setattr(_elastic_loop, name, self.noting(name))
        monkeypatch.setattr(_elastic_loop, "any_rank", lambda flag: flag)
        monkeypatch.setattr(_elastic_loop, "is_initialized", lambda: True)
        monkeypatch.setattr(_elastic_commits, "_largest", lambda own: own)
        world = types.SimpleNamespace(rank=0, size=1)
        monkeypatch.setattr(_elastic_commits, "core", types.SimpleNamespace(world=lambda: world))

    def noting(self, name: str) -> Callable[..., None]:
        return lambda *given: self.calls.append(name)


def train_with(*steps: Any) -> Any:
    left = list(steps)

    @_elastic_loop.run
    def train(state: Any) -> Any:
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    return train(ObjectState(lambda obj: obj, lambda: 0))


def test_s17_an_elastic_job_goes_on_in_the_next_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, is_elastic=True)
    assert train_with(HorovodInternalError("rank 2 was lost"), "done") == "done"
    assert job.calls == ["shutdown", "next_generation", "init"]


def test_other_jobs_begin_anew_with_the_same_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, is_elastic=False)
    assert train_with(HorovodInternalError("failed"), "done") == "done"
    assert job.calls == ["shutdown", "init"]


@pytest.mark.parametrize(
    ("is_elastic", "given", "expected"),
    [
        (False, ([1, 0], "dynamic"), ([1, 0], "dynamic")),
        (False, (None, ["a set"]), (None, ["a set"])),
        (True, ([1, 0], "dynamic"), (None, "dynamic")),
        (True, (None, ["a set"]), (None, None)),
    ],
)
def test_init_is_told_what_still_fits(
    is_elastic: bool, given: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(monkeypatch, is_elastic)
    told: list[Any] = []
    monkeypatch.setattr(basics, "_given", given)
    monkeypatch.setattr(_elastic_loop, "init", lambda *arguments: told.append(arguments))
    train_with(HorovodInternalError("failed"), "done")
    assert told == [expected]


def test_a_worker_that_the_job_does_not_want_any_more_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Job(monkeypatch, is_elastic=True)

    def refuse() -> None:
        raise RuntimeError("this host and slot were removed from the job")

    monkeypatch.setattr(elastic_job, "next_generation", refuse)
    with pytest.raises(RuntimeError, match="removed"):
        train_with(HorovodInternalError("rank 2 was lost"), "never")


def test_a_rank_that_has_returned_begins_anew_with_those_that_have_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, is_elastic=True)
    answers: list[Any] = [True, HorovodInternalError("rank 2 was lost at its last commit"), True]

    def any_rank(flag: bool) -> bool:
        answer = answers.pop(0) if answers else flag
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    monkeypatch.setattr(_elastic_loop, "any_rank", any_rank)
    assert train_with("returned", "returned again") == "returned again"
    assert job.calls == ["shutdown", "next_generation", "init"]


def test_a_function_that_shuts_down_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    Job(monkeypatch, is_elastic=False)
    calls: list[bool] = []
    monkeypatch.setattr(_elastic_loop, "any_rank", calls.append)
    monkeypatch.setattr(_elastic_loop, "is_initialized", lambda: False)
    assert train_with("done") == "done"
    assert calls == [True]


class UnknownError(Exception):
    """Has the name of an error of TensorFlow."""


def test_errors_of_frameworks_that_are_ours_count_as_losses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Job(monkeypatch, is_elastic=True)
    assert train_with(UnknownError("HorovodAllreduce: rank 1 was lost"), "done") == "done"
    with pytest.raises(UnknownError):
        train_with(UnknownError("of TensorFlow itself"), "never")


def test_a_job_that_has_lost_its_launcher_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Job(monkeypatch, is_elastic=True)

    def lost() -> None:
        raise HorovodInternalError("the launcher is lost")

    monkeypatch.setattr(elastic_job, "next_generation", lost)
    with pytest.raises(RuntimeError, match="cannot continue: the launcher") as caught:
        train_with(HorovodInternalError("rank 2 was lost"), "never")
    assert not isinstance(caught.value, HorovodInternalError)


@pytest.mark.parametrize(("added", "removed"), [(True, False), (False, True), (True, True)])
def test_s17_the_launchers_announcements_interrupt(
    added: bool, removed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(monkeypatch, is_elastic=True)
    update = elastic_job.Update(added=added, removed=removed, timestamp=1.0)
    pending = [update, None, None]
    monkeypatch.setattr(elastic_job, "pending_update", lambda: pending.pop(0))
    syncs: list[bool] = []
    monkeypatch.setattr(_elastic_loop, "any_rank", syncs.append)
    calls = []

    @_elastic_loop.run
    def train(state: Any) -> None:
        calls.append("train")
        state.commit()

    train(ObjectState(lambda obj: obj, lambda: 0))
    assert len(calls) == 2 and len(pending) == 1
    assert job.calls == ["shutdown", "next_generation", "init"]
    assert syncs == [True, added, False]


def test_the_state_is_not_taken_from_a_process_that_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has joined, and all others were lost before it had received their state."""
    monkeypatch.setattr(elastic_job, "is_elastic", lambda: True)
    monkeypatch.setattr(elastic_job, "generation", lambda: 3)
    monkeypatch.setattr(_elastic_loop, "allgather_object", lambda flag, name: [flag])
    monkeypatch.setattr(_elastic_loop, "is_initialized", lambda: True)
    monkeypatch.setattr(_elastic_loop, "rank", lambda: 0)
    monkeypatch.setattr(_elastic_loop._process, "has_state", False)
    with pytest.raises(RuntimeError, match=r"generation 3 .* all ranks that had the state"):
        train_with("never")
    monkeypatch.setattr(_elastic_loop, "rank", lambda: 1)
    assert train_with("done") == "done"
    monkeypatch.setattr(_elastic_loop, "rank", lambda: 0)
    assert train_with("it has the state now") == "it has the state now"


def software(has_state: bool, **versions: str) -> Software:
    return Software("a" if has_state else "b", has_state, versions)


def test_a_rank_that_joins_with_another_version_is_rejected_and_the_others_go_on() -> None:
    every = [software(True, torch="2.5"), software(True, torch="2.5"), software(False, torch="2.4")]
    with pytest.raises(
        RuntimeError,
        match=r"rank 2 on b was rejected .* has torch 2\.4, and rank 0 on a .* torch 2\.5; install",
    ):
        reject_misfits(every, 2)
    with (
        pytest.warns(UserWarning, match="rank 2 on b was rejected"),
        pytest.raises(HostsUpdatedInterrupt) as caught,
    ):
        reject_misfits(every, 0)
    assert not caught.value.skip_sync
    with pytest.raises(HostsUpdatedInterrupt):
        reject_misfits(every, 1)


def test_what_only_one_rank_has_imported_is_not_compared() -> None:
    reject_misfits([software(True, torch="2.5"), software(False, torch="2.5", keras="3")], 1)
    reject_misfits([software(True, torch="2.5", keras="3"), software(False, torch="2.5")], 1)
    reject_misfits([own_software(True), own_software(False)], 1)
    assert {"horovod", "python"} <= set(own_software(True).versions)

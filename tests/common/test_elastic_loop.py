"""How `run` of the frameworks starts the next generation. No job, no framework."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horovod.common import _elastic_commits, _elastic_loop, basics, elastic_job
from horovod.common._departure import Departure
from horovod.common._elastic_software import Software, own_software, reject_misfits
from horovod.common._state_files import commits, read_newest
from horovod.common._state_parts import joined
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodShutdownError,
    HostsUpdatedInterrupt,
)


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


class FolderJob(Job):
    """A job with a folder, in which only the first commit is written. Of 3 commits, the last one is
    in memory when a rank is lost."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, is_elastic: bool = True
    ) -> None:
        super().__init__(monkeypatch, is_elastic)
        self.folder = folder
        monkeypatch.setenv("HOROVOD_STATE_DIR", str(folder))
        monkeypatch.setenv("HOROVOD_STATE_SECONDS", "1000")
        monkeypatch.setattr(_elastic_loop, "rank", lambda: 0)
        monkeypatch.setattr(elastic_job, "leave", lambda: None)
        self.state: Any = ObjectState(lambda obj: obj, lambda: 0, step=0)
        self.departures: list[Departure] = []
        of_job = Departure.__init__

        def noted(departure: Departure, *given: Any) -> None:
            self.departures.append(departure)
            of_job(departure, *given)

        monkeypatch.setattr(Departure, "__init__", noted)

    def train(self) -> None:
        @_elastic_loop.run
        def train(state: Any) -> None:
            if state.step == 3:
                return
            for state.step in (1, 2, 3):
                state.commit()
            state.step = 4
            raise HorovodInternalError("rank 2 was lost")

        train(self.state)

    def leave_at_loss(self) -> None:
        """SIGTERM had come when the rank was lost."""
        restore = self.state.restore

        def request() -> None:
            restore()
            self.departures[0].request()

        self.state.restore = request

    def written(self) -> list[int]:
        """The step of the newest commit, and how many there are."""
        _, stored = read_newest(self.folder, joined) or (None, None)
        assert stored is not None
        return [int(stored.own["attributes"]["step"]), len(commits(self.folder))]


def lose_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise HorovodInternalError("the launcher is lost")

    monkeypatch.setattr(elastic_job, "next_generation", lost)
    monkeypatch.setattr(elastic_job, "leave", lost)


def test_a_rank_that_has_lost_the_launcher_keeps_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FolderJob(tmp_path, monkeypatch)
    lose_launcher(monkeypatch)
    with pytest.raises(RuntimeError) as caught:
        job.train()
    said = "this process cannot continue: the launcher is lost; its last commit was written to "
    assert str(caught.value) == f"{said}{commits(tmp_path)[0].path}"
    assert type(caught.value) is RuntimeError
    assert job.written() == [3, 2]


def test_so_does_a_rank_of_a_job_that_is_not_elastic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it begins anew, which takes until the launcher ends it."""
    job = FolderJob(tmp_path, monkeypatch, is_elastic=False)
    monkeypatch.setattr(_elastic_loop, "init", lambda *_: job.departures[0]._take(15, None))
    with pytest.raises(SystemExit) as ended:
        job.train()
    assert ended.value.code == 143 and job.written() == [3, 2]
    newest = commits(tmp_path)[0].path
    assert caplog.messages == [f"rank 0: a rank was lost; its last commit was written to {newest}"]


def test_it_does_so_once_if_it_does_not_begin_anew_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FolderJob(tmp_path, monkeypatch, is_elastic=False)
    kept: list[str] = []
    monkeypatch.setattr(_elastic_commits.Commits, "keep", lambda commits: kept.append("kept"))
    runs = [True, False, False]
    monkeypatch.setattr(_elastic_loop, "is_initialized", lambda: runs.pop(0) if runs else True)
    answers = [HorovodInternalError("not there"), HorovodInternalError("not there"), None]

    def init(*given: Any) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr(_elastic_loop, "init", init)
    job.train()
    assert kept == ["kept"] and answers == []


@pytest.mark.parametrize("is_between", [False, True])
def test_so_does_one_that_leaves_since_the_launcher_is_lost(
    is_between: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM of the supervisor comes before the loss of the rank is seen, or while the process
    asks for its place."""
    job = FolderJob(tmp_path, monkeypatch)
    lose_launcher(monkeypatch)
    if is_between:
        take = lambda: job.departures[0]._take(15, None)  # noqa: E731
        monkeypatch.setattr(elastic_job, "next_generation", take)
    else:
        job.leave_at_loss()
    with pytest.raises(SystemExit) as ended:
        job.train()
    assert ended.value.code == 143 and job.written() == [3, 2]


def test_a_second_signal_does_not_interrupt_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FolderJob(tmp_path, monkeypatch)
    lose_launcher(monkeypatch)
    stored = job.state.stored

    def signalled() -> Any:
        if len(job.departures) == 1 and job.state.step == 3:
            job.departures[0]._take(15, None)
        return stored()

    job.state.stored = signalled
    with pytest.raises(RuntimeError, match="its last commit was written"):
        job.train()
    assert job.departures[0].is_requested and job.written() == [3, 2]


@pytest.mark.parametrize("then", ["goes on", "is refused", "leaves"])
def test_nothing_is_written_for_a_loss_while_the_launcher_is_there(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FolderJob(tmp_path, monkeypatch)
    kept: list[str] = []
    monkeypatch.setattr(_elastic_commits.Commits, "keep", lambda commits: kept.append("kept"))

    def refused() -> None:
        raise HorovodShutdownError("this host and slot were removed from the job")

    if then == "goes on":
        job.train()
        assert job.calls == ["shutdown", "next_generation", "init"]
    elif then == "is refused":
        monkeypatch.setattr(elastic_job, "next_generation", refused)
        with pytest.raises(HorovodShutdownError):
            job.train()
    else:
        job.leave_at_loss()
        with pytest.raises(SystemExit):
            job.train()
    assert kept == []


def test_ranks_agree_on_the_last_commit_in_each_generation_before_they_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a rank that has joined, and is the only one left, knows how new its state is."""
    job = FolderJob(tmp_path, monkeypatch)
    noted: list[str] = []
    monkeypatch.setattr(_elastic_commits.Commits, "begin", lambda commits: noted.append("begin"))
    monkeypatch.setattr(job.state, "sync", lambda: noted.append("sync"))
    job.train()
    assert noted == ["begin", "sync"] * 2


def test_a_process_that_never_had_the_state_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FolderJob(tmp_path, monkeypatch)
    lose_launcher(monkeypatch)

    def lost() -> None:
        raise HorovodInternalError("rank 0 was lost")

    job.state.sync = lost
    with pytest.raises(RuntimeError, match=r"cannot continue: the launcher is lost$"):
        job.train()
    assert commits(tmp_path) == []


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


def software(has_state: bool, call: str = "train() (call 1)", **versions: str) -> Software:
    return Software("a" if has_state else "b", has_state, versions, call)


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
    reject_misfits([own_software(True, ""), own_software(False, "")], 1)
    assert {"horovod", "python"} <= set(own_software(True, "").versions)


def test_a_rank_that_joins_in_another_function_is_rejected_and_the_others_go_on() -> None:
    every = [software(True, "inner() (call 2)"), software(True, "last() (call 3)"), software(False)]
    said = r"has entered train\(\) \(call 1\), and rank 0 on a is in inner\(\) \(call 2\):"
    with pytest.raises(RuntimeError, match=f"rank 2 on b .* {said}"):
        reject_misfits(every, 2)
    with pytest.raises(HostsUpdatedInterrupt):
        reject_misfits(every, 1)


@pytest.mark.parametrize("is_elastic", [False, True])
def test_calls_of_training_functions_are_numbered_and_elastic_ones_not_nested(
    is_elastic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job(monkeypatch, is_elastic)
    monkeypatch.setattr(elastic_job, "generation", lambda: 0)
    process = _elastic_loop._Process()
    monkeypatch.setattr(_elastic_loop, "_process", process)
    calls: list[str] = []

    @_elastic_loop.run
    def inner(state: Any) -> None:
        calls.append(process.call)

    @_elastic_loop.run
    def train(state: Any) -> None:
        calls.append(process.call)
        inner(state)
        calls.append(process.call)

    state = ObjectState(lambda obj: obj, lambda: 0)
    inner(state)
    if is_elastic:
        with pytest.raises(RuntimeError, match=r"inner\(\) was called in train\(\), and both have"):
            train(state)
    else:
        train(state)
    inner(state)
    every = ["inner() (call 1", "train() (call 2", "inner() (call 3"]
    if not is_elastic:
        every += ["train() (call 2", "inner() (call 4"]
    assert [call.removesuffix(" of a function with run)") for call in calls] == every

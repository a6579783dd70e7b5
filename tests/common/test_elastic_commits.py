"""What ranks write and who leaves at a commit. Ranks are threads of this process; no job."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commit_ranks import EACH_COMMIT, Rank, Ranks, loaded_step, numbers

from horovod.common import _elastic_commits, _state_files
from horovod.common._departure import EXIT_CODE, Departure
from horovod.common._elastic_commits import Commits, StateFolder
from horovod.common._state_files import commits
from horovod.common.elastic import ObjectState, added, removed
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 2)])
def test_another_number_of_ranks_continues(
    before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StateFolder(tmp_path, EACH_COMMIT)
    ranks = Ranks(before, monkeypatch)
    assert ranks.run(lambda rank: Rank(ranks, folder).train(5)) == [5] * before
    ranks = Ranks(after, monkeypatch)

    def go_on(rank: int) -> Any:
        one = Rank(ranks, folder)
        loaded = one.commits.load() if rank == 0 else None
        return loaded, one.train(1)

    assert ranks.run(go_on)[0] == (True, 6)
    assert numbers(tmp_path)[:2] == [6, 5]
    assert {len(list(commit.path.iterdir())) for commit in commits(tmp_path)[:1]} == {after}


@pytest.mark.parametrize("first", [1, 2])
def test_a_full_disk_gives_one_warning_and_training_continues(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`first`: the commit from which on the disk is full, up to the fourth."""
    folder = StateFolder(tmp_path, EACH_COMMIT)
    ranks = Ranks(3, monkeypatch)
    write_part = _state_files.write_part

    def full(commit: Any, part: int, parts: int, content: Any) -> None:
        if part > 0 and first <= commit.number <= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_part(commit, part, parts, content)

    monkeypatch.setattr(_state_files, "write_part", full)
    assert ranks.run(lambda rank: Rank(ranks, folder).train(4)) == [4] * 3
    (warning,) = caplog.messages
    begins = "with the last commit that was written" if first == 2 else "from the beginning"
    assert "rank 2: No space left on device. Training continues. " in warning
    assert f"new start begins {begins}. This is the only warning" in warning
    one = Rank(ranks, folder)
    assert one.commits.load() == (first == 2) and one.state.step == first - 1
    assert ranks.run(lambda rank: Rank(ranks, folder).train(2)) == [2] * 3  # there is room again
    assert numbers(tmp_path)[:2] == [6, 5]


def test_writing_takes_a_small_part_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock shows what the slowest rank needs: 1 s for each write, 0.1 s for each step."""
    ranks = Ranks(2, monkeypatch)
    clocks = [0.0, 0.0]

    def monotonic() -> float:
        return clocks[ranks.here.rank]

    def write_part(commit: Any, part: int, parts: int, content: Any) -> None:
        written.append(commit.number)
        clocks[part] += float(part)

    written: list[int] = []
    monkeypatch.setattr(_elastic_commits, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(_state_files, "write_part", write_part)

    def train(rank: int) -> None:
        one = Rank(ranks, StateFolder(tmp_path, 0))
        for _ in range(1000):
            clocks[rank] += 0.1
            one.train(1)

    ranks.run(train)
    assert 4 <= len(written) / 2 <= 8


def test_the_last_commit_is_written_when_training_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks(2, monkeypatch)

    def train(rank: int) -> None:
        one = Rank(ranks, StateFolder(tmp_path, 1000))
        one.train(3)
        one.commits.finish()
        one.commits.finish()

    ranks.run(train)
    assert numbers(tmp_path) == [3, 1]
    one = Rank(ranks, StateFolder(tmp_path, 1000))
    assert one.commits.load() and one.state.step == 3


def cut_off(one: Rank) -> None:
    """The rank saves its next commit, and no other one does: a rank is lost."""

    def lost(own: Any) -> Any:
        raise HorovodInternalError("rank 3 was lost")

    one.commits._largest = lost
    with pytest.raises(HorovodInternalError):
        one.train(1)


@pytest.mark.parametrize("ahead", [(), (0,), (1,), (2,), (0, 2)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2)])
def test_each_rank_that_is_left_alone_keeps_its_last_commit_and_the_newest_is_used(
    ahead: tuple[int, ...], order: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them have saved a commit that the others have not. They keep it one by one; rank 0
    may have been lost, too."""
    ranks = Ranks(3, monkeypatch)
    every = [Rank(ranks, StateFolder(tmp_path, 1000), is_elastic=True) for _ in range(3)]
    ranks.run(lambda rank: every[rank].train(4))
    for rank in ahead:
        ranks.run(lambda own, rank=rank: cut_off(every[own]) if own == rank else None)
    assert numbers(tmp_path) == [1]
    for rank in order:
        assert every[rank].commits.keep() is not None
    assert loaded_step(tmp_path) == (5 if set(order) & set(ahead) else 4)
    for commit in commits(tmp_path):
        assert commit.number == 1 or [path.name for path in commit.path.iterdir()] == [
            "part-0-of-1"
        ]
    assert len(commits(tmp_path)) <= 2


def test_of_equal_commits_that_of_the_lowest_rank_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the next generation. A rank writes nothing if the folder has what is used before its
    own."""
    ranks = Ranks(4, monkeypatch)
    every = [Rank(ranks, StateFolder(tmp_path, 1000), is_elastic=True) for _ in range(4)]
    ranks.run(lambda rank: every[rank].train(2))
    for rank in (2, 1, 3):
        every[rank].state._saved["step"] = 100 + rank
        every[rank].commits.keep()
    assert loaded_step(tmp_path) == 101
    assert len(commits(tmp_path)) == 2
    assert str(every[3].commits.keep()).endswith(" before")


def test_a_commit_that_all_have_written_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks(2, monkeypatch)
    every = [Rank(ranks, StateFolder(tmp_path, EACH_COMMIT), is_elastic=True) for _ in range(2)]
    ranks.run(lambda rank: every[rank].train(3))
    before = commits(tmp_path)
    assert [str(one.commits.keep()) for one in every] == [
        f"the last commit was written to {before[0].path} before"
    ] * 2
    assert commits(tmp_path) == before


def test_a_rank_that_has_joined_knows_how_new_its_state_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the only one that is left, before a commit of this generation."""
    ranks = Ranks(2, monkeypatch)
    first = [Rank(ranks, StateFolder(tmp_path, 1000), is_elastic=True) for _ in range(2)]
    ranks.run(lambda rank: first[rank].train(50))
    second = [first[1], Rank(ranks, StateFolder(tmp_path, 1000), is_elastic=True)]
    ranks.run(lambda rank: second[rank].commits.begin())
    second[1].state.step = 50
    second[1].state.save()
    first[0].commits.keep()  # it was given up, and wakes up later
    second[1].commits.keep()
    assert numbers(tmp_path) == [51, 50]


def test_a_job_that_was_started_meanwhile_soon_has_the_newest_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Ranks(1, monkeypatch)
    folder = StateFolder(tmp_path, 1000)
    old, new = Rank(ranks, folder, is_elastic=True), Rank(ranks, StateFolder(tmp_path, EACH_COMMIT))

    def both(rank: int) -> None:
        old.train(100)
        assert new.commits.load()
        new.commits.begin()
        old.commits.keep()
        new.train(1)

    ranks.run(both)
    assert numbers(tmp_path) == [101, 100] and loaded_step(tmp_path) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_rank_that_cannot_keep_its_commit_warns(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = Ranks(1, monkeypatch)
    one = Rank(ranks, StateFolder(tmp_path, 1000), is_elastic=True)
    ranks.run(lambda rank: one.train(3))

    def fail(*arguments: Any) -> None:
        raise OSError(number, "of the system")

    monkeypatch.setattr(os, "fsync", fail)
    reason = os.strerror(number)
    said = f"rank 0: the last commit could not be written to {tmp_path}: {reason}. A new start"
    assert one.commits.keep() is None
    (warning,) = caplog.messages
    assert warning == f"{said} begins with the last commit that was written"
    assert loaded_step(tmp_path) == 1 and numbers(tmp_path) == [1]


def test_a_rank_with_sigterm_leaves_an_elastic_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(3, monkeypatch)

    def train(rank: int) -> int:
        one = Rank(ranks, None, is_elastic=True)
        one.train(2)
        if rank == 1:
            one.departure.request()
        return one.train(2)

    first, left, last = ranks.run(train)
    assert isinstance(first, HostsUpdatedInterrupt) and first.skip_sync
    assert isinstance(last, HostsUpdatedInterrupt) and last.skip_sync
    assert isinstance(left, SystemExit) and left.code == EXIT_CODE == 143


def test_ranks_learn_of_changed_hosts_by_the_same_reduction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what rank 0 knows counts. What others knew by then is over with it."""
    ranks = Ranks(3, monkeypatch)

    def no_broadcast(obj: Any) -> Any:
        raise AssertionError("a second collective operation")

    def train(rank: int) -> Any:
        one = Rank(ranks, None, is_elastic=True)
        one.state._bcast_object = no_broadcast
        if rank == 2:
            one.state.on_hosts_updated(7.0, removed)
        assert one.train(1) == 1
        if rank == 0:
            one.state.on_hosts_updated(1_800_000_000.123456789, added)
        with pytest.raises(HostsUpdatedInterrupt) as caught:
            one.train(1)
        assert not caught.value.skip_sync and one.state.step == 2
        assert one.state.known_updates() == (None, 0)
        return one.train(1)

    assert ranks.run(train) == [3, 3, 3]


def test_otherwise_all_ranks_leave_when_all_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher ends all ranks when the first one has ended."""
    ranks = Ranks(3, monkeypatch)
    write_part = _state_files.write_part
    leaving: list[int] = []

    def slow_on_one(commit: Any, part: int, parts: int, content: Any) -> None:
        time.sleep(0.2 if part == 2 else 0)
        write_part(commit, part, parts, content)

    def leave(departure: Departure) -> None:
        leaving.append(len(list(commits(tmp_path)[0].path.iterdir())))
        raise SystemExit(EXIT_CODE)

    monkeypatch.setattr(_state_files, "write_part", slow_on_one)
    monkeypatch.setattr(Departure, "leave", leave)

    def train(rank: int) -> int:
        one = Rank(ranks, StateFolder(tmp_path, 1000))
        one.train(2)
        if rank == 1:
            one.departure.request()
        return one.train(2)

    found = ranks.run(train)
    assert [type(one) for one in found] == [SystemExit] * 3
    assert leaving == [3, 3, 3]
    one = Rank(ranks, StateFolder(tmp_path, 1000))
    assert one.commits.load() and one.state.step == 3


def test_sigterm_is_noted_and_children_end_by_it(tmp_path: Path) -> None:
    departure = Departure()
    with departure.watched():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # the same request, by another way
        assert departure.is_requested
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGTERM
        with pytest.raises(SystemExit), departure.between_generations():
            pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_between_two_generations_ends_the_process_at_once() -> None:
    departure = Departure()
    with departure.watched(), pytest.raises(SystemExit), departure.between_generations():
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("not reached")


def test_a_process_that_leaves_announces_it_if_the_launcher_is_there() -> None:
    def lost() -> None:
        raise HorovodInternalError("the launcher is lost")

    announced: list[str] = []
    for announce in (lambda: announced.append("once"), lost):
        with pytest.raises(SystemExit) as ended:
            Departure(announce).leave()
        assert ended.value.code == EXIT_CODE
    assert announced == ["once"]


def test_a_handler_of_the_script_stays() -> None:
    def own(number: int, frame: Any) -> None:
        pass

    before = signal.signal(signal.SIGTERM, own)
    try:
        with Departure().watched():
            assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_state_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    class OwnState(ObjectState):
        def stored(self) -> Any:
            return super(ObjectState, self).stored()

    state = OwnState(lambda obj: obj, lambda: 0, step=0)
    with pytest.raises(NotImplementedError, match=r"OwnState has no stored\(\)"):
        Commits(state, StateFolder(tmp_path, 0), Departure(), False)

"""The state that elastic training keeps, and its loop. One process, no framework."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from horovod.common import elastic
from horovod.common.elastic import ObjectState, State, run_fn
from horovod.common.exceptions import (
    HorovodInternalError,
    HorovodMismatchError,
    HostsUpdatedInterrupt,
)


class Log(State):
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(lambda obj: obj, lambda: 0)
        self.calls: list[str] = []

    def save(self) -> None:
        self.calls.append("save")

    def restore(self) -> None:
        self.calls.append("restore")

    def sync(self) -> None:
        self.calls.append("sync")

    def reset(self) -> None:
        self.calls.append("state.reset")


def scripted(*steps: Any) -> Callable[..., Any]:
    """A training that raises or returns what `steps` say, one for each call."""
    left = list(steps)

    def train(state: Log, *args: Any, **kwargs: Any) -> Any:
        state.calls.append("train")
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return (step, args, kwargs)

    return train


def looped(state: Log, *steps: Any) -> Any:
    return run_fn(scripted(*steps), lambda: state.calls.append("reset"))(state, 1, two=2)


def test_the_update_results_are_bits() -> None:
    assert (elastic.no_update, elastic.removed, elastic.added, elastic.mixed) == (0, 1, 2, 3)


def test_s17_the_function_runs_after_a_sync_and_its_result_is_returned() -> None:
    state = Log()
    assert looped(state, "done") == ("done", (1,), {"two": 2})
    assert state.calls == ["sync", "train"]


def test_s17_an_internal_error_restores_resets_and_syncs() -> None:
    state = Log()
    assert looped(state, HorovodInternalError("lost"), "done")[0] == "done"
    again = ["restore", "reset", "state.reset", "sync", "train"]
    assert state.calls == ["sync", "train", *again]


@pytest.mark.parametrize("skip_sync", [False, True])
def test_s17_an_interrupt_restores_nothing_and_syncs_unless_told(skip_sync: bool) -> None:
    state = Log()
    looped(state, HostsUpdatedInterrupt(skip_sync), "done")
    sync = [] if skip_sync else ["sync"]
    assert state.calls == ["sync", "train", "reset", "state.reset", *sync, "train"]


def test_s17_a_skipped_sync_is_skipped_once() -> None:
    state = Log()
    looped(state, HostsUpdatedInterrupt(True), HorovodInternalError("lost"), "done")
    assert state.calls[-5:] == ["restore", "reset", "state.reset", "sync", "train"]


def test_an_error_while_beginning_anew_begins_anew_again() -> None:
    state = Log()
    failures = [HorovodInternalError("lost during the reset"), None]
    synced = [None, HorovodInternalError("lost during the sync"), None]

    def reset() -> None:
        state.calls.append("reset")
        error = failures.pop(0) if failures else None
        if error is not None:
            raise error

    def sync() -> None:
        state.calls.append("sync")
        error = synced.pop(0)
        if error is not None:
            raise error

    state.sync = sync  # type: ignore[method-assign]
    train = scripted(HostsUpdatedInterrupt(False), "done")
    assert run_fn(train, reset)(state)[0] == "done"
    first = ["sync", "train", "reset", "restore"]
    second = ["reset", "state.reset", "sync", "restore"]
    assert state.calls == [*first, *second, "reset", "state.reset", "sync", "train"]


@pytest.mark.parametrize("error", [HorovodMismatchError("shapes differ"), KeyError("mine")])
def test_other_errors_pass(error: Exception) -> None:
    state = Log()
    with pytest.raises(type(error)):
        looped(state, error, "never")
    assert state.calls == ["sync", "train"]


def test_the_decorated_function_keeps_its_name() -> None:
    assert run_fn(scripted, lambda: None).__name__ == "scripted"


def test_reset_callbacks_run_in_order_after_the_states_own() -> None:
    state = Log()
    state.register_reset_callbacks([lambda: state.calls.append("first")])
    state.register_reset_callbacks([lambda: state.calls.append("second")])
    state.on_reset()
    assert state.calls == ["state.reset", "first", "second"]


@pytest.mark.parametrize(
    ("updates", "skip_sync"),
    [
        ([elastic.removed], True),
        ([elastic.removed, elastic.removed], True),
        ([elastic.added], False),
        ([elastic.mixed], False),
        ([elastic.removed, elastic.added], False),
    ],
)
def test_s17_commit_saves_then_tells_of_other_hosts(updates: list[int], skip_sync: bool) -> None:
    state = Log()
    for timestamp, update in enumerate(updates):
        state.on_hosts_updated(timestamp, update)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync == skip_sync
    assert state.calls == ["save"]
    state.commit()  # once


def test_an_update_that_changed_nothing_interrupts_nobody() -> None:
    state = Log()
    state.on_hosts_updated(1, elastic.no_update)
    state.commit()
    assert state.calls == ["save"]


class Ranks:
    """Two states whose broadcast gives what the first of them sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.states = [ObjectState(self.from_first, lambda: 0), ObjectState(self.to_other, int)]

    def from_first(self, obj: Any) -> Any:
        self.sent.append(obj)
        return obj

    def to_other(self, obj: Any) -> Any:
        return self.sent.pop(0)

    def interrupted(self) -> list[bool]:
        found = []
        for state in self.states:
            try:
                state.check_host_updates()
                found.append(False)
            except HostsUpdatedInterrupt:
                found.append(True)
        return found


def test_s17_all_ranks_raise_together_when_rank_0_has_heard() -> None:
    ranks = Ranks()
    ranks.states[1].on_hosts_updated(1, elastic.added)
    assert ranks.interrupted() == [False, False]
    ranks.states[0].on_hosts_updated(1, elastic.added)
    assert ranks.interrupted() == [True, True]
    assert ranks.interrupted() == [False, False]


def test_what_rank_0_acted_upon_does_not_interrupt_again_when_another_is_rank_0() -> None:
    ranks = Ranks()
    for state in ranks.states:
        state.on_hosts_updated(1, elastic.added)
    ranks.states[1].on_hosts_updated(2, elastic.removed)
    assert ranks.interrupted() == [True, True]
    ranks.states.reverse()
    for state, send in zip(ranks.states, (ranks.from_first, ranks.to_other), strict=True):
        state._bcast_object = send
    assert ranks.interrupted() == [True, True]  # the later one was not acted upon
    assert ranks.interrupted() == [False, False]


def test_updates_may_come_from_another_thread() -> None:
    state = Log()
    telling = threading.Thread(target=state.on_hosts_updated, args=(1, elastic.added))
    telling.start()
    telling.join()
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()


def test_an_object_state_goes_back_to_the_last_save() -> None:
    state: Any = ObjectState(lambda obj: obj, lambda: 0, epoch=0, seen=[1], best=None)
    state.epoch, state.best = 3, 0.5
    state.seen.append(2)
    state.restore()
    assert (state.epoch, state.seen, state.best) == (0, [1], None)
    state.epoch = 4
    state.seen.append(3)
    state.commit()
    for _ in range(2):  # what was restored may change, and be restored again
        state.seen.append(4)
        state.epoch += 1
        state.restore()
        assert (state.epoch, state.seen) == (4, [1, 3])


def test_attributes_beside_the_given_ones_are_left_alone() -> None:
    state: Any = ObjectState(lambda obj: obj, lambda: 0, epoch=0)
    state.other = 1
    state.save()
    state.other = 2
    state.restore()
    assert state.other == 2


def test_sync_takes_rank_0s_values_which_then_count_as_saved() -> None:
    state: Any = ObjectState(lambda obj: {"epoch": 7, "seen": [7]}, lambda: 1, epoch=0, seen=[])
    state.sync()
    assert (state.epoch, state.seen) == (7, [7])
    state.seen.append(8)
    state.epoch = 9
    state.restore()
    assert (state.epoch, state.seen) == (7, [7])


def test_sync_sends_what_is_there_now() -> None:
    sent = []

    def send(obj: Any) -> Any:
        sent.append(dict(obj))
        return obj

    state: Any = ObjectState(send, lambda: 0, epoch=0)
    state.epoch = 5
    state.sync()
    state.epoch = 6
    state.restore()
    assert sent == [{"epoch": 5}]
    assert state.epoch == 5


def test_a_loss_during_a_sync_leaves_the_last_save_as_it_was() -> None:
    class Twice(ObjectState):
        """A state with a second part, which does not arrive."""

        def receive(self) -> None:
            super().receive()
            raise HorovodInternalError("rank 0 was lost")

    state: Any = Twice(lambda obj: {"epoch": 7}, lambda: 1, epoch=2)
    with pytest.raises(HorovodInternalError):
        state.sync()
    state.restore()
    assert state.epoch == 2


def test_all_ranks_sync_if_one_of_them_must() -> None:
    """A new rank needs the state, or one has seen an error where this one was interrupted."""
    state = Log()
    others = [False, True]
    asked: list[bool] = []

    def any_rank(flag: bool) -> bool:
        asked.append(flag)
        return flag or others.pop(0)

    train = scripted(HostsUpdatedInterrupt(True), HostsUpdatedInterrupt(True), "done")
    run_fn(train, lambda: None, any_rank)(state)
    assert asked == [True, False, False]
    assert state.calls.count("sync") == 2 and state.calls[-2:] == ["sync", "train"]


@pytest.mark.parametrize("result", [elastic.added, elastic.removed, elastic.mixed])
def test_s17_what_the_state_listens_to_interrupts(result: int) -> None:
    announced = [(1.0, result)]
    state = Log()
    state.listen_to(lambda: announced.pop() if announced else None)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync == (result == elastic.removed)
    state.commit()


def test_what_was_known_before_a_reset_causes_no_other() -> None:
    state = Log()
    calls = []

    def train(state: Log) -> None:
        calls.append("train")
        if len(calls) == 1:
            state.on_hosts_updated(2.0, elastic.removed)
            raise HorovodInternalError("lost before it was looked at")
        state.commit()

    run_fn(train, lambda: None)(state)
    assert len(calls) == 2


def test_an_empty_state_sends_nothing() -> None:
    def never(obj: Any) -> Any:
        raise AssertionError("nothing to send")

    ObjectState(never, lambda: 0).sync()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *((word, True) for word in ("1", "true", "Yes", "on")),
        *((word, False) for word in ("0", "false", "no", "Off", "")),
    ],
)
def test_the_words_for_an_elastic_job_are_those_of_the_knob(
    monkeypatch: pytest.MonkeyPatch, word: str, expected: bool
) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", word)
    assert elastic.is_elastic() is expected

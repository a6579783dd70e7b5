"""Helpers that are no part of the documented interface, but that scripts import."""

from __future__ import annotations

import pytest

from horovod.common import util
from horovod.runner.common.util import secret, timeout
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.util.threads import in_thread

LAUNCHERS = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


@pytest.mark.parametrize("rank", LAUNCHERS)
def test_the_place_of_a_process_is_what_its_launcher_says(
    rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.replace("RANK", "SIZE"), raising=False)
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv(rank, "2")
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv(rank.replace("RANK", "SIZE"), "3")
    assert get_env_rank_and_size() == (2, 3)


def test_only_the_key_makes_the_digest_of_a_message() -> None:
    key, other = secret.make_secret_key(), secret.make_secret_key()
    digest = secret.compute_digest(key, b"message")
    assert len(digest) == secret.DIGEST_LENGTH
    assert secret.check_digest(key, b"message", digest)
    assert not secret.check_digest(key, b"massage", digest)
    assert not secret.check_digest(other, b"message", digest)


def test_a_timeout_names_the_activity_for_which_no_time_is_left() -> None:
    text = "no time for {activity} within {timeout} s"
    ample, over = timeout.Timeout(3600, text), timeout.Timeout(0, text)
    assert 0 < ample.remaining() <= 3600 and not ample.timed_out()
    ample.check_time_out_for("tea")
    assert over.remaining() == 0 and over.timed_out()
    with pytest.raises(timeout.TimeoutException, match="no time for tea within 0 s"):
        over.check_time_out_for("tea")


def test_functions_run_in_threads_of_their_own() -> None:
    seen: list[int] = []
    thread = in_thread(seen.append, (3,), name="three")
    thread.join(60)
    assert seen == [3] and thread.daemon and thread.name == "three"


@pytest.mark.parametrize("silent", [True, False])
def test_what_a_thread_raises_is_dropped_only_if_it_is_to_be_silent(
    silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[type[BaseException]] = []
    monkeypatch.setattr("threading.excepthook", lambda what: said.append(what.exc_type))
    in_thread(lambda: 1 // 0, silent=silent).join(60)
    assert said == ([] if silent else [ZeroDivisionError])


def test_cached_functions_are_called_once_for_the_same_arguments() -> None:
    calls: list[tuple[int, int]] = []

    @util._cache
    def add(one: int, other: int = 0) -> int:
        calls.append((one, other))
        return one + other

    assert [add(1), add(1), add(1, other=2), add(1, other=2)] == [1, 1, 3, 3]
    assert calls == [(1, 0), (1, 2)]

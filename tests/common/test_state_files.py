"""Committed states in a folder: what is used after a crash, and what is not. No job."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from horovod.common import _state_files, _state_parts
from horovod.common._state_files import (
    commit_in,
    nonce_of_all,
    nonce_of_one,
    read_newest,
    remove_old,
    write_alone,
    write_part,
)
from horovod.common._state_parts import joined, part_of
from horovod.common.elastic import ObjectState, Stored

NONCE = 0x5B1F0C62A9D3E840


def write(folder: Path, number: int, stored: Any, parts: int = 2, nonce: int = NONCE) -> Path:
    commit = commit_in(folder, number, nonce)
    for part in range(parts):
        write_part(commit, part, parts, part_of(stored, part, parts).content)
    return commit.path


def state_of(step: int) -> Stored:
    numpy = pytest.importorskip("numpy")
    arrays = {name: numpy.full(size, step) for name, size in (("w", 1000), ("b", 10), ("c", 300))}
    arrays["tied"] = arrays["w"]
    return Stored({"variables": arrays}, {"attributes": {"step": step}})


def newest(folder: Path) -> int | None:
    """The step of the newest commit. All its values are of this step."""
    _, stored = read_newest(folder, joined) or (None, None)
    if stored is None:
        return None
    step = stored.own["attributes"]["step"]
    variables = stored.shared["variables"]
    assert {name: len(array) for name, array in variables.items()} == {
        "w": 1000,
        "b": 10,
        "c": 300,
        "tied": 1000,
    }
    assert all((array == step).all() for array in variables.values())
    assert variables["tied"] is variables["w"]
    return int(step)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_any_number_of_parts_gives_the_state(parts: int, tmp_path: Path) -> None:
    write(tmp_path, 1, state_of(5), parts)
    assert newest(tmp_path) == 5


def test_each_part_has_its_share_of_the_arrays() -> None:
    stored = state_of(5)
    counts = [sum(map(len, part_of(stored, part, 2).content["arrays"].values())) for part in (0, 1)]
    held = [sum(len(a) for a in part_of(stored, p, 2).content["arrays"].values()) for p in (0, 1)]
    assert counts == held == [1000, 310]


def test_an_empty_or_missing_folder_has_no_commit(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    assert newest(tmp_path / "missing") is None


@pytest.mark.parametrize("part", [0, 1])
def test_a_commit_without_all_parts_is_not_used(part: int, tmp_path: Path) -> None:
    write(tmp_path, 1, state_of(5))
    path = write(tmp_path, 2, state_of(6))
    (path / f"part-{part}-of-2").rename(path / f".part-{part}.123")  # it was not renamed yet
    assert newest(tmp_path) == 5


def test_parts_of_different_jobs_do_not_mix(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both wrote commit 2, and were ended while they wrote."""
    write(tmp_path, 1, state_of(5))
    (write(tmp_path, 2, state_of(6), nonce=1) / "part-1-of-2").unlink()
    (write(tmp_path, 2, state_of(7), nonce=2) / "part-0-of-2").unlink()
    assert newest(tmp_path) == 5
    assert len(caplog.messages) == 2
    for message in caplog.messages:
        assert re.search(
            r"is not used: it is incomplete: it has part-.* Commit 1 is used$", message
        )


def test_every_damage_to_a_part_is_seen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 1, state_of(5))
    good = (write(tmp_path, 2, state_of(6)) / "part-1-of-2").read_bytes()
    lengths = [0, 1, 20, len(good) // 2, len(good) - 1]
    damaged = [good[:length] for length in lengths]
    for at in (0, 20, len(good) // 2, len(good) - 1):
        damaged.append(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    for content in damaged:
        path = write(tmp_path, 2, state_of(6))
        (path / "part-1-of-2").write_bytes(content)
        caplog.clear()
        assert newest(tmp_path) == 5
        assert re.search(r"part-1-of-2 is damaged: .* Commit 1 is used$", caplog.messages[0])
        assert not path.exists()  # it is renamed, and not counted as one of the last two
        (tmp_path / f"damaged-{path.name}").rename(
            tmp_path / f"seen-{len(content)}-{hash(content)}"
        )


def test_if_no_commit_can_be_used_one_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        part = write(tmp_path, number, state_of(number)) / "part-1-of-2"
        part.write_bytes(part.read_bytes()[:100])
    assert newest(tmp_path) is None
    (message,) = caplog.messages
    assert message.startswith(f"no commit in {tmp_path} can be used: training begins anew (")
    assert message.count("part-1-of-2 is damaged") == 2
    caplog.clear()
    (tmp_path / "empty").mkdir()
    assert newest(tmp_path / "empty") is None and not caplog.messages


def test_a_state_that_needs_what_the_script_lacks_names_its_folder(tmp_path: Path) -> None:
    global Gone

    class Gone:
        pass

    Gone.__qualname__ = "Gone"
    path = write(tmp_path, 3, Stored({}, {"attributes": {"it": Gone()}}))
    del Gone
    said = f"the state in {path} does not fit this script: .*Gone.*HOROVOD_STATE_DIR={tmp_path}\\)"
    with pytest.raises(ValueError, match=said):
        newest(tmp_path)


def test_a_part_of_another_user_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1, state_of(5))
    path = write(tmp_path, 2, state_of(6))
    (path / "part-0-of-2").chmod(0o602)
    assert newest(tmp_path) == 5
    assert "all users may write to it" in caplog.text
    if os.geteuid() == 0:
        os.chown(path.parent / f"damaged-{path.name}" / "part-0-of-2", 0, 0)
        monkeypatch.setattr(os, "geteuid", lambda: 1)
        os.chown(commit_in(tmp_path, 1, NONCE).path / "part-0-of-2", 2, 2)
        assert newest(tmp_path) is None
        assert "belongs to user 2" in caplog.text


def test_the_last_two_complete_commits_are_kept(tmp_path: Path) -> None:
    for number in range(1, 6):
        write(tmp_path, number, state_of(number))
        remove_old(commit_in(tmp_path, number, NONCE))
    for number in (6, 7):  # the disk is full
        (write(tmp_path, number, state_of(number)) / "part-1-of-2").unlink()
        remove_old(commit_in(tmp_path, number, NONCE))
    assert [commit.number for commit in _state_files.commits(tmp_path)] == [7, 5, 4]


def alone(folder: Path, number: int, rank: int, step: int) -> Path:
    """A commit that one rank writes. Returns the one that is used."""
    commit = commit_in(folder, number, nonce_of_one(rank))
    return write_alone(commit, lambda: part_of(state_of(step), 0, 1).content).path


def test_of_commits_of_single_ranks_the_newest_then_the_lowest_rank_counts(tmp_path: Path) -> None:
    for number, rank, step, used in (
        (7, 5, 75, 75),
        (6, 0, 60, 75),  # older
        (7, 1_000_000, 70, 75),  # of a higher rank
        (7, 3, 73, 73),
        (8, 9, 89, 89),
        (8, 2, 82, 82),
    ):
        alone(tmp_path, number, rank, step)
        assert newest(tmp_path) == used
    assert len(_state_files.commits(tmp_path)) == 2
    write(tmp_path, 8, state_of(80), nonce=nonce_of_all())
    assert newest(tmp_path) == 80
    alone(tmp_path, 8, 0, 81)
    assert newest(tmp_path) == 80


def test_half_of_a_commit_of_one_rank_is_not_used(tmp_path: Path) -> None:
    """Its rank is killed while it writes, or before, and others have written theirs."""
    write(tmp_path, 1, state_of(5))
    for rank in (0, 2):
        path = alone(tmp_path, 3, rank, 30 + rank)
        (path / "part-0-of-1").rename(path / ".part-0.123")
    assert newest(tmp_path) == 5
    alone(tmp_path, 2, 1, 21)
    assert newest(tmp_path) == 21
    alone(tmp_path, 3, 1, 31)
    assert newest(tmp_path) == 31
    assert len(_state_files.commits(tmp_path)) == 4, "others may still write what is incomplete"
    later = write(tmp_path, 4, state_of(40))
    remove_old(commit_in(tmp_path, 4, NONCE))
    assert _state_files.commits(tmp_path)[0].path == later and newest(tmp_path) == 40
    assert len(_state_files.commits(tmp_path)) == 2


def test_a_damaged_commit_of_one_rank_is_not_used(tmp_path: Path) -> None:
    alone(tmp_path, 2, 1, 21)
    path = alone(tmp_path, 2, 0, 20) / "part-0-of-1"
    path.write_bytes(path.read_bytes()[:-1])
    assert newest(tmp_path) == 21


def test_ranks_write_whole_commits_one_after_the_other(tmp_path: Path) -> None:
    """A disk need not have room for one of each. Most find one that is as good as theirs."""
    writing: list[int] = []
    alone_for: list[bool] = []

    def one(rank: int) -> None:
        def content() -> Any:
            writing.append(rank)
            time.sleep(0.05)
            alone_for.append(writing[-1] == rank)
            return part_of(state_of(5), 0, 1).content

        write_alone(commit_in(tmp_path, 2, nonce_of_one(rank)), content)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in (3, 2, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert newest(tmp_path) == 5
    assert all(alone_for) and writing == sorted(writing, reverse=True) and writing[-1] == 0
    assert len(_state_files.commits(tmp_path)) <= 2


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_a_full_disk_leaves_no_part(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(tmp_path, 1, state_of(5))
    monkeypatch.setattr(*((os, "fsync") if failing == "fsync" else (Path, "rename")), fail)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, 2, state_of(6))
    monkeypatch.undo()
    assert not commit_in(tmp_path, 2, NONCE).path.exists()
    assert newest(tmp_path) == 5


def test_a_commit_of_ranks_with_different_tensors_is_not_used(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    write(tmp_path, 1, state_of(5))
    commit = commit_in(tmp_path, 2, NONCE)
    for part in range(2):
        other = Stored({"variables": {"w": numpy.zeros(10 + part)}}, {"attributes": {}})
        write_part(commit, part, 2, _state_parts.part_of(other, part, 2).content)
    assert newest(tmp_path) == 5


def test_a_state_of_another_script_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1, state_of(5))
    _, stored = read_newest(tmp_path, joined) or (None, None)
    assert stored is not None
    state: Any = ObjectState(lambda obj: obj, lambda: 0, epoch=0)
    with pytest.raises(ValueError, match=r"attributes of the state are \['step'\] there and"):
        state.load_stored(stored)
    state = ObjectState(lambda obj: obj, lambda: 0, step=0)
    state.load_stored(stored)
    assert state.step == 5

"""Committed states in a folder: what is used after a crash, and what is not. No job."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from horovod.common import _state_files, _state_parts
from horovod.common._state_files import commit_in, read_newest, remove_old, write_part
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
    stored = read_newest(folder, joined)
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


@pytest.mark.filterwarnings("ignore:.* is not used")
@pytest.mark.parametrize("part", [0, 1])
def test_a_commit_without_all_parts_is_not_used(part: int, tmp_path: Path) -> None:
    write(tmp_path, 1, state_of(5))
    path = write(tmp_path, 2, state_of(6))
    (path / f"part-{part}-of-2").rename(path / f".part-{part}.123")  # it was not renamed yet
    assert newest(tmp_path) == 5


def test_parts_of_different_jobs_do_not_mix(tmp_path: Path) -> None:
    """Both wrote commit 2, and were ended while they wrote."""
    write(tmp_path, 1, state_of(5))
    (write(tmp_path, 2, state_of(6), nonce=1) / "part-1-of-2").unlink()
    (write(tmp_path, 2, state_of(7), nonce=2) / "part-0-of-2").unlink()
    with pytest.warns(UserWarning, match="it is incomplete: it has part-"):
        assert newest(tmp_path) == 5


def test_every_damage_to_a_part_is_seen(tmp_path: Path) -> None:
    write(tmp_path, 1, state_of(5))
    good = (write(tmp_path, 2, state_of(6)) / "part-1-of-2").read_bytes()
    lengths = [0, 1, 20, len(good) // 2, len(good) - 1]
    damaged = [good[:length] for length in lengths]
    for at in (0, 20, len(good) // 2, len(good) - 1):
        damaged.append(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    for content in damaged:
        path = write(tmp_path, 2, state_of(6))
        (path / "part-1-of-2").write_bytes(content)
        with pytest.warns(UserWarning, match="is damaged: .* The commit before is used"):
            assert newest(tmp_path) == 5
        assert not path.exists()  # it is renamed, and not counted as one of the last two
        (tmp_path / f"damaged-{path.name}").rename(
            tmp_path / f"seen-{len(content)}-{hash(content)}"
        )


def test_a_part_of_another_user_is_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, state_of(5))
    path = write(tmp_path, 2, state_of(6))
    (path / "part-0-of-2").chmod(0o602)
    with pytest.warns(UserWarning, match="all users may write to it"):
        assert newest(tmp_path) == 5
    if os.geteuid() == 0:
        os.chown(path.parent / f"damaged-{path.name}" / "part-0-of-2", 0, 0)
        monkeypatch.setattr(os, "geteuid", lambda: 1)
        os.chown(commit_in(tmp_path, 1, NONCE).path / "part-0-of-2", 2, 2)
        with pytest.warns(UserWarning, match="belongs to user 2"):
            assert newest(tmp_path) is None


def test_the_last_two_complete_commits_are_kept(tmp_path: Path) -> None:
    for number in range(1, 6):
        write(tmp_path, number, state_of(number))
        remove_old(commit_in(tmp_path, number, NONCE))
    for number in (6, 7):  # the disk is full
        (write(tmp_path, number, state_of(number)) / "part-1-of-2").unlink()
        remove_old(commit_in(tmp_path, number, NONCE))
    assert [commit.number for commit in _state_files.commits(tmp_path)] == [7, 5, 4]


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


@pytest.mark.filterwarnings("ignore:.* is not used")
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
    stored = read_newest(tmp_path, joined)
    assert stored is not None
    state: Any = ObjectState(lambda obj: obj, lambda: 0, epoch=0)
    with pytest.raises(ValueError, match=r"attributes of the state are \['step'\] there and"):
        state.load_stored(stored)
    state = ObjectState(lambda obj: obj, lambda: 0, step=0)
    state.load_stored(stored)
    assert state.step == 5

"""Objects from other ranks are unpickled only if a rank of the job has sent them as they are."""

from __future__ import annotations

import hmac
import types
from typing import Any

import pytest

pytest.importorskip("horovod._core")

from horovod.common import _sealed
from horovod.common._sealed import Source, seal, unseal
from horovod.common.exceptions import HorovodInternalError

SOURCE = Source("broadcast_object", "state", 3)


class Trap:
    """Runs code in the process that unpickles it."""

    ran = False

    def __reduce__(self) -> Any:
        return setattr, (Trap, "ran", True)


@pytest.fixture(autouse=True)
def core(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Of a job with a key."""
    double = types.SimpleNamespace(
        key=b"k" * 32,
        world=lambda: types.SimpleNamespace(generation=double.generation),
        derive_key=lambda purpose: hmac.digest(double.key, purpose.encode(), "sha256"),
        generation=1,
    )
    monkeypatch.setattr(_sealed, "core", double)
    return double


@pytest.mark.parametrize("thing", [None, {"a": [1, 2.5]}, bytes(100_000), ""], ids=type)
def test_what_was_sent_arrives(thing: Any) -> None:
    assert unseal(bytearray(seal(thing, SOURCE)), SOURCE) == thing


def test_each_changed_byte_is_found_before_anything_is_unpickled() -> None:
    sealed = seal(Trap(), SOURCE)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(HorovodInternalError, match="were not unpickled"):
            unseal(changed, SOURCE)
    assert not Trap.ran


@pytest.mark.parametrize("count", [0, 1, 31, 32])
def test_what_is_too_short_for_a_proof_is_refused(count: int) -> None:
    with pytest.raises(HorovodInternalError):
        unseal(bytearray(count), SOURCE)
    with pytest.raises(HorovodInternalError):
        unseal(bytearray(seal("thing", SOURCE)[:count]), SOURCE)


@pytest.mark.parametrize(
    "other",
    [
        Source("broadcast_object", "state", 2),
        Source("broadcast_object", "other", 3),
        Source("allgather_object", "state", 3),
    ],
)
def test_an_object_cannot_take_the_place_of_another_one(other: Source) -> None:
    with pytest.raises(
        HorovodInternalError,
        match=f"{other.operation} '{other.name}': .* from rank {other.rank} are not those",
    ):
        unseal(bytearray(seal(1, SOURCE)), other)


def test_an_object_of_another_job_or_generation_is_refused(core: types.SimpleNamespace) -> None:
    sealed = bytearray(seal(1, SOURCE))
    core.generation = 2
    with pytest.raises(HorovodInternalError):
        unseal(sealed, SOURCE)
    core.generation, core.key = 1, b"other"
    with pytest.raises(HorovodInternalError):
        unseal(sealed, SOURCE)

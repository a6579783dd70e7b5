"""Divides a saved state into parts that ranks write, and puts parts together.

Models and optimizers are the same on all ranks. So each rank writes some of their arrays, about as
many bytes as the others. Rank 0 writes the rest too: the structure in which the arrays are, and the
values that may differ between ranks, of which those of rank 0 count.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle

from horovod.common._state_files import UnusableError
from horovod.common.elastic import Stored

#: By type of array: returns the number of bytes, and what is pickled in its place. None: the array
#: is pickled like any other object.
_packers: dict[type, Callable[[Any], tuple[int, Any] | None]] = {}


def register_array(kind: type, pack: Callable[[Any], tuple[int, Any] | None]) -> None:
    """Called by a framework for its type of array. What `pack` returns unpickles to the array."""
    _packers[kind] = pack


def _packed(value: Any) -> tuple[int, Any] | None:
    pack = _packers.get(type(value))
    if pack is not None:
        return pack(value)
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.dtype.hasobject:
        return None
    return value.nbytes, value


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves the arrays out, and counts them."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.arrays: list[tuple[int, Any]] = []
        self._known: dict[int, tuple[Any, int]] = {}  # keeps the array, for its id

    def persistent_id(self, value: Any) -> int | None:
        if id(value) in self._known:
            return self._known[id(value)][1]
        packed = _packed(value)
        if packed is None:
            return None
        self.arrays.append(packed)
        self._known[id(value)] = value, len(self.arrays) - 1
        return len(self.arrays) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, arrays: dict[int, Any]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, index: Any) -> Any:
        return self._arrays[index]


def _owners(sizes: Sequence[int], parts: int) -> list[int]:
    """Which part has each array: the one that is smallest so far."""
    bytes_of = [0] * parts
    owners = []
    for size in sizes:
        smallest = bytes_of.index(min(bytes_of))
        bytes_of[smallest] += size
        owners.append(smallest)
    return owners


class Part(NamedTuple):
    """What one rank writes. `layout`: a number that is equal if the arrays have equal sizes."""

    layout: int
    content: dict[str, Any]


def part_of(stored: Stored, part: int, parts: int) -> Part:
    """Returns what rank `part` of `parts` writes. Arrays are not copied, unless from a device."""
    structure = io.BytesIO()
    pickler = _Pickler(structure)
    pickler.dump(stored.shared)
    sizes = [size for size, _ in pickler.arrays]
    owners = _owners(sizes, parts)
    digest = hashlib.sha256(repr(sizes).encode()).digest()
    layout = int.from_bytes(digest[:7], "little") + 1
    content: dict[str, Any] = {
        "layout": layout,
        "count": len(sizes),
        "arrays": {
            index: array for index, (_, array) in enumerate(pickler.arrays) if owners[index] == part
        },
    }
    if part == 0:
        content |= {"structure": structure.getvalue(), "own": cloudpickle.dumps(stored.own)}
    return Part(layout, content)


def joined(parts: Sequence[dict[str, Any]]) -> Stored:
    """Returns the state of these parts, in their order. Raises: UnusableError."""
    if len({part["layout"] for part in parts}) != 1:
        raise UnusableError("its parts have tensors of different sizes")
    arrays: dict[int, Any] = {}
    for part in parts:
        arrays |= part["arrays"]
    if sorted(arrays) != list(range(parts[0]["count"])):
        raise UnusableError("tensors are missing")
    shared = _Unpickler(io.BytesIO(parts[0]["structure"]), arrays).load()
    return Stored(shared, pickle.loads(parts[0]["own"]))

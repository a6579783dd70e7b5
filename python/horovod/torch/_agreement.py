"""Verifies that all ranks reduce the gradients of the same parameters in the same round.

Each rank decides by `requires_grad` which parameters an optimizer reduces. If ranks differ, one
rank waits for a gradient that another never sends, or gets it from a later round, and the models
diverge without an error. So one operation of each round carries a *mark*: an empty tensor whose
shape has a hash of the set of parameters that this rank reduces. Ranks compare shapes anyway, so
the mark needs no extra message, and a repeated round is as fast as without it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from horovod.common._extension import core
from horovod.common.exceptions import HorovodMismatchError
from horovod.common.process_sets import ProcessSet
from horovod.torch.functions import allgather_object

Carrier = TypeVar("Carrier")

#: Enough bits that different sets do not have equal hashes, few enough for a dimension of a tensor.
_HASH_BYTES = 6


def job_generation() -> int | None:
    """Returns the number of the running job, None if there is none."""
    return core.world().generation if core.is_initialized() else None


class Joined(NamedTuple):
    """A group of small gradients: the name of its operation; name, shape and dtype of each."""

    operation: str
    members: tuple[tuple[str, tuple[int, ...], str], ...]


class Reduced(NamedTuple):
    """The parameters that a rank reduces in a round, the number of rounds that it has broken off,
    and its groups of small gradients."""

    names: tuple[str, ...]
    broken_off: int
    joined: tuple[Joined, ...] = ()


class Others(NamedTuple):
    """The parameters that all ranks reduce, by rank in the process set, and which are sparse; the
    names of all operations that a rank has sent."""

    every: list[Reduced]
    sparse_dims: dict[str, int]
    operations: set[str]

    def lacking(self, names: Sequence[str]) -> set[str]:
        """Returns the parameters that some ranks reduce and that are not in `names`."""
        return {name for reduced in self.every for name in reduced.names}.difference(names)


class Agreement(Generic[Carrier]):
    """The agreement of one optimizer, on one rank.

    The operation that carries the mark must be the same on all ranks, especially if they disagree.
    So it must not depend on the parameters that this rank trains, its past rounds, or the time when
    groups were added. It is chosen once, from the optimizer's first group. If it is frozen, the
    mark is sent alone under its name.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set
        self._reduced = Reduced((), 0)
        self._generation: int | None = None  # of the job in which rounds were broken off
        self._hash: int | None = None  # made on first use
        #: The operation with the mark; None for an optimizer without parameters.
        self.carrier: Carrier | None = None

    def choose_carrier(
        self,
        every: Sequence[Carrier],
        is_first: Callable[[Carrier], bool],
        size: Callable[[Carrier], tuple[int, str]],
    ) -> None:
        """Chooses the smallest of the first group, or of `every` if the group has none. Does
        nothing if there is a carrier. `size`: includes a name, to decide between equal sizes."""
        if self.carrier is None:
            first = [one for one in every if is_first(one)]
            self.carrier = min(first or every, key=size, default=None)

    def change(self, names: Sequence[str], joined: tuple[Joined, ...] = ()) -> None:
        """Begins a round that reduces the parameters with these names."""
        self._replace(names=tuple(sorted(names)), joined=joined)

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the sorted names of the parameters that this rank reduces."""
        return self._reduced.names

    def break_off(self, rounds: int) -> None:
        """Adds a number of rounds that this rank has ended without their results."""
        if rounds:
            self._forget_former_jobs()
            self._generation = job_generation()
            self._replace(broken_off=self._reduced.broken_off + rounds)

    def _forget_former_jobs(self) -> None:
        """Starts counting from 0 in a new job, since new ranks of an elastic job have broken off no
        round."""
        if self._reduced.broken_off and self._generation != job_generation():
            self._replace(broken_off=0)

    def _replace(self, **changes: Any) -> None:
        self._reduced = self._reduced._replace(**changes)
        self._hash = None

    def mark(self, like: torch.Tensor) -> torch.Tensor:
        """Returns an empty tensor whose shape is equal on ranks that reduce the same parameters,
        with the dtype and the device of `like`."""
        self._forget_former_jobs()
        if self._hash is None:
            text = repr(self._reduced).encode(errors="surrogatepass")
            digest = hashlib.blake2b(text, digest_size=_HASH_BYTES).digest()
            self._hash = int.from_bytes(digest, "little")
        return torch.empty((0, self._hash), dtype=like.dtype, device=like.device)

    def exchange(
        self, sparse_dims: Mapping[str, int], operations: Sequence[str] = ()
    ) -> Others | None:
        """Exchanges what each rank reduces, after an operation with a mark has failed on all ranks.

        `sparse_dims`: by name, of parameters that have had sparse gradients on this rank.
        `operations`: that this rank has sent. Returns None if all ranks reduce the same, so that
        the operation failed for another reason, or if the exchange fails. Counts broken off rounds
        from 0 again.
        """
        told: list[tuple[Reduced, dict[str, int], list[str]]] = []
        with contextlib.suppress(RuntimeError, ValueError):
            mine = (self._reduced, dict(sparse_dims), list(operations))
            told = allgather_object(mine, "optimizer_parameters", self._process_set)
        self._replace(broken_off=0)
        every = [reduced for reduced, _, _ in told]
        if len(set(every)) < 2:
            return None
        return Others(
            every,
            {name: dims for _, each, _ in told for name, dims in each.items()},
            {name for _, _, names in told for name in names},
        )

    def describe(self, others: Others) -> HorovodMismatchError:
        """Returns the error for ranks that differ."""
        every = others.every
        ranks = self._process_set.ranks or list(range(len(every)))
        what = (
            _other_parameters(every, ranks)
            or _other_groups(every, ranks)
            or _other_rounds(every, ranks)
        )
        return HorovodMismatchError(f"rank {core.world().rank}: DistributedOptimizer: {what}")


def _other_parameters(every: list[Reduced], ranks: Sequence[int]) -> str | None:
    sets = [set(reduced.names) for reduced in every]
    different = sorted(sets[0].union(*sets) - sets[0].intersection(*sets))
    if not different:
        return None
    first = different[0]
    having = [rank for rank, names in zip(ranks, sets, strict=True) if first in names]
    lacking = [rank for rank, names in zip(ranks, sets, strict=True) if first not in names]
    more = f", and {len(different) - 1} more parameter(s) differ" if len(different) > 1 else ""
    return (
        f"ranks disagree about which parameters they train: {first!r} requires a gradient on "
        f"{_listed(having)} and not on {_listed(lacking)}{more}; set requires_grad alike on all "
        "ranks, before the first backward pass of a step"
    )


def _other_groups(every: list[Reduced], ranks: Sequence[int]) -> str | None:
    if len({reduced.joined for reduced in every}) < 2:
        return None
    forms = [{name: form for each in r.joined for name, *form in each.members} for r in every]
    for name in sorted(set().union(*forms)):
        shown = [_shown(form.get(name)) for form in forms]
        if len(set(shown)) > 1:
            other = next(at for at, each in enumerate(shown) if each != shown[0])
            return (
                f"ranks disagree about the gradient of {name!r}: it has {shown[0]} on rank "
                f"{ranks[0]} and {shown[other]} on rank {ranks[other]}; shapes, dtypes and the "
                "argument groups must be equal"
            )
    return "ranks put small gradients into different groups; groups=0 makes none"


def _shown(form: list[Any] | None) -> str:
    """Describes a gradient in a group of small ones; None: it is in none."""
    if form is None:
        return "another size or dtype"
    shape, dtype = form
    return f"shape {shape} and dtype {dtype.removeprefix('torch.')}"


def _other_rounds(every: list[Reduced], ranks: Sequence[int]) -> str:
    counts = [reduced.broken_off for reduced in every]
    least, most = counts.index(min(counts)), counts.index(max(counts))
    return (
        f"ranks are in different steps: rank {ranks[most]} has broken off {counts[most]} between "
        f"backward() and step(), rank {ranks[least]} {counts[least]}; call load_state_dict(), "
        "set_backward_passes_per_step() and DistributedOptimizer() on all ranks, after as many "
        "backward passes"
    )


def _listed(ranks: Sequence[int], most: int = 8) -> str:
    text = ", ".join(map(str, ranks[:most])) + (", ..." if len(ranks) > most else "")
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"

"""Checks of a process set before its ranks reduce, for all bindings."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby

from horovod.common.basics import Adasum
from horovod.common.elastic import is_elastic
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.common.util import num_rank_is_power_2


def is_distributed(process_set: ProcessSet) -> bool:
    """Returns whether this rank reduces with others, or may do so later in an elastic job.

    Raises: ValueError for a set that is not registered.
    """
    process_set_id(process_set)
    if not process_set.included():
        return False
    return is_elastic() or (process_set.size() or 0) > 1


def check_ranks(op: int, process_set: ProcessSet) -> None:
    """Raises NotImplementedError for Adasum if the number of ranks is not a power of two.

    Also raises ValueError for Adasum on a set that is not registered.
    """
    if op != Adasum:
        return
    process_set_id(process_set)
    count = process_set.size()
    if count is not None and not num_rank_is_power_2(count):
        raise NotImplementedError(
            f"Adasum combines pairs, hence needs a power of two of ranks, and {process_set!r} has "
            f"{count}; use Average, or a process set that fits"
        )


def name_of_places(places: Sequence[int]) -> str:
    """Returns the name of an operation that reduces the gradients at these indices of a list.

    Different sets of indices must have different names: `2`, `0_to_3`, `0_to_1_and_3`; for more
    than four runs of indices the name has the first index, the last, and a digest of all.
    """
    by_run = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    runs = [[place for _, place in run] for _, run in by_run]
    if len(runs) > 4:
        digest = hashlib.sha256(repr(list(places)).encode()).hexdigest()[:8]
        return f"{places[0]}_to_{places[-1]}_{digest}"
    return "_and_".join(f"{r[0]}_to_{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)

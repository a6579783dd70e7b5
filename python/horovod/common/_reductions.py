"""What is asked of a process set before ranks of it reduce something: the same in every binding."""

from __future__ import annotations

from horovod.common.basics import Adasum
from horovod.common.elastic import is_elastic
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.common.util import num_rank_is_power_2


def is_distributed(process_set: ProcessSet) -> bool:
    """Whether this rank reduces with others, or may do so later in an elastic job.

    Raises: ValueError for a set that is not registered, or no more.
    """
    process_set_id(process_set)
    if not process_set.included():
        return False
    return is_elastic() or (process_set.size() or 0) > 1


def check_ranks(op: int, process_set: ProcessSet) -> None:
    """Raises NotImplementedError for Adasum on a number of ranks that is no power of two.

    And ValueError then for a set that is not registered.
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

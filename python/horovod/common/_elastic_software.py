"""Rejects ranks that join an elastic job with other versions of frameworks than it trains with, or
in another training function.

Their state could not be loaded, or could be, with other results; in another function, ranks would
wait for each other without end. So they end with an error, and the others go on without them.
"""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from horovod.common.exceptions import HostsUpdatedInterrupt

_FRAMEWORKS = ("torch", "tensorflow", "keras", "tf_keras", "jax")


class Software(NamedTuple):
    """Of one rank. `has_state`: it did not join just now. `call`: of a training function."""

    host: str
    has_state: bool
    versions: dict[str, str]
    call: str


def own_software(has_state: bool, call: str) -> Software:
    """The versions of Horovod, Python (3.11), and the frameworks that this process has imported."""
    import horovod  # which imports this module

    versions = {
        "horovod": horovod.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
    }
    for name in _FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions[name] = version
    return Software(platform.node(), has_state, versions, call)


def reject_misfits(every: Sequence[Software], own_rank: int) -> None:
    """`every`: of all ranks, in their order. Rank 0 has the state.

    Raises: RuntimeError on a rank that is rejected, HostsUpdatedInterrupt on the others.
    """
    problems = {rank: _problem(rank, one, every[0]) for rank, one in enumerate(every)}
    rejected = {rank: problem for rank, problem in problems.items() if problem}
    if own_rank in rejected:
        raise RuntimeError(rejected[own_rank])
    if rejected:
        if own_rank == 0:
            warnings.warn("; ".join(rejected.values()), stacklevel=2)
        raise HostsUpdatedInterrupt(skip_sync=False)


def _problem(rank: int, one: Software, first: Software) -> str:
    if one.has_state:
        return ""
    rejected = f"rank {rank} on {one.host} was rejected by the elastic job: it "
    if one.call != first.call:
        return (
            f"{rejected}has entered {one.call}, and rank 0 on {first.host} is in {first.call}: the "
            "script of an elastic job has one function with run, and calls it once"
        )
    for name, version in one.versions.items():
        expected = first.versions.get(name, version)
        if version != expected:
            return (
                f"{rejected}has {name} {version}, and rank 0 on {first.host} trains with {name} "
                f"{expected}; install {name} {expected} on {one.host}"
            )
    return ""

"""Finds variables that look like Horovod's settings but are not read. Ignores their values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Set by launchers, in addition to the table of knobs.
_OF_LAUNCHERS = {
    "HOROVOD_HOSTNAME",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_KEY_SOCKET",
    "HOROVOD_CALLER_PORT",
    "HOROVOD_SECRET_KEY",
}
#: Read when the established package is built; this package needs no build options.
_OF_BUILDS = ("HOROVOD_WITH_", "HOROVOD_WITHOUT_", "HOROVOD_BUILD_")
_ALSO_OF_BUILDS = {
    "HOROVOD_GPU",
    "HOROVOD_GPU_ALLREDUCE",
    "HOROVOD_GPU_ALLGATHER",
    "HOROVOD_GPU_BROADCAST",
    "HOROVOD_GPU_ALLTOALL",
    "HOROVOD_GPU_REDUCESCATTER",
    "HOROVOD_CUDA_HOME",
    "HOROVOD_NCCL_HOME",
}
_ALIKE = 0.75


def strange(names: Iterable[str]) -> list[tuple[str, str]]:
    """Returns names that are not read, each with the nearest name that is read, or "". Empty if the
    compiled library does not load, since only it has the list."""
    known = _known()
    if known is None:
        return []
    found = []
    for name in sorted(names):
        upper = name.upper()
        if not upper.startswith(("HOROVOD_", "HOROVD_", "HOROVDO_")) or name in known:
            continue
        if name.startswith(_OF_BUILDS) or name in _ALSO_OF_BUILDS:
            continue
        near = difflib.get_close_matches(upper, sorted(known), n=1, cutoff=_ALIKE)
        found.append((name, near[0] if near else ""))
    return found


def _known() -> set[str] | None:
    try:
        from horovod import _core
    except ImportError:
        return None
    return {str(row["env"]) for row in _core.knobs()} | _OF_LAUNCHERS

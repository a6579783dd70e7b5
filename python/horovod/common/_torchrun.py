"""Rendezvous through the store of torchrun, for ranks on several hosts. It imports torch when it is
called.
"""

from __future__ import annotations

import importlib
import os
from datetime import timedelta
from typing import Any

_PATIENCE_S = 30

#: Kept, since the store of rank 0 may serve ranks that connect later.
_stores: list[Any] = []


def rendezvous(name: str, root_address: str | None) -> str:
    """Broadcasts `root_address` of rank 0 (None on other ranks). Raises RuntimeError on failure."""
    try:
        distributed: Any = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise RuntimeError(
            "torchrun started ranks on several hosts, and only torch can read its store, but torch "
            f"cannot be imported ({error}): install it, or set HOROVOD_RANK, HOROVOD_SIZE, "
            "HOROVOD_GLOO_RENDEZVOUS_ADDR, HOROVOD_GLOO_RENDEZVOUS_PORT and HOROVOD_SECRET_FILE"
        ) from error
    agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = distributed.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        None,
        is_master=root_address is not None and not agent_serves and os.environ.get("RANK") == "0",
        timeout=timedelta(seconds=_patience()),
        wait_for_workers=False,
        multi_tenant=True,
    )
    _stores.append(store)
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    part = distributed.PrefixStore(f"horovod/{restart}", store)
    # A wrapper may start several processes with the same rank, one after another. The store stays.
    begun = part.add(f"{name}/begun/{os.environ['RANK']}", 1)
    name = f"{name}/{begun}"
    if root_address is not None:
        part.set(name, root_address)
        return root_address
    return str(part.get(name).decode())


def _patience() -> float:
    try:
        return float(os.environ.get("HOROVOD_START_TIMEOUT") or _PATIENCE_S)
    except ValueError:  # init rejects it, with a better message
        return _PATIENCE_S

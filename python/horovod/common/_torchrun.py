"""The store of torchrun, over which ranks on several hosts find each other. Only torch speaks its
protocol, and is imported when that is needed."""

from __future__ import annotations

import importlib
import os
from datetime import timedelta
from typing import Any

_PATIENCE_S = 30

#: Rank 0's may serve the others, who come later, so it stays.
_stores: list[Any] = []


def introduce(name: str, word: str | None) -> str:
    """Brings rank 0's `word` to all ranks (None elsewhere). Raises RuntimeError when it cannot."""
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
        is_master=word is not None and not agent_serves and os.environ.get("RANK") == "0",
        timeout=timedelta(seconds=_patience()),
        wait_for_workers=False,
        multi_tenant=True,
    )
    _stores.append(store)
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    part = distributed.PrefixStore(f"horovod/{restart}", store)
    if word is not None:
        part.set(name, word)
        return word
    return str(part.get(name).decode())


def _patience() -> float:
    try:
        return float(os.environ.get("HOROVOD_START_TIMEOUT") or _PATIENCE_S)
    except ValueError:  # init refuses it, with a better word
        return _PATIENCE_S

"""The ranks of horovodrun wait for each other in init_process_group, before torch connects them.

Torch waits for half an hour by default, and does not say for whom.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed
from torch.distributed import distributed_c10d

from horovod.common._extension import core
from horovod.torch.distributed._errors import DistributedError
from horovod.torch.distributed._meeting import has_flag, ranks_have

_PLACE = "horovod/arrival"
_GIVEN_UP = "given up: "
#: Rank 0 serves the store. So it leaves time for the others to read why it gives up.
_LINGER_SECONDS = 0.5

#: The store that rank 0 serves until torch has opened its own one at the same port.
_served: list[Any] = []


class Patience:
    """How long a rank waits for the others, from now on."""

    def __init__(self, timeout: timedelta | None) -> None:
        """`timeout`: what init_process_group was given; None: that of torch."""
        self._seconds = (timeout or distributed_c10d.default_pg_timeout).total_seconds()
        self._end = time.monotonic() + self._seconds

    def left(self) -> timedelta:
        """Returns at least a moment, in which ranks that are there are found."""
        return timedelta(seconds=max(0.1, self._end - time.monotonic()))

    def text(self, ranks: Sequence[int]) -> str:
        """Returns what is said of ranks that have not come."""
        limit = f"{self._seconds:g} s, its timeout"
        return f"{ranks_have(ranks)} not called init_process_group within {limit}"


def await_others(call: Mapping[str, Any]) -> None:
    """Blocks until all ranks are in init_process_group, if torch would connect them by MASTER_ADDR.
    `call` has its arguments.

    In an elastic job and in one that runs, ranks have met in hvd.init() before.

    Raises: DistributedError that names the ranks which have not come.
    """
    by_address = call["store"] is None and call["init_method"] == "env://"
    if not by_address or core.is_elastic() or core.is_initialized():
        return
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return
    try:
        rank, size = _number(call["rank"], "RANK"), _number(call["world_size"], "WORLD_SIZE")
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError):  # torch says what is missing
        return
    patience = Patience(call["timeout"])
    with waiting_for_ranks():
        store = _store(rank, host, port, patience)
        decide(store, _PLACE, rank, size, patience, lambda: "all are there")
    if rank == 0:
        _served.append(store)


def torch_serves() -> None:
    """The store of torch is there now."""
    _served.clear()


@contextlib.contextmanager
def waiting_for_ranks() -> Iterator[None]:
    """For horovodrun --dump, this process is in hvd.init() from now on."""
    core.meet_before_init(True)
    try:
        yield
    except BaseException:
        core.meet_before_init(False)
        raise


def decide(
    store: Any,
    place: str,
    rank: int,
    size: int,
    patience: Patience,
    decision: Callable[[], str],
) -> str:
    """Returns what `decision` has returned on the rank that has come last. Collective.

    Raises: DistributedError that names the ranks which have not come, also on those of them that
        come later.
    """
    known = f"{place}/outcome"  # by the first rank that knows it
    with _naming_the_store(rank):
        store.add(f"{place}/{rank}/answered", 1)
        if store.add(f"{place}/answers", 1) == size:
            store.compare_set(known, "", decision())
        try:
            store.wait([known], patience.left())
        except RuntimeError:
            missing = [r for r in range(size) if not has_flag(store, f"{place}/{r}/answered")]
            if not missing:
                raise
            store.compare_set(known, "", f"{_GIVEN_UP}{patience.text(missing)}")
        outcome = str(store.get(known).decode())
    if outcome.startswith(_GIVEN_UP):
        if rank == 0:
            time.sleep(_LINGER_SECONDS)
        raise DistributedError(f"rank {rank}: {outcome.removeprefix(_GIVEN_UP)}")
    return outcome


@contextlib.contextmanager
def _naming_the_store(rank: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise DistributedError(
            f"rank {rank}: init_process_group: the store of torch.distributed failed: {error}; "
            "look at the process that serves it, which is rank 0 or torchrun"
        ) from error


def _number(given: int, variable: str) -> int:
    return given if given >= 0 else int(os.environ[variable])


def _store(rank: int, host: str, port: int, patience: Patience) -> Any:
    distributed: Any = torch.distributed
    try:
        return distributed.TCPStore(
            host,
            port,
            None,
            is_master=rank == 0,
            timeout=patience.left(),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        if rank == 0:
            raise
        raise DistributedError(
            f"rank {rank}: {patience.text([0])}, or its store at {host}:{port} cannot be reached"
        ) from error

"""Training that survives a change of ranks.

state = hvd.elastic.TorchState(model, optimizer, epoch=0)

@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, 90):
        ...
        state.commit()

train(state)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod.common.elastic import run_fn
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.mpi_ops import init, shutdown

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates `func(state, *args, **kwargs)`, the training function, to restart after lost ranks.

    Calls `state.sync()`, then `func`. Calls `func` again after each change: if a rank was lost,
    with the last committed state; if hosts were added or removed, with the current state. In
    between it restarts the job in this process (`shutdown`, `init`), with a new rank and size.

    Returns: the result of `func`.
    Raises: all errors of `func` except HorovodInternalError and HostsUpdatedInterrupt.
    HorovodMismatchError is raised, since ranks would disagree again.
    """
    return run_fn(func, _reset)


def _reset() -> None:
    shutdown()
    init()

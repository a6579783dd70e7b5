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
    """Decorates `func(state, *args, **kwargs)`, the training, so that it outlives lost ranks.

    It is called after `state.sync()`, and again after each change: when a rank was lost, with the
    state as last committed; when hosts came or went, with the state as it is. Between two calls
    the job begins anew in this process (`shutdown`, `init`), with another rank and size.
    Returns: what `func` returns. Raises: what `func` raises, but for HorovodInternalError and
    HostsUpdatedInterrupt; HorovodMismatchError, since ranks would disagree again.
    """
    return run_fn(func, _reset)


def _reset() -> None:
    shutdown()
    init()

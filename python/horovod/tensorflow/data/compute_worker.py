"""The compute job: horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker config.json

Writes the file by which the training job finds it, and ends when that one says so.
"""

from __future__ import annotations

import argparse
import secrets

from horovod.common import _objects
from horovod.common.basics import HorovodBasics
from horovod.tensorflow.data._registry import Registry, serve
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

_basics = HorovodBasics(__file__)


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Runs on every process of the compute job.

    Raises: ValueError when the processes cannot be dealt out equally to the dispatchers.
    """
    _basics.init()
    size, rank = _basics.size(), _basics.rank()
    if size % dispatchers:
        raise ValueError(f"{size} processes cannot be dealt out equally to {dispatchers}")
    config = None
    if rank == 0:
        key = secrets.token_bytes(32)
        addresses = serve(Registry(dispatchers, size // dispatchers), key)
        config = TfDataServiceConfig(
            dispatchers, size // dispatchers, dispatcher_side, addresses, key, timeout
        )
        config.write(configfile)
    compute_worker_fn(_objects.broadcast_object(config, name="compute_config"))
    # Rank 0 serves the others until they have ended.
    _objects.allgather_object(rank, name="compute_end")
    _basics.shutdown()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m horovod.tensorflow.data.compute_worker",
        description="Computes batches for a training job; to be started by horovodrun.",
    )
    parser.add_argument("configfile", help="where to write how the training job finds this one")
    parser.add_argument("--dispatchers", type=int, default=1, help="how many dispatchers there are")
    parser.add_argument(
        "--dispatcher-side",
        choices=("compute", "training"),
        default="compute",
        help="the job that runs them",
    )
    parser.add_argument("--timeout", type=int, default=60, help="seconds to wait for each other")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = _parse()
    main(
        arguments.dispatchers,
        arguments.dispatcher_side,
        arguments.configfile,
        arguments.timeout,
    )

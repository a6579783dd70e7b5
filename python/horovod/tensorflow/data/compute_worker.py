"""The compute job: horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker config.json

Writes the file by which the training job finds it, and ends when that one says so.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets

from horovod.common import _objects
from horovod.common._extension import core
from horovod.common.basics import HorovodBasics
from horovod.tensorflow.data._registry import Registry, serving
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

_basics = HorovodBasics(__file__)


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Runs the compute service on every process of this job; calls `init` if needed.

    The job stays initialized.
    Raises: ValueError if the number of processes is not a multiple of the number of dispatchers.
    """
    _basics.init()
    size, rank = _basics.size(), _basics.rank()
    if size % dispatchers:
        raise ValueError(
            f"{size} processes cannot be split equally among {dispatchers} dispatchers"
        )
    # The key is derived on every rank, since what ranks send each other is not encrypted.
    name = _objects.broadcast_object(secrets.token_hex(16), name="compute_name")
    key = core.derive_key(f"tf.data registry {name}")
    workers = size // dispatchers
    with contextlib.ExitStack() as leaving:
        registry = Registry(dispatchers, workers)
        addresses = leaving.enter_context(serving(registry, key)) if rank == 0 else None
        addresses = _objects.broadcast_object(addresses, name="compute_addresses")
        config = TfDataServiceConfig(dispatchers, workers, dispatcher_side, addresses, key, timeout)
        if rank == 0:
            config.write(configfile)
        compute_worker_fn(config)
        # Rank 0 serves the others until they have ended.
        _objects.allgather_object(rank, name="compute_end")


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

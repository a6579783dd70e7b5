"""tf.data's service beside a training job: one job computes batches, another job trains on them.

horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /shared/config.json &

config = TfDataServiceConfig.read("/shared/config.json", wait_for_file_creation=True)
dataset = dataset.send_to_data_service(config, hvd.rank(), hvd.size())
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from horovod.common._private_file import read_private
from horovod.common.basics import HorovodBasics
from horovod.tensorflow.data._registry import Client

_basics = HorovodBasics(__file__)
_SIDES = ("compute", "training")


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """The configuration by which a training job finds the compute job.

    `dispatcher_side`: the job that runs the dispatchers, "compute" or "training". `addresses`: of
    the compute job, by interface, as hosts and ports. `timeout`: how long one job waits for the
    other, in seconds. Raises: ValueError for another side.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[tuple[str, int]]]
    key: bytes = dataclasses.field(repr=False)
    timeout: int = 60

    def __post_init__(self) -> None:
        if self.dispatcher_side not in _SIDES:
            raise ValueError(f"dispatcher_side must be one of {_SIDES}: {self.dispatcher_side!r}")

    def compute_client(self, verbose: int = 1) -> Client:
        """Returns a client of the compute job; see Client for its methods. Connects with the first
        call.

        A call raises HorovodInternalError if the compute job does not answer. `shutdown()` ends the
        compute job; it does nothing if the job has ended already.
        """
        return Client(self.addresses, self.key, verbose)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the key in hexadecimal digits."""
        return {**dataclasses.asdict(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """The inverse of `to_dict`."""
        addresses = {
            interface: [(str(host), int(port)) for host, port in places]
            for interface, places in config["addresses"].items()
        }
        key = bytes.fromhex(config["key"])
        return TfDataServiceConfig(**{**config, "addresses": addresses, "key": key})

    def write(self, filename: str) -> None:
        """Puts a JSON file in place at once; only its owner may read it, since it has the key."""
        folder = os.path.dirname(os.path.abspath(filename))
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=os.path.basename(filename))
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(self.to_dict(), file)
            os.replace(temporary, filename)
        except BaseException:  # what has the key does not stay behind
            os.unlink(temporary)
            raise

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Reads the file that `write` wrote; may wait for it.

        Raises: PermissionError if the file does not belong to this user or others may access it:
        its writer decides which hosts this process trusts.
        """
        while wait_for_file_creation and not os.path.lexists(filename):
            time.sleep(0.1)
        return TfDataServiceConfig.from_dict(json.loads(read_private(filename)))


def _dispatcher_of(compute_config: TfDataServiceConfig, rank: int) -> int:
    """Returns the dispatcher of a training rank: one for all, or one per rank."""
    return 0 if compute_config.dispatchers == 1 else rank


def _start_dispatcher(own_address: str) -> tuple[Any, str]:
    """A dispatcher, and where other hosts find it on this one."""
    service = tf.data.experimental.service
    server = service.DispatchServer(service.DispatcherConfig(port=0))
    port = server.target.rpartition(":")[2]
    return server, f"grpc://{own_address}:{port}"


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Yields the address of the dispatcher for training process `rank`, while its workers run.

    With dispatcher_side "training" the dispatcher runs in this process and ends with the context.
    If all ranks share one, it runs in rank 0, which must stay in the context until all have read
    their data. The compute job ends with the last dispatcher.
    Raises: TimeoutError if the dispatcher or its workers do not start within the `timeout` of the
    configuration; HorovodInternalError if the compute job does not answer.
    """
    client = compute_config.compute_client()
    dispatcher = _dispatcher_of(compute_config, rank)
    with contextlib.ExitStack() as leaving:
        if compute_config.dispatcher_side == "training" and dispatcher == rank:
            server, address = _start_dispatcher(client.address)
            leaving.callback(server._stop)
            client.register_dispatcher(dispatcher, address)
            leaving.callback(client.end_dispatcher, dispatcher)
        address = client.wait_for_dispatcher_registration(dispatcher, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(dispatcher, compute_config.timeout)
        yield address


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> Any:
    """Returns `dataset`, computed by the workers of the compute job. Also a method of
    tf.data.Dataset.

    `reuse_dataset`: all processes share one run of it; with `round_robin` in turns, which needs
    `size`.
    Raises: RuntimeError if the training side dispatches; use `tf_data_service` then. Also the
    errors of `tf_data_service`.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            'with dispatcher_side "training" use tf_data_service and tf.data.experimental.service'
        )
    with tf_data_service(compute_config, rank) as address:
        in_turns = reuse_dataset and round_robin
        return dataset.apply(
            tf.data.experimental.service.distribute(
                processing_mode=processing_mode,
                service=address,
                job_name="job" if reuse_dataset else None,
                consumer_index=rank if in_turns else None,
                num_consumers=size if in_turns else None,
            )
        )


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Runs one process of the compute job, until the training job has finished."""
    rank = _basics.rank()
    dispatcher = rank // compute_config.workers_per_dispatcher
    client = compute_config.compute_client()
    server = None
    is_first = rank % compute_config.workers_per_dispatcher == 0
    if compute_config.dispatcher_side == "compute" and is_first:
        server, address = _start_dispatcher(client.address)
        client.register_dispatcher(dispatcher, address)
    address = client.wait_for_dispatcher_registration(dispatcher, compute_config.timeout)
    worker = _start_worker(address, client.address)
    client.register_worker_for_dispatcher(dispatcher, rank)
    client.wait_for_dispatcher_end(dispatcher)
    worker._stop()
    client.wait_for_shutdown()
    if server is not None:
        server._stop()


def _start_worker(dispatcher_address: str, own_address: str) -> Any:
    service = tf.data.experimental.service
    return service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=dispatcher_address.removeprefix("grpc://"),
            worker_address=f"{own_address}:%port%",
            port=0,
        )
    )

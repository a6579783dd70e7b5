"""A compute job prepares batches, a training job reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from slim import slim
from tf_ranks import launcher, run_alone

import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

CONFIG = "HOROVOD_TEST_CONFIG"  #: the file that the compute job writes
TURNS = "HOROVOD_TEST_TURNS"


def train() -> None:
    hvd.init()
    config = TfDataServiceConfig.read(os.environ[CONFIG], wait_for_file_creation=True)
    assert TfDataServiceConfig.from_dict(config.to_dict()) == config
    data = tf.data.Dataset.range(20).map(lambda n: n * 2)
    if config.dispatcher_side == "compute":
        data = data.send_to_data_service(config, hvd.rank(), hvd.size())
        seen = sorted(int(n) for n in data)
    else:
        with pytest.raises(RuntimeError, match="tf_data_service"):
            data.send_to_data_service(config, hvd.rank())
        seen = read_beside_dispatcher(config, data)
    every = hvd.allgather_object(seen)
    wanted = [2 * n for n in range(20)]
    shared = config.dispatcher_side == "training" and config.dispatchers == 1
    total = sorted(n for part in every for n in part)
    assert total == (wanted if shared else sorted(2 * wanted)), every
    hvd.barrier()
    if hvd.rank() == 0:
        config.compute_client().shutdown()  # which may have ended already


def read_beside_dispatcher(config: TfDataServiceConfig, data: Any) -> list[int]:
    """Reads by a dispatcher that runs in this process or, of a single one, on rank 0."""
    with tf_data_service(config, hvd.rank()) as address:
        service = tf.data.experimental.service
        data = data.apply(service.distribute("distributed_epoch", address, job_name="job"))
        if config.dispatchers > 1 and hvd.rank() == 1:
            hvd.barrier()  # rank 0 has read and left: its dispatcher has ended, the job has not
            with pytest.raises(TimeoutError):
                config.compute_client().wait_for_shutdown(0.1)
        seen = sorted(int(n) for n in data)
        if config.dispatchers == 1:
            hvd.barrier()
    if config.dispatchers > 1 and hvd.rank() == 0:
        hvd.barrier()
    return seen


def draw_together() -> None:
    """All processes of the training job draw from one run of the dataset."""
    hvd.init()
    config = TfDataServiceConfig.read(os.environ[CONFIG], wait_for_file_creation=True)
    if os.environ[TURNS] == "any":
        data = tf.data.Dataset.range(20)
        data = data.send_to_data_service(config, hvd.rank(), reuse_dataset=True)
        every = hvd.allgather_object([int(n) for n in data])
        assert sorted(every[0] + every[1]) == list(range(20)), every
    else:
        data = tf.data.Dataset.range(1000).repeat()
        data = data.send_to_data_service(
            config, hvd.rank(), hvd.size(), "parallel_epochs", reuse_dataset=True, round_robin=True
        )
        every = hvd.allgather_object([int(n) for n in data.take(6)])
        assert every[1] == [n + 1 for n in every[0]], every  # neighbours, of one worker each time
    hvd.barrier()
    if hvd.rank() == 0:
        config.compute_client().shutdown()


MODULE = ["-m", "horovod.tensorflow.data.compute_worker"]
#: A job that does something else before and after.
WITHIN = """
import sys
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_worker import main
hvd.init()
before = hvd.allgather_object(hvd.rank())
main(1, "compute", sys.argv[1], 120)
assert hvd.is_initialized()
assert hvd.allgather_object(hvd.rank()) == before == list(range(hvd.size()))
"""


@pytest.mark.skipif(launcher() is None, reason="not built")
@pytest.mark.parametrize("turns", ["any", "in turns"])
def test_processes_draw_from_one_run_of_a_dataset(turns: str, tmp_path: Path) -> None:
    within = tmp_path / "within.py"
    within.write_text(WITHIN)
    worker = MODULE if turns == "any" else [str(within)]
    read(draw_together, worker, [], tmp_path, turns)


@pytest.mark.skipif(launcher() is None, reason="not built")
@pytest.mark.parametrize(
    ("side", "dispatchers"), [("compute", 1), ("training", 1), ("training", 2)]
)
def test_a_training_job_reads_what_a_compute_job_prepares(
    side: str, dispatchers: int, tmp_path: Path
) -> None:
    options = ["--dispatcher-side", side, "--dispatchers", str(dispatchers)]
    read(train, MODULE, [*options, "--timeout", "120"], tmp_path)


def read(
    body: Callable[[], None], worker: list[str], options: list[str], folder: Path, turns: str = ""
) -> None:
    """Runs `body` as a training job beside a compute job: `worker`, the file and `options`."""
    config = folder / "config.json"
    compute = subprocess.Popen(
        [str(launcher()), "-np", "2", sys.executable, *worker, str(config), *options],
        env={"OMP_NUM_THREADS": "1", **os.environ, **slim({})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        training = run_alone(2, body, **{CONFIG: str(config), TURNS: turns})
        assert training.returncode == 0, training.output
        output, _ = compute.communicate(timeout=120)
        assert compute.returncode == 0, output
    finally:
        compute.kill()

"""A compute job prepares batches, a training job reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tf_ranks import launcher

TRAIN = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service
hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
assert TfDataServiceConfig.from_dict(config.to_dict()) == config
data = tf.data.Dataset.range(20).map(lambda n: n * 2)
if config.dispatcher_side == "compute":
    data = data.send_to_data_service(config, hvd.rank(), hvd.size())
    seen = sorted(int(n) for n in data)
else:
    try:
        data.send_to_data_service(config, hvd.rank())
    except RuntimeError as error:
        assert "tf_data_service" in str(error)
    with tf_data_service(config, hvd.rank()) as address:
        service = tf.data.experimental.service
        data = data.apply(service.distribute("distributed_epoch", address, job_name="job"))
        if config.dispatchers > 1 and hvd.rank() == 1:
            hvd.barrier()  # rank 0 has read and left: its dispatcher has ended, the job has not
            try:
                config.compute_client().wait_for_shutdown(0.1)
            except TimeoutError:
                pass
            else:
                raise AssertionError("the compute job ended with the first dispatcher")
        seen = sorted(int(n) for n in data)
        if config.dispatchers == 1:
            hvd.barrier()
    if config.dispatchers > 1 and hvd.rank() == 0:
        hvd.barrier()
every = hvd.allgather_object(seen)
total = sorted(n for part in every for n in part)
wanted = [2 * n for n in range(20)]
shared = config.dispatcher_side == "training" and config.dispatchers == 1
assert total == (wanted if shared else sorted(2 * wanted)), every
hvd.barrier()
if hvd.rank() == 0:
    try:
        config.compute_client().shutdown()
    except Exception:
        pass  # it has ended already
print("read", len(seen))
"""

#: All processes of the training job draw from one run of the dataset.
TOGETHER = """
import sys
import tensorflow as tf
import horovod.tensorflow as hvd
from horovod.tensorflow.data.compute_service import TfDataServiceConfig
hvd.init()
config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
if sys.argv[2] == "any":
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
"""


@pytest.mark.skipif(launcher() is None, reason="not built")
@pytest.mark.parametrize("turns", ["any", "in turns"])
def test_processes_draw_from_one_run_of_a_dataset(turns: str, tmp_path: Path) -> None:
    read(TOGETHER, [turns], [], tmp_path)


@pytest.mark.skipif(launcher() is None, reason="not built")
@pytest.mark.parametrize(
    ("side", "dispatchers"), [("compute", 1), ("training", 1), ("training", 2)]
)
def test_a_training_job_reads_what_a_compute_job_prepares(
    side: str, dispatchers: int, tmp_path: Path
) -> None:
    options = ["--dispatcher-side", side, "--dispatchers", str(dispatchers)]
    read(TRAIN, [], options, tmp_path)


def read(program: str, arguments: list[str], options: list[str], folder: Path) -> None:
    """Runs `program` as a training job beside a compute job with `options`."""
    config, script = folder / "config.json", folder / "train.py"
    script.write_text(program)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = [str(launcher()), "-np", "2", sys.executable]
    worker = ["-m", "horovod.tensorflow.data.compute_worker", str(config)]
    compute = subprocess.Popen(
        [*run, *worker, *options, "--timeout", "120"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        training = subprocess.run(
            [*run, str(script), str(config), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert training.returncode == 0, training.stdout + training.stderr
        output, _ = compute.communicate(timeout=120)
        assert compute.returncode == 0, output
    finally:
        compute.kill()

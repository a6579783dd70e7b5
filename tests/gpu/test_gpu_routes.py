"""The timeline and `--verbose` show which way a batch of GPU tensors took. The ranks select their
GPUs before `init`."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from gpu_ranks import ENVIRONMENT, HERE, JOB_SECONDS, needs_stand_ins, run_alone
from rank_jobs import Job, launcher, run_command, tell
from stand_in_device import NAME, announce, load

import horovod.torch as hvd
from horovod.common._extension import core


def reduce_on_the_gpu() -> None:
    load()
    announce()
    index = int(os.environ["HOROVOD_LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)  # before init; other tests select it afterwards
    hvd.init()
    made = hvd.allreduce(torch.ones(3, device=NAME), name="x", op=hvd.Sum)
    assert made.device.index == index and made.tolist() == [hvd.size()] * 3
    tell({way: core.counters()[f"batches.{way}"] for way in ("nccl", "staged", "ipc")})
    hvd.shutdown()


def check_shown(job: Job, trace: Path, way: str) -> None:
    assert job.returncode == 0, job.output
    expected = {"nccl": 0, "staged": 0, "ipc": 0, way: 1}
    assert job.told == [[expected], [expected]], job.output
    names = {event.get("name") for event in json.loads(trace.read_text())}
    assert f"{way.upper()}_ALLREDUCE" in names
    assert ("INIT_NCCL" in names) == (way != "staged")
    assert f"gpu group ranks=0,1 way={way}" in job.output or way == "staged"
    assert re.search(rf"gpu batches .*\b{way}=1 ", job.output)


@needs_stand_ins
def test_a_gpu_may_be_selected_before_init_and_the_way_of_a_batch_is_shown(
    tmp_path: Path,
) -> None:
    trace = tmp_path / "trace.json"
    options = ["-np", "2", "--verbose", "--timeline-filename", str(trace)]
    script = [str(HERE / "gpu_rank_main.py"), str(tmp_path), "only", __name__]
    command = [str(launcher()), *options, sys.executable, *script, reduce_on_the_gpu.__name__]
    check_shown(run_command(command, 2, tmp_path, ENVIRONMENT, JOB_SECONDS), trace, "nccl")


@needs_stand_ins
@pytest.mark.parametrize(
    ("way", "environment"),
    [
        ("ipc", {"FAKE_CUDA_DEVICES": "1"}),
        ("staged", {"HOROVOD_GPU_OPERATIONS": "host"}),
    ],
)
def test_ways_without_nccl_are_shown(way: str, environment: dict[str, str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    shown = {"HOROVOD_TIMELINE": str(trace), "HOROVOD_LOG_LEVEL": "info"}
    check_shown(run_alone(2, reduce_on_the_gpu, **shown, **environment), trace, way)

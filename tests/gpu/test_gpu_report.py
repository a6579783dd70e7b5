"""What `horovodrun --doctor` and `--check-build` say of GPUs, with the stand-in driver or none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

from gpu_ranks import ENVIRONMENT, needs_stand_ins
from rank_jobs import launcher

from devtool.paths import ROOT
from devtool.torch_device import STAND_INS
from horovod.common import _gpus

#: Without loading frameworks.
DOCTOR = (sys.executable, "-m", "horovod.doctor", "--json", "--frameworks", "")


def output_of(*command: str, **environment: str) -> str:
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env).stdout


def findings(environment: dict[str, str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Of the doctor: findings and table of this host."""
    (block,) = json.loads(output_of(*DOCTOR, **environment))
    return block["findings"], block["table"]


TWO = {**ENVIRONMENT, "FAKE_CUDA_DEVICES": "2"}


@needs_stand_ins
def test_the_doctor_describes_gpus_driver_and_nccl() -> None:
    found, table = findings(TWO)
    (said,) = [one["what"] for one in found if "Stand-in GPU" in one["what"]]
    assert said.startswith("2 x Stand-in GPU (256 MiB), driver ")
    assert f"CUDA 12.9, NCCL 2.28.9 ({STAND_INS}/libnccl.so.2)" in said
    assert table[1].split() == [
        *("0", "Stand-in", "GPU", "256", "MiB", "0000:01:00.0"),
        *("GPU-fa000000-0000-0000-0000-000000000000", "1"),
    ]


@needs_stand_ins
def test_the_doctor_says_what_the_driver_said() -> None:
    found, table = findings({**TWO, "FAKE_CUDA_FAIL": "cuInit=803"})
    (driver,) = [one for one in found if "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in one["what"]]
    assert "the driver cannot be used" in driver["what"] and "CUDA 12.9" in driver["what"]
    assert "restart the machine" in driver["fix"][0]
    assert table == []
    found, table = findings({**TWO, "FAKE_CUDA_DEVICES": "0"})
    (none,) = [one for one in found if "no CUDA-capable device is detected" in one["what"]]
    assert "--gpus all" in none["fix"][0] and "CUDA_VISIBLE_DEVICES" in none["fix"][0]


@needs_stand_ins
def test_check_build_lists_gpus_and_nccl() -> None:
    text = output_of(str(launcher()), "--check-build", **TWO)
    assert "    [X] NCCL\n" in text
    assert f"\nGPUs:\n    driver {STAND_INS}/libcuda.so.1, CUDA 12.9\n" in text
    first = "GPU-fa000000-0000-0000-0000-000000000000"
    assert f"    GPU 0: Stand-in GPU, 256 MiB, 0000:01:00.0, {first}, P2P with 1\n" in text
    assert f"    NCCL 2.28.9 ({STAND_INS}/libnccl.so.2)\n" in text


@needs_stand_ins
def test_check_build_says_why_there_is_no_gpu() -> None:
    text = output_of(str(launcher()), "--check-build", **TWO, FAKE_CUDA_FAIL="cuInit=34")
    assert "    no GPU can be used: the driver cannot be used, CUDA_ERROR_STUB_LIBRARY (34)" in text
    assert "GPU 0" not in text


ROCM = {**TWO, "LD_LIBRARY_PATH": f"{STAND_INS}/rocm"}
UNTESTED = "untested, and this version has no kernels for it: its tensors are rejected"


@needs_stand_ins
def test_rocm_is_reported_as_untested() -> None:
    text = output_of(str(launcher()), "--check-build", **ROCM)
    assert f"    ROCm {STAND_INS}/rocm/libamdhip64.so: {UNTESTED}\n" in text
    found, _ = findings(ROCM)
    (said,) = [one for one in found if "ROCm" in one["what"]]
    assert said["severity"] == "advice" and UNTESTED in said["what"]
    assert "host memory" in said["fix"][0]


def test_the_names_of_rocm_are_those_that_torch_knows() -> None:
    from torch.utils.hipify import cuda_to_hip_mappings as torch_knows

    text = (ROOT / "core" / "device" / "driver_symbols.h").read_text()
    ours = set(re.findall(r'"(hip\w+)"', text)) - {"hipDrvGetErrorName"}  # it lacks this one
    known = [name for table in torch_knows.CUDA_TO_HIP_MAPPINGS for name in table.values()]
    theirs = {name if isinstance(name, str) else name[0] for name in known}
    assert len(ours) > 40 and ours - theirs == set()


def test_without_a_driver_the_report_names_the_library() -> None:
    report = _gpus.ask()
    if report.driver:
        return  # this machine has one
    assert "libcuda.so.1" in report.problem and report.gpus == []

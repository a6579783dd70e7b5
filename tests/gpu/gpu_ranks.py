"""Tests that run on every rank of a real job, with device tensors on the stand-ins for the GPU
driver and NCCL (tests/fake_cuda).

`@on_ranks(1, 2, 4)` makes a test of a function: it runs on all ranks of a job of 1, then of 2 and
of 4 processes, and passes when it passes on all of them. Tests of one size and one environment
share processes, in which each rank has a GPU of its own. `run_alone` runs a single function in new
processes. All of them are forked from ranks that have imported the framework.

With HVD_TEST_FRAMEWORK="tensorflow" the ranks have a GPU of TensorFlow, otherwise of torch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rank_jobs import Job, Outcome, launcher, outcomes_of, start_job
from rank_jobs import tell as tell
from shared_jobs import SharedJobs, name_as
from slim import slim
from warm_jobs import Kind, run_warm

from devtool import tensorflow_device
from devtool.torch_device import LIBRARY, STAND_INS

#: A test that takes longer hangs. Generous: suites share the cores.
WATCHDOG_SECONDS = 120  #: several ranks that import torch at once take a while on busy cores
JOB_SECONDS = 300
HERE = Path(__file__).parent
SCRIPT = HERE / "gpu_rank_main.py"
FRAMEWORK = "HVD_TEST_FRAMEWORK"
#: What the loader of libraries and the import of a framework read.
AT_START = ("LD_LIBRARY_PATH", FRAMEWORK)

#: Short delays: a test has hundreds of pieces of queued work, and what is not ordered is found
#: without delays.
ENVIRONMENT = {
    "LD_LIBRARY_PATH": os.pathsep.join(
        filter(None, [str(STAND_INS), os.environ.get("LD_LIBRARY_PATH")])
    ),
    "FAKE_CUDA_DEVICES": "4",
    "FAKE_CUDA_DELAY_US": "50",
}

Environment = tuple[tuple[str, str], ...]
Body = tuple[str, str]  # module, function
Key = tuple[str, str, Environment]

bodies: dict[Body, Callable[[], None]] = {}


def is_runnable(framework: str = "torch") -> bool:
    device = tensorflow_device.LIBRARY if framework == "tensorflow" else LIBRARY
    built = device.is_file() and (STAND_INS / "libcuda.so.1").is_file()
    return launcher() is not None and built and not is_on_gpu()


def is_on_gpu() -> bool:
    """Whether the tests run on a real GPU, which all ranks share."""
    return os.environ.get("HVD_TEST_DEVICE") == "cuda"


needs_stand_ins = pytest.mark.skipif(
    "not __import__('gpu_ranks').is_runnable()", reason="not built: ./dev test gpu builds it"
)


needs_device = pytest.mark.skipif(
    "not __import__('gpu_ranks').is_runnable() and not __import__('gpu_ranks').is_on_gpu()",
    reason="not built: ./dev test gpu builds it",
)


needs_tensorflow = pytest.mark.skipif(
    "not __import__('gpu_ranks').is_runnable('tensorflow')",
    reason="not built: ./dev test gpu-tensorflow builds it",
)


def run(size: int, arguments: list[str], environment: Mapping[str, str]) -> Job:
    """Forks the processes of a job. With a real GPU it starts them: torch may have used the GPU
    when it was imported, and then forked processes cannot use it."""
    if is_on_gpu():
        with tempfile.TemporaryDirectory() as folder:
            return start_job(size, SCRIPT, arguments, Path(folder), environment, JOB_SECONDS)
    whole = {**ENVIRONMENT, **environment}
    at_start = {name: value for name, value in whole.items() if name in AT_START}
    if FRAMEWORK in at_start:
        at_start = slim(at_start)
    later = {name: value for name, value in whole.items() if name not in at_start}
    kind = Kind(SCRIPT, size, tuple(at_start.items()))
    return run_warm(kind, arguments, JOB_SECONDS, later)


def run_alone(size: int, body: Callable[[], None], **environment: str) -> Job:
    """Runs one function of a test module on `size` ranks. It is up to it to call `init`."""
    return run(size, ["only", body.__module__, body.__name__], environment)


def on_ranks(*sizes: int, **env: str) -> Callable[[Callable[[], None]], Callable[..., None]]:
    """See the top of this file. `env`: of the ranks."""
    environment = tuple(sorted(env.items()))

    def decorate(body: Callable[[], None]) -> Callable[..., None]:
        where = (body.__module__, body.__name__)
        bodies[where] = body

        @(needs_tensorflow if FRAMEWORK in env else needs_device)
        @pytest.mark.parametrize("np", sizes)
        def test(np: int, request: pytest.FixtureRequest) -> None:
            jobs.report((np, environment), (*where, environment), request)

        name_as(body, test)
        test.on_gpu_ranks = (*where, environment)  # type: ignore[attr-defined]
        return test

    return decorate


def select(items: list[pytest.Item]) -> None:
    """Remembers which tests are wanted, so that one job can run them all."""
    for item in items:
        key: Any = getattr(getattr(item, "function", None), "on_gpu_ranks", None)
        if key is not None:
            jobs.select((item.callspec.params["np"], key[2]), key)  # type: ignore[attr-defined]


def run_bodies(kind: tuple[int, Environment], wanted: Sequence[Key]) -> dict[Key, Outcome]:
    """Runs tests in the same processes until these end."""
    size, environment = kind
    arguments = [f"{module}:{name}" for module, name, _ in wanted]
    return outcomes_of(run(size, ["all", *arguments], dict(environment)), wanted)


jobs = SharedJobs(run_bodies)

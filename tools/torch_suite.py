"""Runs the generic tests of torch.distributed, which are part of torch, over the backend "hvd".

    .venv-trainers/bin/python tools/torch_suite.py [--np 2] [--tests NAME ...] [--verbose]

All tests run in one job, in processes that go on. If a test ends or blocks the job, a new one goes
on with the next test. The tests skip much for a backend that they do not know; what they skip runs
again with the name of one that they know, still over "hvd". Prints how many passed, were skipped
and failed, with the reasons. Needs expecttest in the environment. `./dev test c10d` runs it, too
(tests/c10d).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

#: A test that takes longer is counted as failed.
SECONDS_OF_TEST = 60
_NO_ANY_SOURCE = "this backend receives from a rank that is named"
_NO_MONITORED_BARRIER = "torch has monitored_barrier for gloo alone, or the test is for nccl"
_ENDS_THE_JOB = "it goes on after a barrier that has timed out, which ends the job here"
_FOR_NCCL = "it is for nccl or needs GPUs"
#: By the beginning of their names, with the reason. Some end the job, or wait for minutes.
#: `--tests` runs them too.
LEFT_OUT = {
    "test_barrier_timeout": _ENDS_THE_JOB,
    "test_monitored_barrier": _NO_MONITORED_BARRIER,
    "test_send_recv_any_source": _NO_ANY_SOURCE,
    "test_verify_model_across_rank": _FOR_NCCL,
    "test_ddp_has_finalized": _FOR_NCCL,
    "test_nccl": _FOR_NCCL,
}
#: The names that the tests are told, one after the other for what is skipped.
TOLD = ("hvd", "gloo", "mpi")
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"


# ---- in each rank ------------------------------------------------------------------------------


def cases() -> Any:
    """Returns the class of the tests, as torch's own scripts make it."""
    os.environ.setdefault("BACKEND", TOLD[0])
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.distributed import distributed_test as suite

    class Own(TestCase, suite.DistributedTest._DistTestBase):  # type: ignore[misc]
        rank = property(lambda self: int(os.environ["RANK"]))
        world_size = property(lambda self: int(os.environ["WORLD_SIZE"]))

        def _barrier(self, *args: Any, **kwargs: Any) -> None:
            import torch.distributed as dist

            dist.barrier()

    return Own


def names() -> list[str]:
    return [name for name in dir(cases()) if name.startswith("test_")]


def outcome_of(case: Any) -> tuple[str, str]:
    """Runs one test. torch skips some of them by ending the process."""
    result = unittest.TestResult()
    with contextlib.redirect_stdout(io.StringIO()):
        case.run(result)
    if result.skipped:
        return SKIPPED, result.skipped[0][1]
    if result.wasSuccessful():
        return PASSED, ""
    why = [*result.errors, *result.failures][0][1].strip().splitlines()[-1]
    found = [skip.message for code, skip in exits() if why == f"SystemExit: {code}"]
    return (SKIPPED, found[0]) if found else (FAILED, why)


def exits() -> Iterator[tuple[int, Any]]:
    """Yields the exit codes by which tests skip themselves."""
    from torch.testing._internal.common_distributed import TEST_SKIPS

    return ((skip.exit_code, skip) for skip in TEST_SKIPS.values())


def work(folder: Path, asked: Sequence[str]) -> None:
    import torch.distributed as dist

    own = cases()
    dist.init_process_group("hvd")
    os.environ["TEMP_DIR"] = str(folder)
    for part in ("test_dir", "barrier"):
        (folder / part).mkdir(exist_ok=True)
    with open(folder / f"rank{dist.get_rank()}", "a", buffering=1) as log:
        for name in asked:
            log.write(f"{name}\n")
            signal.alarm(SECONDS_OF_TEST)  # ends this process, and so the job
            dist.barrier()
            kind, reason = outcome_of(own(name))
            log.write(f"\t{kind}\t{reason}\n")
    signal.alarm(0)
    dist.destroy_process_group()


# ---- the tool ----------------------------------------------------------------------------------

Outcomes = dict[str, tuple[str, str]]


def told(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yields the tests that ranks have begun, with outcome and reason; without, if they did not
    end."""
    for log in sorted(folder.glob("rank*")):
        name = ""
        for line in log.read_text().splitlines():
            if line.startswith("\t"):
                kind, reason = line[1:].split("\t")
                yield name, kind, reason
                name = ""
            else:
                name = line
        if name:
            yield name, FAILED, "the job ended in this test"


def worst(outcomes: Outcomes, name: str, kind: str, reason: str) -> None:
    order = (PASSED, SKIPPED, FAILED)
    if name not in outcomes or order.index(kind) > order.index(outcomes[name][0]):
        outcomes[name] = kind, reason


def run_all(asked: list[str], np: int) -> Outcomes:
    outcomes: Outcomes = {}
    for told_name in TOLD:
        os.environ["BACKEND"] = told_name
        left = [name for name in asked if outcomes.get(name, (SKIPPED, ""))[0] == SKIPPED]
        found = run_once(left, np)
        is_known = told_name in TOLD[:2]  # what the last one skips has told its reason before
        outcomes |= {n: o for n, o in found.items() if o[0] != SKIPPED or is_known}
    return outcomes


def run_once(asked: list[str], np: int) -> Outcomes:
    outcomes: Outcomes = {}
    launcher = Path(sys.executable).parent / "horovodrun"
    while left := [name for name in asked if name not in outcomes]:
        with tempfile.TemporaryDirectory() as folder:
            command = [str(launcher), "-np", str(np), sys.executable, __file__, "--worker", folder]
            subprocess.run([*command, "--tests", *left], capture_output=True)
            found = list(told(Path(folder)))
        for each in found:
            worst(outcomes, *each)
        if not found:
            outcomes[left[0]] = FAILED, "the job did not start"
    return outcomes


def reason_to_leave_out(name: str) -> str:
    """Returns an empty text for a test that runs."""
    return next((why for begin, why in LEFT_OUT.items() if name.startswith(begin)), "")


def store(file: Path, outcomes: Outcomes, left_out: Sequence[str]) -> None:
    why = {name: reason_to_leave_out(name) for name in left_out}
    file.write_text(json.dumps({"outcomes": outcomes, "left_out": why}, indent=1))


def show(outcomes: Outcomes, left_out: Sequence[str], verbose: bool) -> None:
    counts = collections.Counter(kind for kind, _ in outcomes.values())
    print(", ".join(f"{counts[kind]} {kind}" for kind in (PASSED, SKIPPED, FAILED)), end="")
    print(f", {len(left_out)} left out, of {len(outcomes) + len(left_out)}")
    for shown in [FAILED, SKIPPED] if verbose else [FAILED]:
        for name, (kind, reason) in sorted(outcomes.items()):
            if kind == shown:
                print(f"{kind}: {name}: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--tests", nargs="*", help="only these")
    parser.add_argument("--verbose", action="store_true", help="also why tests were skipped")
    parser.add_argument("--json", type=Path, help="a file for all outcomes and reasons")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments.worker, arguments.tests)
    os.environ["WORLD_SIZE"] = str(arguments.np)  # torch decides by it which tests it skips
    asked = arguments.tests or names()
    left_out = [name for name in asked if reason_to_leave_out(name) and not arguments.tests]
    outcomes = run_all([name for name in asked if name not in left_out], arguments.np)
    show(outcomes, left_out, arguments.verbose)
    if arguments.json:
        store(arguments.json, outcomes, left_out)
    return None


if __name__ == "__main__":
    main()

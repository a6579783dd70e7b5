"""Scripts of torch.distributed that hang before or in init_process_group("hvd"), without an import
of horovod."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
from hang_causes import line_of
from hanging import dumped
from launcher import WATCHDOG_SECONDS, Jobs, ended

pytest.importorskip("torch", minversion="2.5")

#: One rank of three does not come, and the others begin to wait for it at the same time.
SCRIPT = """
import os, pathlib, signal, sys, time
from datetime import timedelta
import torch.distributed as dist

RANK, MISSING = os.environ["RANK"], sys.argv[1]
assert "horovod.torch" not in sys.modules

def stay_away(how):
    if how == "stop": os.kill(os.getpid(), signal.SIGSTOP)
    if how == "sleep": time.sleep(1000)  # here
    sys.exit(0)

if RANK == MISSING:
    stay_away(sys.argv[2])
pathlib.Path(f"came.{RANK}").touch()
while len([*pathlib.Path().glob("came.*")]) < 2: time.sleep(0.01)
given = {"timeout": timedelta(seconds=float(sys.argv[3]))} if len(sys.argv) > 3 else {}
dist.init_process_group("hvd", **given)
"""


def start(jobs: Jobs, *arguments: str) -> Any:
    script = jobs.folder / "train.py"
    script.write_text(SCRIPT)
    return jobs.start("-np", "3", sys.executable, str(script), *arguments)


@pytest.mark.parametrize(("missing", "others"), [(0, "1, 2"), (1, "0, 2")])
def test_the_dump_names_the_missing_rank(jobs: Jobs, missing: int, others: str) -> None:
    job = start(jobs, str(missing), "sleep")
    line = line_of(jobs.folder / "train.py", "# here")
    begin = f"rank {missing} has not called hvd.init(), in which ranks {others} have waited for "
    end = f"; its main thread is at train.py:{line} in stay_away"
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while True:
        found = dumped(job)
        text = "" if found is None else found["cause"]["text"]
        if text.startswith(begin) and text.endswith(end):
            break
        assert job.poll() is None, "the job has ended"
        assert time.monotonic() < deadline, json.dumps(found)
        time.sleep(0.1)
    assert found["cause"]["class"] == "start"
    for rank in found["ranks"]:
        assert (rank["stage"] == "in_init") == (rank["rank"] != missing)
        assert ("init_process_group" in json.dumps(rank)) == (rank["rank"] != missing)


@pytest.mark.parametrize("how", ["sleep", "exit", "stop"])
@pytest.mark.parametrize("missing", ["0", "1"])
def test_ranks_that_wait_in_vain_name_the_missing_rank(jobs: Jobs, missing: str, how: str) -> None:
    result = ended(start(jobs, missing, how, "1.5"))
    assert result.code != 0
    said = f"rank {missing} has not called init_process_group within 1.5 s, its timeout"
    assert said in result.err, result.err

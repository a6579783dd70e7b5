"""What the tests of launchers share: a job by a given command line, and what its ranks must say."""

from __future__ import annotations

import json
import random
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rank_jobs import Job, has_begun, run_command

SCRIPT = Path(__file__).with_name("rank_script.py")
JOB_SECONDS = 90
#: Open MPI's daemons of several hosts now and then do not answer each other, with or without us:
#: then it starts nothing.
ATTEMPTS = 4
#: Below those that Linux gives out by itself.
PORTS = 15_000, 32_000
#: What ranks give up waiting for each other after; no test waits for it unless it says so.
PATIENCE = {"HOROVOD_START_TIMEOUT": "30"}


def start(
    launcher: Sequence[str],
    size: int,
    what: str = "plain",
    environment: Mapping[str, str] | None = None,
    python: Sequence[str] = (sys.executable,),
) -> Job:
    """Runs a function of rank_script on `size` ranks by `launcher`."""
    for attempt in range(ATTEMPTS):
        with tempfile.TemporaryDirectory() as folder:
            command = [*launcher, *python, str(SCRIPT), folder, what]
            variables = {**PATIENCE, **(environment or {})}
            job = run_command(command, size, Path(folder), variables, JOB_SECONDS)
            hung = "was killed after" in job.output and not has_begun(Path(folder))
            if not hung:
                return job
            print(f"attempt {attempt + 1}: the launcher does not answer: {job.output}")
    return job


def each_with(variables: Sequence[Mapping[str, str]]) -> list[str]:
    """A launcher that starts one process with each of these sets of variables."""
    return [sys.executable, str(SCRIPT.with_name("start_all.py")), json.dumps(list(variables))]


def free_port() -> str:
    """For who binds to it later: the system gives none of these to who asks for any."""
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return str(port)


def expect_sums(job: Job, hosts: Sequence[int] | None = None) -> None:
    """Every rank knows its place and has the right sum. `hosts`: how many ranks are on each; by
    default all are on one. Which local rank a rank has, the launcher decides."""
    assert job.returncode == 0, job.output
    size = len(job.told)
    hosts = hosts or [size]
    assert all(told for told in job.told), job.output
    places = [told[0] for told in job.told]
    for rank, place in enumerate(places):
        assert place["rank"] == rank and place["size"] == size
        assert place["sum"] == size * (size + 1) / 2
        assert place["local_size"] in hosts
        assert place["cross_size"] == sum(place["local_rank"] < count for count in hosts)
    seen = sorted((place["cross_rank"], place["local_rank"]) for place in places)
    if len(set(hosts)) == 1:
        assert seen == sorted(
            (host, local) for host in range(len(hosts)) for local in range(hosts[0])
        )
    assert sorted(place["local_rank"] for place in places) == sorted(
        local for count in hosts for local in range(count)
    )


def expect_end_with_the_dead(job: Job) -> None:
    """The launcher has failed; the error of each rank that it did not stop names the lost rank."""
    assert job.returncode != 0, job.output
    assert "was killed after" not in job.output
    dead = len(job.told) - 1
    for rank, told in enumerate(job.told[:-1]):
        assert told, f"rank {rank} has not come to work: {job.output}"
        assert len(told) == 1 or f"rank {dead}" in told[1]

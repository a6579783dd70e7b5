"""Strangers at the launcher's port, on loopback: limited in number and in time."""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from launcher import Jobs, ended, wait_until

pytest.importorskip("horovod._core")

#: Many times as many as are listened to at one time.
STRANGERS = 3000
#: What a job may take that waits for none of them. If it waited for each as long as for an honest
#: connection that is slow, it would take more than that.
START_SECONDS = "40"

RANK = """
import os, pathlib, time
import horovod._core as core

if os.environ["HOROVOD_RANK"] == "0":
    pathlib.Path("port.part").write_text(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    os.rename("port.part", "port")
while not os.path.exists("go"):
    time.sleep(0.01)
core.init()
print("met", core.world().size, flush=True)
core.shutdown()
"""


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < count:
        pytest.skip(f"{count} descriptors are needed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], count), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def stranger(port: int) -> socket.socket:
    """Connects without waiting for it, and says nothing."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def test_silent_strangers_at_the_port_do_not_keep_ranks_from_meeting(jobs: Jobs) -> None:
    (jobs.folder / "rank.py").write_text(RANK)
    command = [sys.executable, "rank.py"]
    process = jobs.start("-np", "2", "--start-timeout", START_SECONDS, *command)
    wait_until((jobs.folder / "port").exists, "the port")
    port = int((jobs.folder / "port").read_text())
    with many_descriptors(STRANGERS + 100), ExitStack() as strangers:
        for _ in range(STRANGERS):
            strangers.enter_context(stranger(port))
        (jobs.folder / "go").touch()
        result = ended(process)
    assert result.code == 0, result.err
    assert sorted(result.out_lines) == ["[0]<stdout>:met 2", "[1]<stdout>:met 2"]

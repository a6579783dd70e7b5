"""The sshd of a pod that is deleted, in a PID namespace of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from devtool.paths import ROOT

PROGRAM = ROOT / "deploy" / "docker" / "bin" / "run-sshd"
SECONDS = 60
# In the place of an agent: by its name.
AGENT = """\
#!/bin/sh
trap 'sleep 0.3; echo committed > agent.said; exit 143' TERM
touch agent.up
sleep 1000 &
wait
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_agent_is_told_and_ends_first(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not Path("/usr/sbin/sshd").exists():
        pytest.skip("takes root and an sshd")
    (tmp_path / "horovodrun").write_text(AGENT)
    (tmp_path / "horovodrun").chmod(0o755)
    # The shell is process 1, as in a pod it is the script.
    pod = f"./horovodrun & exec {PROGRAM}"
    port = free_port()
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", pod],
        cwd=tmp_path,
        env={**os.environ, "SSHD_PORT": str(port), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + SECONDS
    while not (tmp_path / "agent.up").exists() or not is_open(port):
        if process.poll() is not None:
            pytest.skip(f"no PID namespace: {process.communicate()[1]}")
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert (tmp_path / "agent.said").read_text() == "committed\n"

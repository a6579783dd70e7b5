"""The sshd of a pod that is deleted, in a PID namespace of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from started import free_port

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


def is_open(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


class Deleted:
    """A pod whose process 1 is the script, after a command in the background."""

    def __init__(self, folder: Path, before: str = "") -> None:
        if os.geteuid() != 0 or not Path("/usr/sbin/sshd").exists():
            pytest.skip("takes root and an sshd")
        self.port = free_port()
        path = f"{folder}:{os.environ['PATH']}"
        apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        self.process = subprocess.Popen(
            [*apart, "sh", "-c", f"{before} exec {PROGRAM}"],
            cwd=folder,
            env={**os.environ, "PATH": path, "SSHD_PORT": self.port, "TMPDIR": str(folder)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not true():
            if self.process.poll() is not None:
                pytest.skip(f"no PID namespace: {self.process.communicate()[1]}")
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def delete(self) -> int:
        number = self.process.pid
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        try:
            self.process.communicate(timeout=SECONDS)
        finally:
            self.process.kill()
        return self.process.returncode


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_the_agent_is_told_and_ends_first(tmp_path: Path) -> None:
    write_program(tmp_path / "horovodrun", AGENT)
    pod = Deleted(tmp_path, "./horovodrun &")
    pod.wait_until(lambda: (tmp_path / "agent.up").exists() and is_open(pod.port))
    assert pod.delete() == 143
    assert (tmp_path / "agent.said").read_text() == "committed\n"


def test_an_agent_that_begins_after_the_signal_is_told_too(tmp_path: Path) -> None:
    """The first one starts it when it gets the signal."""
    write_program(tmp_path / "horovodrun", AGENT.replace("trap '", "trap './late/horovodrun & "))
    write_program(tmp_path / "late" / "horovodrun", "#!/bin/sh\nsleep 1000 &\nwait\n")
    pod = Deleted(tmp_path, "./horovodrun &")
    pod.wait_until(lambda: (tmp_path / "agent.up").exists() and is_open(pod.port))
    assert pod.delete() == 143
    assert (tmp_path / "agent.said").read_text() == "committed\n"


def test_a_signal_before_sshd_is_started_ends_the_pod(tmp_path: Path) -> None:
    keygen = shutil.which("ssh-keygen")
    begins = "touch keygen.up\nwhile [ -e keygen.up ]; do sleep 0.01; done\n"
    write_program(tmp_path / "ssh-keygen", f'#!/bin/sh\n{begins}exec {keygen} "$@"\n')
    pod = Deleted(tmp_path)
    pod.wait_until((tmp_path / "keygen.up").exists)
    timer = threading.Timer(0.5, (tmp_path / "keygen.up").unlink)
    timer.start()
    assert pod.delete() == 143
    assert not is_open(pod.port)

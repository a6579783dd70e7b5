"""A kernel as notebooks have it, for tests: what a cell shows, and kernels on another host."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import Cluster
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

SECONDS = 60
ON_A_HOST = "on-a-host"


@dataclass
class Outcome:
    text: str = ""  #: streams, and the plain text of what was displayed last
    html: str = ""
    error: str = ""
    updates: int = 0
    displayed: dict[str, str] = field(default_factory=dict)


class Notebook:
    """A kernel, and the cells that it was given."""

    def __init__(self, folder: Path, manager: KernelManager | None = None) -> None:
        """`manager`: of a kernel that is not to be the usual one."""
        self.folder = folder
        self.manager = manager or KernelManager()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.manager.start_kernel(cwd=str(folder), env=environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)
        assert not self.run("%load_ext horovod").error

    def send(self, source: str) -> str:
        request: str = self.client.execute(source)
        return request

    def run(self, source: str) -> Outcome:
        return self.take(self.send(source))

    def take(self, request: str) -> Outcome:
        """All that comes of a request until the kernel is idle."""
        outcome = Outcome()
        while True:
            message = self.client.get_iopub_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") != request:
                continue
            content: dict[str, Any] = message["content"]
            kind = message["msg_type"]
            if kind == "stream":
                outcome.text += content["text"]
            elif kind in ("display_data", "update_display_data"):
                outcome.updates += kind == "update_display_data"
                name = content["transient"]["display_id"]
                outcome.displayed[name] = content["data"]["text/plain"]
                outcome.html = content["data"]["text/html"]
            elif kind == "error":
                outcome.error = "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                outcome.text += "\n".join(outcome.displayed.values())
                return outcome

    def pids(self) -> list[int]:
        return [int(text) for text in re.findall(r"process (\d+)", self.run("%hvd status").text)]

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def on_host(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """How a manager makes kernels on host 1 of the cluster. It talks to them by sockets that are
    files, since it is on no host itself."""
    kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {
        "argv": cluster.inside(1, *kernel),
        "display_name": ON_A_HOST,
        "language": "python",
        "env": {"PATH": f"{cluster.folder}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
    }
    (folder / ON_A_HOST).mkdir(parents=True)
    (folder / ON_A_HOST / "kernel.json").write_text(json.dumps(spec))
    return {
        "kernel_name": ON_A_HOST,
        "kernel_spec_manager": KernelSpecManager(kernel_dirs=[str(folder)]),
        "transport": "ipc",
        "ip": str(folder / "socket"),
    }

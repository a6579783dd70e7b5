"""Where a chaos run takes place: on this host, or on two hosts, which are network namespaces."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def parent_of(pid: int) -> int:
    """0: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def is_below(pid: int, ancestor: int) -> bool:
    while pid not in (0, 1, ancestor):
        pid = parent_of(pid)
    return pid == ancestor


class OneHost:
    """This one."""

    #: Names the hosts, with the ranks of each.
    def hosts_of(self, np: int) -> str:
        return f"localhost:{np}"

    def command(self, launcher: Sequence[str]) -> list[str]:
        return [*launcher]

    def environment(self) -> dict[str, str]:
        return {}

    def owns(self, pid: int, job: int) -> bool:
        """Whether `job`, the launcher, has started the process."""
        return is_below(pid, job)

    def left(self) -> set[int]:
        """Processes that were started on other hosts, and are there."""
        return set()


class TwoHosts(OneHost):
    """The launcher is on the first one. The second one can be lost, and its link can be cut.
    Needs root."""

    SECOND = 2

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        names = {host: cluster.name(host) for host in cluster.hosts}
        self._networks = {
            os.stat(f"/run/netns/{name}").st_ino: host for host, name in names.items()
        }

    def hosts_of(self, np: int) -> str:
        from cluster import address

        second = np // 2
        return f"{address(1)}:{np - second},{address(self.SECOND)}:{second}"

    def command(self, launcher: Sequence[str]) -> list[str]:
        return list(self._cluster.inside(1, *launcher))

    def environment(self) -> dict[str, str]:
        """With an ssh that has the keys of these hosts."""
        return {"PATH": f"{self._cluster.folder}/bin:{os.environ['PATH']}"}

    def owns(self, pid: int, job: int) -> bool:
        return self.host_of(pid) is not None

    def host_of(self, pid: int) -> int | None:
        with contextlib.suppress(OSError):
            return self._networks.get(os.stat(f"/proc/{pid}/ns/net").st_ino)
        return None

    def lose(self) -> None:
        """Kills all processes of the second host but its sshd."""
        self._cluster.kill_all(self.SECOND)

    def set_link(self, up: bool) -> None:
        """What is sent over a link that is down is lost, without a reset."""
        switch, port = self._cluster.name("switch"), f"wire{self.SECOND}"
        words = ["ip", "-n", switch, "link", "set", port, "up" if up else "down"]
        subprocess.run(words, check=True)

    def left(self) -> set[int]:
        deadline = time.monotonic() + 20
        while (found := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _processes(self) -> set[int]:
        return set().union(*(self._cluster.processes(host) for host in self._cluster.hosts))


@contextlib.contextmanager
def hosts(count: int) -> Iterator[OneHost]:
    """Raises: SystemExit if there can be no namespaces here."""
    if count == 1:
        yield OneHost()
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "launch"))
    from cluster import Cluster, why_not

    if reason := why_not():
        raise SystemExit(f"two hosts: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), count)
        try:
            cluster.build()
            yield TwoHosts(cluster)
        finally:
            cluster.take_down()

"""Which hosts an elastic job may use now: for `host_discovery_script` of `horovod.run`."""

from __future__ import annotations

import abc
import os
import subprocess
from collections.abc import Mapping


class HostDiscovery(abc.ABC):
    """Base class. `horovod.run` calls the method every second, in a thread of its own."""

    @abc.abstractmethod
    def find_available_hosts_and_slots(self) -> Mapping[str, int]:
        """Returns the hosts that are available now, each with its number of slots (processes).

        Hosts in the order of preference. If it raises, `horovod.run` raises the error before the
        start of the job; later it warns, and the hosts stay as they are.
        """


class HostDiscoveryScript(HostDiscovery):
    """Hosts that a program prints, one per line: `host:slots`, or `host`."""

    def __init__(self, discovery_script: str | os.PathLike[str], slots: int = 1) -> None:
        """`slots`: of hosts without a number."""
        self._script = os.fspath(discovery_script)
        self._slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Runs the program.

        Raises: RuntimeError if it fails; ValueError for a line that is not `host:slots`.
        """
        ended = subprocess.run([self._script], capture_output=True, text=True)
        if ended.returncode != 0:
            raise RuntimeError(
                f"{self._script} exited with code {ended.returncode}: {ended.stderr.strip()}"
            )
        found = {}
        for line in filter(None, map(str.strip, ended.stdout.splitlines())):
            host, slots = self._parsed(line)
            found[host] = slots
        return found

    def _parsed(self, line: str) -> tuple[str, int]:
        if ":" not in line.rpartition("]")[2]:
            return line, self._slots
        host, _, slots = line.rpartition(":")
        if not slots.isdecimal():
            raise ValueError(
                f"{self._script} printed {line!r}: print one host per line, as 'host:slots' or "
                "'host'"
            )
        return host, int(slots)


class FixedHosts(HostDiscovery):
    """Hosts that the program itself sets."""

    def __init__(self, host_slots: Mapping[str, int]) -> None:
        self._hosts = dict(host_slots)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Returns the hosts of the last `set`."""
        return self._hosts

    def set(self, host_slots: Mapping[str, int]) -> None:
        """Replaces the hosts. Any thread may call it."""
        self._hosts = dict(host_slots)

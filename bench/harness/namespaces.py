"""Hosts that are network namespaces, each with one link of a given rate per direction to a switch.

Names begin with "hvdbench", so that nothing else is touched. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence

from harness.jobs import Missing

SWITCH = "hvdbench-switch"
WIRE = "wire"  #: of each host
NETWORK = "10.77.0"
#: `burst`: several of the largest packets of the kernel. `latency`: the buffer of a small switch.
SHAPE = ["burst", "128kb", "latency", "20ms"]


def name(host: int) -> str:
    return f"hvdbench-{host + 1}"


def address(host: int) -> str:
    return f"{NETWORK}.{host + 1}"


def inside(host: str, command: Sequence[str]) -> list[str]:
    """Returns `command` inside a namespace. Libraries distinguish hosts by name; the name here is
    the address, which always resolves."""
    place = address(int(host.rsplit("-", 1)[1]) - 1)
    entered = ["ip", "netns", "exec", host, "unshare", "--uts"]
    return [*entered, "sh", "-c", 'hostname "$0" && exec "$@"', place, *command]


@contextlib.contextmanager
def hosts(count: int, rate: str) -> Iterator[None]:
    if os.geteuid() != 0:
        raise Missing("namespaces need root")
    take_down(count)
    try:
        build(count, rate)
        yield
    finally:
        take_down(count)


def build(count: int, rate: str) -> None:
    ip("netns", "add", SWITCH)
    in_host(SWITCH, "ip", "link", "add", "bridge", "type", "bridge")
    in_host(SWITCH, "ip", "link", "set", "bridge", "up")
    for host in range(count):
        here, port = name(host), f"port{host + 1}"
        ip("netns", "add", here)
        ends = ["name", WIRE, "netns", here, "type", "veth", "peer", "name", port, "netns", SWITCH]
        ip("link", "add", *ends)
        in_host(SWITCH, "ip", "link", "set", port, "master", "bridge", "up")
        in_host(here, "ip", "addr", "add", f"{address(host)}/24", "dev", WIRE)
        in_host(here, "ip", "link", "set", WIRE, "up")
        in_host(here, "ip", "link", "set", "lo", "up")
        for place, device in ((here, WIRE), (SWITCH, port)):
            in_host(place, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, *SHAPE)


def take_down(count: int) -> None:
    there = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for found in (line.split()[0] for line in there.splitlines()):
        if found == SWITCH or found in [name(host) for host in range(count)]:
            ip("netns", "del", found)


def cut(host: int, off: bool = True) -> None:
    """Packets from and to the host get lost, without a reset. `off` False: no longer."""
    in_host(SWITCH, "ip", "link", "set", f"port{host + 1}", "down" if off else "up")


def kill_all(host: int) -> None:
    """All that runs there. Some processes end with the first that is killed."""
    for process in processes(host):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def processes(host: int) -> list[int]:
    listed = subprocess.run(["ip", "netns", "pids", name(host)], capture_output=True, text=True)
    return [int(word) for word in listed.stdout.split()]


def in_host(host: str, *command: str) -> None:
    ip("netns", "exec", host, *command)


def ip(*arguments: str) -> None:
    ended = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if ended.returncode != 0:
        raise Missing(f"`ip {' '.join(arguments)}`: {ended.stderr.strip()}")

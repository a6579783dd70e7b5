"""Network namespaces that stand for hosts: each has an address of its own on one switch, and beside
it a bridge that has the same address on all of them and leads nowhere, as docker0 has. What is
started on another one goes through a program that takes the place of ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.78.9"
DEAD_END = "10.78.10.1/24"


@dataclass(frozen=True)
class Hosts:
    """`enter[i]` starts a program on host i; `agent HOST COMMAND...` does it by its address."""

    addresses: list[str]
    enter: list[str]
    agent: str


def why_not() -> str:
    """Why there can be none here; "" when there can."""
    missing = [name for name in ("ip", "unshare") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "network namespaces need root here"
    tried = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "network namespaces are not allowed here"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def make_host(name: str, switch: str, number: int) -> None:
    ip("netns", "add", name)
    inside = ("-n", name)
    wire = ("wire", "type", "veth", "peer", "name", f"port{number}", "netns", switch)
    ip(*inside, "link", "add", *wire)
    ip(*inside, "addr", "add", f"{NETWORK}.{number}/24", "dev", "wire")
    ip(*inside, "link", "add", "spare", "type", "bridge")
    ip(*inside, "addr", "add", DEAD_END, "dev", "spare")
    for link in ("lo", "wire", "spare"):
        ip(*inside, "link", "set", link, "up")
    ip("-n", switch, "link", "set", f"port{number}", "master", "switch", "up")


def write_scripts(folder: Path, names: list[str]) -> Hosts:
    enter = []
    cases = []
    addresses = [f"{NETWORK}.{number}" for number in range(1, len(names) + 1)]
    for index, (name, address) in enumerate(zip(names, addresses, strict=True)):
        script = folder / f"enter{index}"
        inside = f'hostname host{index}; exec "$@"'
        script.write_text(
            f"#!/bin/sh\nexec ip netns exec {name} unshare --uts sh -c '{inside}' sh \"$@\"\n"
        )
        script.chmod(0o755)
        enter.append(str(script))
        cases.append(f'{address}) exec {script} sh -c "$*" ;;')
    agent = folder / "agent"
    skip_options = 'while [ "${1#-}" != "$1" ]; do shift; done'
    choose = " ".join(cases)
    agent.write_text(
        f"#!/bin/sh\n{skip_options}\nhost=$1\nshift\ncase $host in {choose} esac\nexit 1\n"
    )
    agent.chmod(0o755)
    return Hosts(addresses, enter, str(agent))


@contextmanager
def running(folder: Path, count: int) -> Iterator[Hosts]:
    switch = f"hvd{os.getpid()}s"
    names = [f"hvd{os.getpid()}h{index}" for index in range(count)]
    try:
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "switch", "type", "bridge")
        ip("-n", switch, "link", "set", "switch", "up")
        for number, name in enumerate(names, 1):
            make_host(name, switch, number)
        yield write_scripts(folder, names)
    finally:
        for name in [*names, switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

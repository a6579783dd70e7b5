"""Starts the ranks of a peer that has no launcher: spawn.py -n 4 [--in NAMESPACE ...] -- command

Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and BENCH_STORE, a folder for
this job only. If one rank fails, the others are ended.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.namespaces import inside


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def start(arguments: argparse.Namespace, store: str) -> list[subprocess.Popen[bytes]]:
    port = free_port()
    started = []
    for rank in range(arguments.n):
        command, places = arguments.command, arguments.namespaces
        if places:
            command = inside(places[rank * len(places) // arguments.n], command)
        identity = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(arguments.n),
            "MASTER_ADDR": arguments.address,
            "MASTER_PORT": str(port),
            "BENCH_STORE": store,
        }
        started.append(subprocess.Popen(command, env={**os.environ, **identity}))
    return started


def wait(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    """Returns the exit code of the first rank that fails, or 0 if all succeed."""
    left = {rank.pid: rank for rank in ranks}
    try:
        while left:
            pid, status = os.wait()
            rank = left.pop(pid, None)
            code = os.waitstatus_to_exitcode(status)
            if rank is not None:
                rank.returncode = code
                if code != 0:
                    return code if code > 0 else 128 - code
        return 0
    finally:
        for rank in left.values():
            rank.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("--in", dest="namespaces", nargs="+", default=[], metavar="NAMESPACE")
    parser.add_argument("--address", default="127.0.0.1", help="where rank 0 can be reached")
    own, sep, command = split(sys.argv[1:])
    arguments = parser.parse_args(own)
    arguments.command = command
    if not sep:
        parser.error("a command must follow --")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="bench") as store:
        try:
            return wait(start(arguments, store))
        except KeyboardInterrupt:
            return 130


def split(words: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in words:
        return words, False, []
    at = words.index("--")
    return words[:at], True, words[at + 1 :]


if __name__ == "__main__":
    sys.exit(main())

"""A network for jobs on one host: only loopback, without packet pacing.

BBR, the default on many machines, paces packets even over loopback, where there is no congestion.
This slows MPI down. Our own connections within a machine request Reno (core/transport/socket.h).
Here all contestants get it. Needs root. Without root, jobs use the machine's network and congestion
control.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WITHOUT_PACING = "reno"  #: every kernel has it
CLONE_NEWNET = 0x40000000  #: from <sched.h>

libc = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """Moves the calling thread and its children into it. Call it in a child before exec."""
    found = network()
    if found is not None and libc.setns(found, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the network of the benches")


@functools.cache
def network() -> int | None:
    """Returns a descriptor of the network, which exists as long as the descriptor is open. None if
    it cannot be created."""
    if os.geteuid() != 0:
        return None
    # Only the calling thread moves. It ends, and the process stays in its network.
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(made).result()


def made() -> int:
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a network for the benches")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(WITHOUT_PACING)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

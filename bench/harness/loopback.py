"""The network of what runs on one host: loopback alone, over which nobody's packets are paced.

BBR, the default of many machines, spreads packets over time, also over loopback, where nothing is
congested: an MPI needs up to twice as long for 4 MiB as with Reno. Our own connections within a
machine ask for Reno (core/transport/socket.h); here every contestant gets it. Needs root; without,
jobs have the network and the congestion control that the machine has.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WITHOUT_PACING = "reno"  #: always in the kernel
CLONE_NEWNET = 0x40000000  #: of <sched.h>

libc = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """Moves the calling thread, and what it starts, there: for a child before it executes."""
    found = network()
    if found is not None and libc.setns(found, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the network of the benches")


@functools.cache
def network() -> int | None:
    """It lives as long as this descriptor. None where none can be made."""
    if os.geteuid() != 0:
        return None
    # A thread moves alone, and this one ends: the process itself stays where it is.
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(made).result()


def made() -> int:
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a network for the benches")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text(WITHOUT_PACING)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

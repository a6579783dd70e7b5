"""Under which address other hosts reach this one."""

from __future__ import annotations

import os
import socket

from horovod.common._interfaces import addresses_by_interface

_OF_NO_HOST = "192.0.2.1"  #: is for documentation; the way to it is the way out


def interface_addresses() -> dict[str, str]:
    """The IPv4 address of each interface that has one, loopback too."""
    known = addresses_by_interface().items()
    of_v4 = {name: [one for one in addresses if ":" not in one] for name, addresses in known}
    return {name: addresses[0] for name, addresses in of_v4.items() if addresses}


def own_address(peer: str = "") -> str:
    """The address of this host that most likely is the one that others reach.

    That of the interface HOROVOD_GLOO_IFACE; else the one from which this host reaches `peer`, a
    host name or address, or the launcher of the job, or hosts outside; else that of this host's
    name. 127.0.0.1 where there is no network.
    Raises: ValueError when the interface HOROVOD_GLOO_IFACE has no IPv4 address.
    """
    chosen = os.environ.get("HOROVOD_GLOO_IFACE", "")
    if chosen:
        known = interface_addresses()
        if chosen not in known:
            raise ValueError(
                f"HOROVOD_GLOO_IFACE={chosen}: no interface of that name has an IPv4 address here, "
                f"only {', '.join(known)}"
            )
        return known[chosen]
    launcher = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "")
    for there in (peer, launcher, _OF_NO_HOST):
        found = _towards(there)
        if found and not found.startswith("127."):
            return found
    try:
        named = socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
    return named if not named.startswith("127.") else "127.0.0.1"


def _towards(peer: str) -> str:
    """The address from which packets to `peer` leave; "" where there is no way."""
    if not peer:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as chooser:
        try:
            chooser.connect((peer, 9))  # sends nothing
        except OSError:
            return ""
        return str(chooser.getsockname()[0])

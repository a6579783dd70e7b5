"""The network interfaces of this host, as the kernel reports them."""

from __future__ import annotations

import os
from pathlib import Path

from horovod.common._interfaces import addresses_by_interface
from horovod.doctor.facts import Interface

_FOLDER = Path("/sys/class/net")


def interfaces() -> list[Interface]:
    addresses = addresses_by_interface()
    found = []
    for name in sorted(os.listdir(_FOLDER)) if _FOLDER.is_dir() else sorted(addresses):
        flags = int(_text(name, "flags") or "0", 16)
        found.append(
            Interface(
                name=name,
                addresses=addresses.get(name, []),
                is_up=bool(flags & 1) and _text(name, "carrier") != "0",
                loopback=bool(flags & 8),
                mtu=_number(name, "mtu"),
                mbit_s=_number(name, "speed"),
                packets=_number(name, "statistics/rx_packets"),
                errors=_number(name, "statistics/rx_errors"),
            )
        )
    return found


def _text(interface: str, name: str) -> str:
    try:
        return (_FOLDER / interface / name).read_text().strip()
    except OSError:  # for example the speed of an interface that is down
        return ""


def _number(interface: str, name: str) -> int:
    text = _text(interface, name)
    return int(text) if text.isdecimal() else 0

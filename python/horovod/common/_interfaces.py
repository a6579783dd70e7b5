"""The addresses of this host, as the kernel tells them."""

from __future__ import annotations

import ctypes
import os
import socket

_ADDRESS_AT = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}  # offset and length in a sockaddr


class _Entry(ctypes.Structure):
    pass


_Entry._fields_ = [
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("mask", ctypes.c_void_p),
    ("other", ctypes.c_void_p),
    ("data", ctypes.c_void_p),
]


def addresses_by_interface() -> dict[str, list[str]]:
    """Returns the addresses by interface, without those that have no meaning on another host."""
    libc = ctypes.CDLL(None)
    first = ctypes.POINTER(_Entry)()
    found: dict[str, list[str]] = {}
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        return found
    entry = first
    while entry:
        text = _address(entry.contents.address)
        if text and not text.startswith("fe80:"):
            found.setdefault(os.fsdecode(entry.contents.name), []).append(text)
        entry = entry.contents.next
    libc.freeifaddrs(first)
    return found


def _address(at: int | None) -> str:
    if not at:
        return ""
    family = ctypes.c_ushort.from_address(at).value
    if family not in _ADDRESS_AT:
        return ""
    offset, length = _ADDRESS_AT[socket.AddressFamily(family)]
    return socket.inet_ntop(family, ctypes.string_at(at + offset, length))

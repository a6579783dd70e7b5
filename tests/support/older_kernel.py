"""Runs a program as on Linux 4.18: `older_kernel.py ERROR PROGRAM ARGUMENTS...`.

The system calls that are newer than Linux 4.18 fail with ERROR: ENOSYS as from that kernel, or
EPERM as in a container whose seccomp profile does not know them. clone3 is always missing: libc
starts no thread after another error. Exit code 77: seccomp filters are not allowed here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

NO_FILTER = 77
#: rseq: calls are numbered in the order of their arrival, and it is the last one of Linux 4.18.
LAST_OF_4_18 = {"x86_64": 334, "aarch64": 293}
CLONE3 = 435  # on every CPU

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _EQUAL, _GREATER, _RETURN = 0x20, 0x15, 0x25, 0x06  # of struct sock_filter
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def on_older_kernel(error: str, *command: str) -> list[str]:
    """The command that runs `command` so."""
    return [sys.executable, str(Path(__file__)), error, *command]


def _refuse_newer_calls(error: int) -> bool:
    steps = [
        (_LOAD, 0, 0, 0),  # the number of the call
        (_GREATER, 1, 0, LAST_OF_4_18[platform.machine()]),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 1, 0, CLONE3),
        (_RETURN, 0, 0, _ERROR | error),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HP", len(steps), ctypes.addressof(code))
    prctl = ctypes.CDLL(None).prctl
    return (
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        and prctl(_PR_SET_SECCOMP, _MODE_FILTER, program) == 0
    )


if __name__ == "__main__":
    if not _refuse_newer_calls(getattr(errno, sys.argv[1])):
        sys.exit(NO_FILTER)
    os.execvp(sys.argv[2], sys.argv[2:])

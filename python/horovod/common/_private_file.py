"""Reads files that hold a secret or a list of trusted hosts."""

from __future__ import annotations

import os
import stat

#: No file of ours is as large.
_MOST_BYTES = 1 << 20


def read_private(path: str) -> bytes:
    """Returns the content of a regular file that belongs to this process's user and that no other
    user may read or write. Does not block on other file types, and does not follow a symbolic link
    at the end of `path`.

    The rule applies to root as well: another user's file may be that user's trap.
    Raises: PermissionError if the file is not private; OSError if it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(_MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > _MOST_BYTES:
        raise PermissionError(f"{path}: it has more than {_MOST_BYTES} bytes")
    return content


def _check(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PermissionError(f"{path}: expected a regular file")
    if status.st_uid != os.geteuid():
        raise PermissionError(
            f"{path}: it belongs to user {status.st_uid}, but this process to user {os.geteuid()}"
        )
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise PermissionError(f"{path}: others may read or write it: chmod 600 {path}")

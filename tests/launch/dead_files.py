"""A file system that stops answering, as that of an NFS server that is down.

It is a file system in user space (FUSE) with one file, which a thread of this process answers for.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

NAME = "data"
ROOT, FILE = 1, 2  #: numbers of nodes
FOREVER_S = 1 << 30  #: how long the kernel may keep names and attributes
REQUEST_BYTES = 1 << 18  #: at most

# From <linux/fuse.h>.
LOOKUP, GETATTR, OPEN, READ, INIT, OPENDIR = 1, 3, 14, 15, 26, 27
WITHOUT_RESULT = (18, 25, 28, 29)  #: RELEASE, FLUSH, READDIR, RELEASEDIR
WITHOUT_ANSWER = (2, 36, 42)  #: FORGET, INTERRUPT, BATCH_FORGET
VERSION = (7, 31)
ASYNC_READ = 1  #: a process that waits for a page can be killed, as with NFS
KEEP_CACHE = 2
# From <sys/mount.h>.
FORCE, DETACH = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


class DeadFiles:
    """All is answered until die(). With `reads` False, no read is answered from the beginning."""

    def __init__(self, folder: Path, content: bytes = b"", reads: bool = True) -> None:
        self.folder, self.content, self.reads = folder, content, reads
        self._is_dead = False
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        folder.mkdir()
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"dead", bytes(folder), b"fuse", 0, options) != 0:
            why = os.strerror(ctypes.get_errno())
            self._forget()
            raise OSError(why)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def file(self) -> Path:
        return self.folder / NAME

    def die(self) -> None:
        """Nothing is answered from now on. What the kernel knows remains for a while."""
        self._is_dead = True

    def end(self) -> None:
        """All calls that wait return with an error."""
        libc.umount2(bytes(self.folder), FORCE | DETACH)
        self._thread.join()
        self._forget()

    def _forget(self) -> None:
        os.close(self._device)
        self.folder.rmdir()

    # ---- The protocol ----
    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, REQUEST_BYTES)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # unmounted
            _, what, number, node = struct.unpack_from("=IIQQ", request)
            if self._is_dead or what in WITHOUT_ANSWER or (what == READ and not self.reads):
                continue
            answer = self._answer(what, node, request[40:])
            failed, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
            os.write(self._device, struct.pack("=IiQ", 16 + len(body), failed, number) + body)

    def _answer(self, what: int, node: int, body: bytes) -> bytes | int:
        """A number is an error."""
        if what == INIT:
            ahead = struct.unpack_from("=I", body, 8)[0]
            told = struct.pack(
                "=IIIIHHIIHHI", *VERSION, ahead, ASYNC_READ, 0, 0, 1 << 16, 1, 0, 0, 0
            )
            return told.ljust(64, b"\0")
        if what == LOOKUP:
            if body.rstrip(b"\0") != NAME.encode():
                return errno.ENOENT
            return struct.pack("=QQQQII", FILE, 0, *self._times(), 0, 0) + self._attributes(FILE)
        if what == GETATTR:
            return struct.pack("=QII", self._times()[0], 0, 0) + self._attributes(node)
        if what in (OPEN, OPENDIR):
            return struct.pack("=QII", 0, KEEP_CACHE, 0)
        if what == READ:
            _, offset, size = struct.unpack_from("=QQI", body)
            return self.content[offset : offset + size]
        return b"" if what in WITHOUT_RESULT else errno.ENOSYS

    def _times(self) -> tuple[int, int]:
        """For which a name and its attributes hold. What can be read may die, and is asked for
        anew then."""
        return (0, 0) if self.reads else (FOREVER_S, FOREVER_S)

    def _attributes(self, node: int) -> bytes:
        is_file = node == FILE
        size = max(len(self.content), 1) if is_file else 0
        mode = stat.S_IFREG | 0o644 if is_file else stat.S_IFDIR | 0o755
        times = (0,) * 6
        return struct.pack("=6Q10I", node, size, 1, *times, mode, 1, 0, 0, 0, 4096, 0)


@contextmanager
def dead_files(folder: Path, content: bytes = b"", reads: bool = True) -> Iterator[DeadFiles]:
    """Raises OSError where there can be none."""
    files = DeadFiles(folder, content, reads)
    try:
        yield files
    finally:
        files.end()


@contextmanager
def dead_files_or_skip(
    folder: Path, content: bytes = b"", reads: bool = True
) -> Iterator[DeadFiles]:
    with ExitStack() as stack:
        try:
            files = stack.enter_context(dead_files(folder, content, reads))
        except OSError as error:
            pytest.skip(f"a file system in user space cannot be mounted: {error}")
        yield files

"""Committed states in a folder, for jobs that are started again.

    FOLDER/commit-000000000007-5b1f0c62a9d3e840/part-0-of-2
                                                part-1-of-2

A commit has one part per rank that wrote it. A part is written to a temporary file, which is synced
to disk and renamed. It ends with a SHA-256 of all bytes before. A commit is used if all its parts
are there and are what was written. The number grows with every commit of every job that uses the
folder; the other part of the name, the nonce, is drawn by the process that chose the number, so
that parts of different jobs do not mix.

A rank that cannot agree with others any more writes a commit of its own, with one part that has
everything. Of commits with equal numbers the one with the greatest nonce is used: one of all ranks,
or else that of the lowest rank.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import pickle
import re
import secrets
import shutil
import stat
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from horovod.common.exceptions import HorovodInternalError

T = TypeVar("T")

_logger = logging.getLogger("horovod")

_MAGIC = b"horovod state 1\n"
_DIGEST_BYTES = 32
_COMMIT = re.compile(r"commit-(\d{12})-([0-9a-f]{16})")
_PART = re.compile(r"part-(\d+)-of-(\d+)")
#: Complete commits that are kept.
_KEPT = 2
#: Nonces of all ranks are greater than those of one. They fit into a signed number of 64 bits.
_OF_ALL = 1 << 62
_RANK_BITS = 20
#: Characters of an error of a framework. That of a large model names each of its tensors.
_MOST_SHOWN = 500


class UnusableError(Exception):
    """A commit is incomplete or damaged. The text says what was found."""


class Commit(NamedTuple):
    """A commit in the folder. `path`: its own folder."""

    number: int
    nonce: int
    path: Path


def commit_in(folder: Path, number: int, nonce: int) -> Commit:
    return Commit(number, nonce, folder / f"commit-{number:012}-{nonce:016x}")


def nonce_of_all() -> int:
    return _OF_ALL | secrets.randbits(62)


def nonce_of_one(rank: int) -> int:
    """Of a commit that this rank writes alone."""
    bits = 62 - _RANK_BITS
    return max((1 << _RANK_BITS) - 1 - rank, 0) << bits | secrets.randbits(bits)


def commits(folder: Path) -> list[Commit]:
    """All commits, complete or not, the newest first. None if the folder does not exist."""
    if not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        match = _COMMIT.fullmatch(path.name)
        if match is not None:
            found.append(Commit(int(match[1]), int(match[2], 16), path))
    return sorted(found, reverse=True)


def newest_number(folder: Path) -> int:
    """The number of the newest commit, complete or not; 0 if there is none."""
    return max((commit.number for commit in commits(folder)), default=0)


def has_complete(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return bool(_complete(commits(folder)))
    return False


def try_to_write(folder: Path) -> None:
    """Makes the folder, and a file in it that is gone at once. Raises: OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _complete(found: list[Commit]) -> list[Commit]:
    return [commit for commit in found if _part_names(commit) is not None]


class _HashedFile:
    """What pickle writes to."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._file.write(view)
        return len(view)

    def seal(self) -> None:
        self._file.write(self._hash.digest())


def write_part(commit: Commit, part: int, parts: int, content: Any) -> None:
    """Writes `content`, which is pickled, as one part of the commit.

    Raises: OSError, for example if the disk is full. Then nothing is left of the part.
    """
    commit.path.mkdir(parents=True, exist_ok=True)
    temporary = commit.path / f".part-{part}.{os.getpid()}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            _write(_Buffered(file), content)
            os.fsync(file.fileno())
        temporary.rename(commit.path / f"part-{part}-of-{parts}")
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        with contextlib.suppress(OSError):
            commit.path.rmdir()  # only if it is empty
        raise
    for folder in (commit.path, commit.path.parent):
        _sync_folder(folder)


class _Buffered:
    """Writes all bytes: a raw file may take a part of them."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> None:
        left = memoryview(data).cast("B")
        while left:
            left = left[self._file.write(left) :]


def _write(file: Any, content: Any) -> None:
    hashed = _HashedFile(file)
    hashed.write(_MAGIC)
    pickle.dump(content, hashed, protocol=pickle.HIGHEST_PROTOCOL)
    hashed.seal()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_parts(commit: Commit) -> list[Any]:
    """Returns the contents of all parts, in their order.

    Unpickling runs code, so a part of another user is refused.
    Raises: UnusableError.
    """
    names = _part_names(commit)
    if names is None:
        there = sorted(path.name for path in commit.path.iterdir() if _PART.fullmatch(path.name))
        raise UnusableError(f"it is incomplete: it has {', '.join(there) or 'no part'}")
    return [_read_part(commit.path / name) for name in names]


def _part_names(commit: Commit) -> list[str] | None:
    """The names of all parts in their order; None if some are missing."""
    try:
        matches = [_PART.fullmatch(path.name) for path in commit.path.iterdir()]
    except FileNotFoundError:  # removed meanwhile
        return None
    by_part = {int(match[1]): (match[0], int(match[2])) for match in matches if match is not None}
    totals = {total for _, total in by_part.values()}
    if len(totals) != 1 or sorted(by_part) != list(range(totals.pop())):
        return None
    return [name for _, (name, _) in sorted(by_part.items())]


def _read_part(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            _check_owner(path, os.fstat(file.fileno()))
            content = memoryview(file.read())
    except OSError as error:
        raise UnusableError(f"{path.name} cannot be read: {error.strerror}") from error
    pickled, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(pickled).digest() != digest or pickled[: len(_MAGIC)] != _MAGIC:
        raise UnusableError(f"{path.name} is damaged: it is not what was written")
    return pickle.loads(pickled[len(_MAGIC) :])


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Volumes of Kubernetes may be open to a group."""
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
        raise UnusableError(
            f"{path.name} belongs to user {status.st_uid}, or all users may write to it; it is "
            f"read only if it belongs to user {os.geteuid()}, since reading it can run code"
        )


def read_newest(folder: Path, use: Callable[[list[Any]], T]) -> tuple[Commit, T] | None:
    """Returns the newest commit that can be used and what `use` makes of its parts, or None. `use`
    may raise UnusableError.

    Warns of newer ones. Damaged ones are renamed, so that they are not kept in place of good ones.
    Raises: ValueError if the commit cannot be loaded because the script has changed.
    """
    unused: list[str] = []
    for commit in commits(folder):
        try:
            with fitting(commit):
                made = use(read_parts(commit))
        except UnusableError as error:
            unused.append(f"{commit.path} is not used: {error}")
            with contextlib.suppress(OSError):
                if _part_names(commit) is not None:
                    commit.path.rename(folder / f"damaged-{commit.path.name}")
        else:
            for problem in unused:
                _logger.warning("%s. Commit %d is used", problem, commit.number)
            return commit, made
    if unused:
        begins = f"no commit in {folder} can be used: training begins anew"
        _logger.warning("%s (%s)", begins, "; ".join(unused))
    return None


@contextlib.contextmanager
def fitting(commit: Commit) -> Iterator[None]:
    """Errors of frameworks and of pickle know nothing of a folder: a size has changed, or a class
    is gone."""
    try:
        yield
    except (UnusableError, HorovodInternalError, MemoryError):
        raise
    except Exception as error:
        what = textwrap.shorten(
            str(error).rstrip(".") or repr(error), _MOST_SHOWN, placeholder=" ..."
        )
        raise ValueError(
            f"the state in {commit.path} does not fit this script: {what}; use "
            f"another folder (HOROVOD_STATE_DIR={commit.path.parent}), or the script that wrote it"
        ) from error


def remove_old(current: Commit) -> None:
    """Removes all commits but the last two complete ones and `current`, which ranks may still
    write. Called by one rank."""
    found = commits(current.path.parent)
    complete = _complete(found)
    for commit in found:
        if commit != current and commit not in complete[:_KEPT]:
            shutil.rmtree(commit.path, ignore_errors=True)


def write_alone(commit: Commit, content: Callable[[], Any]) -> Commit:
    """Writes a commit of one part, unless there is a complete one that is used in place of it.
    Returns the one that is used.

    Ranks take turns, so that the disk need not have room for a copy of each. Old complete commits
    are removed; others may still be written.
    Raises: OSError.
    """
    folder = commit.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _turn(folder):
        for better in _complete(commits(folder))[:1]:
            if better > commit:
                return better
        write_part(commit, 0, 1, content())
        for old in _complete(commits(folder))[_KEPT:]:
            shutil.rmtree(old.path, ignore_errors=True)
    return commit


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Waits until no other process has its turn, if the file system has locks. The kernel ends the
    turn of a process that ends."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file = stack.enter_context(open(folder / ".turn", "ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def hold(folder: Path) -> int | None:
    """Marks the folder as in use by this process until the returned descriptor is closed. None if
    the file system has no locks.

    The kernel ends it with the process. Children do not inherit this kind of lock, so a data loader
    that outlives its rank does not hold the folder.
    Raises: BlockingIOError if another process holds it.
    """
    try:
        descriptor = os.open(folder / ".job", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise BlockingIOError(*error.args) from None
        return None
    return descriptor

"""Files with secrets are read only if no other user can read or write them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from horovod.common._private_file import read_private


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b"known")
    path.chmod(0o600)
    return path


def test_a_file_of_this_user_alone_is_read(file: Path) -> None:
    assert read_private(str(file)) == b"known"


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o604, 0o602, 0o610])
def test_what_others_may_use_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(PermissionError, match="chmod 600"):
        read_private(str(file))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PermissionError, match="expected a regular file"):
        read_private(str(tmp_path / "pipe"))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(PermissionError, match="expected a regular file"):
        read_private(str(tmp_path))


def test_a_socket_and_a_symbolic_link_are_refused(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    with pytest.raises(OSError, match="symbolic link"):
        read_private(str(link))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(file.with_name("socket")))
    with listener, pytest.raises(OSError, match="No such device"):
        read_private(str(file.with_name("socket")))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused_also_to_root(file: Path) -> None:
    os.chown(file, 65534, 65534)
    with pytest.raises(PermissionError, match="it belongs to user 65534, but this process to user"):
        read_private(str(file))


def test_what_is_too_large_is_not_read_whole(file: Path) -> None:
    os.truncate(file, 1 << 40)
    with pytest.raises(PermissionError, match="more than 1048576 bytes"):
        read_private(str(file))


def test_a_missing_file_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_private(str(tmp_path / "nothing"))

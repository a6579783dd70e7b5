"""Roots of Debian releases, made by debootstrap, and commands that run in them: in a mount
namespace of their own, where pip finds the packages that it finds here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from commands import must

CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"  # the path of an image may be without it
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
CERTIFICATES_INSIDE = "/opt/certificates.crt"
PIP_FILES = [Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf"]
SECONDS = 1800  #: for a download of packages and their set-up
#: Folders of packages on this machine's disk, which pip's settings may name.
WHEEL_FOLDERS = [Path(word) for word in os.environ.get("PIP_FIND_LINKS", "").split()]


def why_not() -> str:
    """Why no root can be made here; empty if one can."""
    for program in ("debootstrap", "unshare", "chroot"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            return f"there is no {program}"
    probe = "mount -t tmpfs probe /mnt"
    tried = subprocess.run(["unshare", "-m", "sh", "-c", probe], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"mounts are not allowed here: {tried.stderr}"


def make(release: str, root: Path, *options: str) -> None:
    """Fills `root`. With the option `--foreign`, packages are unpacked and not set up, which is
    enough for programs that need libraries alone."""
    must("debootstrap", "--variant=minbase", *options, release, str(root), seconds=SECONDS)


def connect(root: Path) -> None:
    """Gives it what programs that use the network need."""
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, root / CERTIFICATES_INSIDE.lstrip("/"))
    for file in PIP_FILES:
        if file.exists():
            at = root / str(file).lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, at)


def variables() -> dict[str, str]:
    """What programs in it need to reach the package indexes, as a proxy's settings would be."""
    names = [name for name in os.environ if name.startswith("PIP_")]
    names += ["http_proxy", "https_proxy", "no_proxy"]
    found = {name: os.environ[name] for name in names if name in os.environ}
    if CERTIFICATES.exists():
        found["PIP_CERT"] = CERTIFICATES_INSIDE
    return found | {"DEBIAN_FRONTEND": "noninteractive"}


def with_mounts(root: Path, command: list[str]) -> list[str]:
    """Runs `command`, which enters the root, where the root has /proc, /dev and /tmp."""
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
    mounts += [f"mount -t tmpfs tmp {root}/tmp", f"chmod 1777 {root}/tmp"]
    for folder in WHEEL_FOLDERS:
        if folder.is_dir():
            inside = f"{root}{folder}"
            mounts += [f"mkdir -p {inside}", f"mount --bind {folder} {inside}"]
    return ["unshare", "-m", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh", *command]

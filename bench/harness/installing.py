"""Installs peers from packages at their first use, and builds the programs for them.

Debian packages need root. PyPI packages get one virtual environment per peer in build/peers. Raises
Missing with the reason if a peer cannot be installed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.jobs import Missing
from harness.places import PEERS, PROGRAMS

INSTALL_LIMIT_S = 900
HEADERS = ("measure.h", "pages.h", "rendezvous.h", "timing.h")  #: of the programs


def debian(*packages: str) -> None:
    """Ensures that the Debian `packages` are installed."""
    lacking = [name for name in packages if not is_installed(name)]
    if not lacking:
        return
    if os.geteuid() != 0:
        raise Missing(f"needs root, or: apt-get install {' '.join(lacking)}")
    apt = ["apt-get", "install", "-y", "--no-install-recommends", *lacking]
    must(apt, "apt", {"DEBIAN_FRONTEND": "noninteractive"})


def is_installed(package: str) -> bool:
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    try:
        return subprocess.run(query, capture_output=True, text=True).stdout == "installed"
    except FileNotFoundError as error:
        raise Missing("not a Debian system") from error


def pypi(name: str, *requirements: str, env: dict[str, str] | None = None) -> Path:
    """Makes a virtual environment with `requirements`, without their dependencies. `env`: variables
    for pip and the compilers that it runs."""
    folder = PEERS / name
    stamp = folder / ".requirements"
    wanted = "\n".join(requirements)
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    PEERS.mkdir(parents=True, exist_ok=True)
    if not (folder / "bin" / "pip").is_file():
        must([sys.executable, "-m", "venv", str(folder)], f"venv-{name}")
    must([str(folder / "bin" / "pip"), "install", "--no-deps", *requirements], f"pip-{name}", env)
    stamp.write_text(wanted)
    return folder


def program(name: str, compile_command: Sequence[str], *sources: str, libraries: str = "") -> Path:
    """Builds the program `name` if a source or the command has changed."""
    target = PEERS / "programs" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    texts = [PROGRAMS / source for source in (*sources, *HEADERS)]
    command = [
        *compile_command,
        *["-std=c++20", "-O2", "-o", str(target)],
        *[str(path) for path in texts if path.suffix == ".cc"],
        *libraries.split(),
    ]
    digest = hashlib.sha256(" ".join(command).encode())
    for path in texts:
        digest.update(path.read_bytes())
    stamp = target.with_suffix(".stamp")
    if not (target.is_file() and stamp.is_file() and stamp.read_text() == digest.hexdigest()):
        must(command, f"compile-{name}")
        stamp.write_text(digest.hexdigest())
    return target


def must(command: Sequence[str], log_name: str, env: dict[str, str] | None = None) -> None:
    log = PEERS / "logs" / f"{log_name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            code = subprocess.run(
                list(command),
                env={**os.environ, **(env or {})},
                stdout=output,
                stderr=output,
                timeout=INSTALL_LIMIT_S,
            ).returncode
        except (FileNotFoundError, subprocess.TimeoutExpired) as error:
            raise Missing(f"{command[0]}: {error}") from error
    if code != 0:
        raise Missing(f"`{' '.join(command)}` ended with {code}; see {log}")

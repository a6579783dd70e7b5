"""Environments in which a wheel is installed as a user would, with no compiler on PATH."""

from __future__ import annotations

import os
import platform
import shlex
from dataclasses import dataclass
from pathlib import Path

from commands import SECONDS, must

from devtool.paths import ROOT, VENV, venv_program
from devtool.toolchain import Target
from devtool.wheel import DIST, Build, Version, wheel_of

HERE = Path(__file__).parent


def wheel_for(version: Version) -> Path:
    """The wheel in dist/ that pip chooses for this Python, of this machine's CPU."""
    return wheel_of(Build(Target(platform.machine()), version, python=""))


def installation() -> list[str]:
    """The words after `pip` in the first command of the README, which installs a wheel of dist/."""
    command = (ROOT / "README.md").read_text().split("```")[1]
    pip, *words = shlex.split(command, comments=True)
    assert pip == "pip" and "dist" in words, command
    return [str(DIST) if word == "dist" else word for word in words]


@dataclass(frozen=True)
class Environment:
    """A virtual environment, without pip. PATH has nothing but its programs."""

    folder: Path

    def run(self, *command: str, seconds: float = SECONDS) -> str:
        env = {"PATH": str(self.folder / "bin"), "HOME": os.environ["HOME"], "OMP_NUM_THREADS": "1"}
        program = str(self.folder / "bin" / command[0])
        return must(program, *command[1:], env=env, seconds=seconds)

    def job(self, script: str) -> str:
        return self.run("horovodrun", "-np", "2", "python", str(HERE / script))

    def pip(self, *words: str, seconds: float = SECONDS) -> str:
        python = str(self.folder / "bin" / "python")
        return must(venv_program("pip", VENV), "--python", python, *words, seconds=seconds)

    def files(self) -> set[str]:
        """Without what Python has compiled."""
        below = (path.relative_to(self.folder) for path in self.folder.rglob("*"))
        return {str(path) for path in below if "__pycache__" not in path.parts}


def empty_environment(python: str, folder: Path) -> Environment:
    must(python, "-m", "venv", "--without-pip", str(folder))
    return Environment(folder)

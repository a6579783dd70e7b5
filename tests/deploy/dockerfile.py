"""Reads the instructions of a Dockerfile that ours use, and runs them in folders that stand for the
stages, where no Docker engine is at hand: RUN by chroot, COPY by copying what .dockerignore lets
through."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from debian_root import CHROOT

#: What images of Debian set.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str


@dataclass
class Image:
    """What a container of it starts with."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    folder: str = "/"
    command: list[str] = field(default_factory=list)


def instructions(text: str) -> list[Instruction]:
    """Without comments, and with continued lines in one."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    split = (line.strip().partition(" ") for line in whole.splitlines() if line.strip())
    return [Instruction(word, rest.strip()) for word, _, rest in split]


class Ignored:
    """.dockerignore: the last pattern that fits a path or a folder above it decides."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines()]
        self.patterns = [line for line in lines if line and not line.startswith("#")]

    def __call__(self, path: str) -> bool:
        parts = path.split("/")
        above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        ignored = False
        for pattern in self.patterns:
            lets_in = pattern.startswith("!")
            wanted = pattern.removeprefix("!").removeprefix("**/")
            names = parts if "**/" in pattern else above
            if any(fnmatch.fnmatchcase(name, wanted) for name in names):
                ignored = not lets_in
        return ignored


class Build:
    """`checkout`: the context; `tracked`: its files. `base(folder)` fills the root of a stage that
    begins with a distribution. `arguments`: as by --build-arg, for what ARG names, and for what a
    proxy would need, which Docker hands to every RUN as well."""

    def __init__(
        self,
        checkout: Path,
        tracked: list[str],
        folder: Path,
        base: Callable[[Path], None],
        arguments: Mapping[str, str],
        around: Callable[[Path, list[str]], list[str]],
    ) -> None:
        ignored = Ignored((checkout / ".dockerignore").read_text())
        self.checkout = checkout
        self.context = [path for path in tracked if not ignored(path)]
        self.folder = folder
        self.base = base
        self.arguments = dict(arguments)
        self.around = around
        self.stages: dict[str, Image] = {}
        self.log = folder / "build.log"

    def run(self, file: Path) -> Image:
        """The last stage."""
        image = Image(self.folder)
        for one in instructions(file.read_text()):
            if one.word == "FROM":
                _, _, name = one.rest.partition(" AS ")
                image = Image(self.folder / (name or "last"), {"PATH": PATH})
                self.base(image.root)
                self.stages[name] = image
            else:
                getattr(self, f"_{one.word.lower()}")(image, one.rest)
        return image

    def _arg(self, image: Image, rest: str) -> None:
        name, _, default = rest.partition("=")
        image.environment.setdefault(name, self.arguments.get(name, default))

    def _env(self, image: Image, rest: str) -> None:
        name, _, value = rest.partition("=")
        image.environment[name] = value

    def _user(self, image: Image, rest: str) -> None:
        image.user = rest

    def _workdir(self, image: Image, rest: str) -> None:
        image.folder = rest

    def _cmd(self, image: Image, rest: str) -> None:
        image.command = json.loads(rest)

    def _run(self, image: Image, rest: str) -> None:
        with self.log.open("a") as log:
            log.write(f"\nRUN {rest}\n")
            log.flush()
            command = self.around(image.root, in_image(image, ["/bin/sh", "-c", rest]))
            ended = subprocess.run(
                command, stdout=log, stderr=log, env=self.arguments | image.environment
            )
        assert ended.returncode == 0, f"RUN {rest}: {self.log.read_text()[-3000:]}"

    def _copy(self, image: Image, rest: str) -> None:
        words = shlex.split(rest)
        options = [word for word in words if word.startswith("--")]
        source, target = (word for word in words if not word.startswith("--"))
        to = image.root / target.lstrip("/")
        if options:
            stage = self.stages[options[0].removeprefix("--from=")]
            shutil.copytree(stage.root / source.lstrip("/"), to, symlinks=True)
            return
        found = [path for path in self.context if is_below(path, source)]
        assert found, f"COPY {rest}: .dockerignore lets nothing of it through"
        for path in found:
            at = to if path == source else to / path_below(path, source)
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.checkout / path, at)


def is_below(path: str, folder: str) -> bool:
    return folder in (".", path) or path.startswith(folder + "/")


def path_below(path: str, folder: str) -> str:
    return path if folder == "." else path.removeprefix(folder + "/")


def in_image(image: Image, command: list[str]) -> list[str]:
    """Runs it in the image, as its user and in its folder."""
    change = f'cd {shlex.quote(image.folder)} && exec "$@"'
    user = [] if image.user == "root" else [f"--userspec={image.user}"]
    return [CHROOT, *user, str(image.root), "/bin/sh", "-c", change, "sh", *command]

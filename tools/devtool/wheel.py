"""`./dev wheel`: wheels that run on any Linux with glibc 2.28, without a compiler.

Nothing in a wheel depends on the version of a framework, and only `_core` depends on that of
Python. So there is one wheel per Python before 3.12, and one of the stable ABI for 3.12 and
later."""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtool import bill, binaries, inputs, toolchain
from devtool.libraries import static_libraries
from devtool.paths import BUILD, ROOT, venv_program
from devtool.process import Failed, must, say, step
from devtool.setup import BUILD_REQUIREMENTS, cores, make_environment
from devtool.toolchain import CPUS, TOOLS, Target

DIST = ROOT / "dist"
STABLE_ABI = (3, 12)  #: the first version for which nanobind supports it
PYTHONS = ("3.10", "3.11", "3.12")  #: by default: one for each wheel
MOST_BYTES = 3_000_000

#: Run by a Python; prints what a wheel for it needs to know. Without headers, nothing.
ASK = """import json, pathlib, sys, sysconfig
if (pathlib.Path(sysconfig.get_path("include")) / "Python.h").is_file():
    print(json.dumps(list(sys.version_info[:2])))"""

Version = tuple[int, int]


@dataclass(frozen=True)
class Build:
    """One wheel."""

    target: Target
    version: Version
    python: str  #: path of an interpreter of that version on this machine

    @property
    def tag(self) -> str:
        """Its versions of Python, as in the name of a wheel."""
        abi = "abi3" if self.version >= STABLE_ABI else self.interpreter
        return f"{self.interpreter}-{abi}"

    @property
    def interpreter(self) -> str:
        major, minor = STABLE_ABI if self.version >= STABLE_ABI else self.version
        return f"cp{major}{minor}"

    @property
    def name(self) -> str:
        """Of folders and logs."""
        return f"{self.target.cpu}-{self.interpreter}"

    @property
    def environment(self) -> Path:
        return TOOLS.with_name(self.interpreter)

    def env(self) -> dict[str, str]:
        """Of the command. The names of the target are what Python would say on it."""
        cpu, (major, minor) = self.target.cpu, self.version
        return {
            **toolchain.compiler_environment(self.target),
            "CI": "1",  # scikit-build-core then waits longer for CMake to start
            "CMAKE_BUILD_PARALLEL_LEVEL": str(cores()),
            "CMAKE_GENERATOR": "Ninja",
            "HOROVOD_WITH_MPI": "1",
            "SETUPTOOLS_EXT_SUFFIX": f".cpython-{major}{minor}-{cpu}-linux-gnu.so",
            "_PYTHON_HOST_PLATFORM": f"linux-{cpu}",
        }


def settings(build: Build, tree: Path, definitions: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of scikit-build-core for a wheel that is built in `tree`.
    `definitions`: for CMake."""
    chosen = {
        "build-dir": str(tree),
        "install.strip": "false",  # the linker has done it
        # Otherwise the path of the build folder is in libraries until they are installed, and its
        # length remains.
        "cmake.define.CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        **{f"cmake.define.{name}": value for name, value in definitions.items()},
    }
    if build.version >= STABLE_ABI:
        chosen["wheel.py-api"] = build.interpreter
    return chosen


@dataclass(frozen=True)
class Plan:
    builds: tuple[Build, ...]
    missing: tuple[str, ...]  #: versions of Python that are not on this machine


def plan(target: Target, wanted: Sequence[str], found: Mapping[Version, str]) -> Plan:
    """Chooses an interpreter of `found` for each version that is wanted. The wheel of the stable
    ABI is built once, by the oldest Python that can."""
    builds: dict[str, Build] = {}
    missing = []
    for text in wanted:
        version = parsed(text)
        able = [there for there in sorted(found) if there >= STABLE_ABI]
        if version < STABLE_ABI:
            able = [version] if version in found else []
        if not able:
            missing.append(text)
            continue
        build = Build(target, able[0], found[able[0]])
        builds[build.tag] = build
    return Plan(tuple(builds.values()), tuple(missing))


def parsed(version: str) -> Version:
    major, _, minor = version.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise Failed(f"--python takes versions such as 3.10, not {version!r}")
    return int(major), int(minor)


@functools.cache
def interpreters() -> Mapping[Version, str]:
    """Returns the Pythons of this machine that have headers: those on PATH, and those of pyenv."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    candidates = [path for folder in folders for path in sorted(folder.glob("python3.*[0-9]"))]
    candidates += sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    found: dict[Version, str] = {}
    for path in candidates:
        asked = subprocess.run([str(path), "-c", ASK], capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout:
            major, minor = json.loads(asked.stdout)
            found.setdefault((major, minor), str(path))
    return found


def chosen_target(name: str) -> Target:
    """Returns the target for a CPU, or for a name as zig spells it."""
    targets = {name: Target(cpu) for cpu in CPUS for name in (cpu, Target(cpu).triple)}
    if name not in targets:
        raise Failed(f"--target takes one of {', '.join(targets)}, not {name!r}")
    return targets[name]


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("./dev wheel", description="Builds wheels into dist/.")
    parser.add_argument("--target", default=platform.machine(), help="CPU; by default, this one")
    parser.add_argument(
        "--python",
        nargs="+",
        default=PYTHONS,
        metavar="VERSION",
        help="by default 3.10, 3.11 and 3.12, whose wheel is for all later ones too",
    )
    return parser.parse_args(arguments)


def main(chosen: argparse.Namespace) -> int:
    """Builds wheels into dist/. The machine is set up."""
    target = chosen_target(chosen.target)
    todo = plan(target, chosen.python, interpreters())
    for version in todo.missing:
        say(f"  no wheel for Python {version}: python{version} and its headers are needed, on PATH")
        say("  or of pyenv (Debian has them in python3-dev, for the system's Python only)")
    say("wheels")
    step("tools", toolchain.prepare_tools)
    step("libraries", lambda: str(static_libraries(target).relative_to(ROOT)))
    for build in todo.builds:
        step(build.name, functools.partial(build_if_changed, build))
    return 1 if todo.missing else 0


def for_tests() -> tuple[Build, ...]:
    """Returns what the suite `wheel` tests: the wheels that can be built on this machine for it."""
    return plan(Target(platform.machine()), PYTHONS, interpreters()).builds


def build_for_tests() -> str:
    """At normal priority: scikit-build-core gives up if CMake does not start within seconds."""
    toolchain.prepare_tools()
    return ", ".join(build_if_changed(build) for build in for_tests())


def wheel_of(build: Build, folder: Path = DIST) -> Path:
    """Returns the wheel in `folder`. Raises Failed unless there is exactly one."""
    found = there(build, folder)
    if len(found) != 1:
        raise Failed(f"{folder} has {len(found)} wheels for {build.name}; run `./dev wheel`")
    return found[0]


def there(build: Build, folder: Path) -> list[Path]:
    return list(folder.glob(f"horovod-*-{build.tag}-*_{build.target.cpu}.whl"))


def build_if_changed(build: Build) -> str:
    """Builds a wheel into dist/, unless it is there and all that it is made from is unchanged."""
    stamp = BUILD / "portable" / f"{build.name}.stamp"
    wanted = inputs.fingerprint(build.target, build.python, build.tag)
    found = there(build, DIST)
    if found and stamp.is_file() and stamp.read_text() == stamp_of(wanted, found):
        return f"{build.tag} is unchanged"
    built = build_one(build)
    stamp.write_text(stamp_of(wanted, there(build, DIST)))
    return built


def stamp_of(fingerprint: str, wheels: Sequence[Path]) -> str:
    """Another wheel in dist/, of an older version or from elsewhere, makes it another text."""
    digests = [hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(wheels)]
    return "\n".join([fingerprint, *digests])


def build_one(build: Build, folder: Path = DIST, name: str = "") -> str:
    """Builds a wheel into `folder`, instead of an earlier one. Raises Failed if it is not portable.
    `name`: of the build folder, if it is not the usual one."""
    tree = BUILD / "portable" / (name or build.name)
    work = tree.with_name(f"{tree.name}-wheel")
    shutil.rmtree(work, ignore_errors=True)
    prefix = static_libraries(build.target)
    make_environment(build.environment, BUILD_REQUIREMENTS, build.python)
    env = {**build.env(), "SOURCE_DATE_EPOCH": inputs.last_change()}
    pip = [venv_program("pip", build.environment), "wheel", "--no-build-isolation", "--no-deps"]
    known = settings(build, tree, toolchain.definitions(build.target, prefix)).items()
    pip += [f"--config-settings={name}={value}" for name, value in known]
    pip += [f"--wheel-dir={work / 'raw'}", str(ROOT)]
    log = f"wheel-{tree.name}"
    must(pip, log, deadline_s=7200, env=env)
    (raw,) = (work / "raw").glob("*.whl")
    made = complete(raw, work, prefix, build, env)
    audit(made, build.target)
    check(made, work / "binaries")
    folder.mkdir(parents=True, exist_ok=True)
    for old in there(build, folder):
        old.unlink()
    shutil.copy(made, folder)
    return f"{build.tag}-{build.target.platform}, {made.stat().st_size / 1e6:.2f} MB"


def complete(raw: Path, work: Path, prefix: Path, build: Build, env: Mapping[str, str]) -> Path:
    """Adds to a wheel what is said of the code of others in it, and the platform tag."""
    pack = [venv_program("wheel", TOOLS)]
    must([*pack, "unpack", f"--dest={work / 'unpacked'}", str(raw)], "wheel-unpack")
    (folder,) = (work / "unpacked").iterdir()
    (metadata,) = folder.glob("*.dist-info")
    (site_packages,) = build.environment.glob("lib/python*/site-packages")
    bill.add(metadata, bill.parts(prefix, site_packages), int(env["SOURCE_DATE_EPOCH"]))
    tags = metadata / "WHEEL"
    untagged = f"-linux_{build.target.cpu}\n"
    tags.write_text(tags.read_text().replace(untagged, f"-{build.target.platform}\n"))
    must([*pack, "pack", f"--dest-dir={work}", str(folder)], "wheel-pack", env=env)
    (packed,) = work.glob("*.whl")
    squeeze(packed)
    return packed


def squeeze(wheel: Path) -> None:
    """Compresses it as far as possible: `wheel pack` prefers speed."""
    with zipfile.ZipFile(wheel) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(wheel, "w") as archive:
        for info, data in entries:
            archive.writestr(info, data, zipfile.ZIP_DEFLATED, 9)


def audit(wheel: Path, target: Target) -> str:
    """Returns what auditwheel says of a wheel. Raises Failed if its tag promises too much."""
    shown = toolchain.printed([venv_program("auditwheel", TOOLS), "show", str(wheel)])
    if not keeps_promise(shown, target):
        raise Failed(f"auditwheel does not find {wheel.name} to be {target.platform}:\n{shown}")
    return shown


def keeps_promise(shown: str, target: Target) -> bool:
    """Whether a wheel runs on all systems of its tag, by the output of auditwheel. A wheel that
    needs only an older glibc does. `auditwheel repair` would ask that, but only for wheels of the
    CPU that it runs on."""
    form = r'following platform tag: "manylinux_(\d+)_(\d+)_(\w+)"'
    found = re.search(form, " ".join(shown.split()))
    if not found:
        return False
    oldest = tuple(int(number) for number in toolchain.GLIBC.split("."))
    return found[3] == target.cpu and (int(found[1]), int(found[2])) <= oldest


def check(wheel: Path, folder: Path) -> None:
    """Raises Failed if the wheel is too large, or needs what not every system has."""
    found = [
        complaint
        for binary in binaries.binaries(wheel, folder)
        for complaint in binaries.complaints(binary, toolchain.GLIBC)
    ]
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        found.append(f"{wheel.name} has {size} bytes, more than {MOST_BYTES}")
    if found:
        raise Failed("\n".join(found))

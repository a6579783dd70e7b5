"""Sets up a bare Debian machine so that everything runs. Each step first checks whether it has
anything to do, so a second run is quick."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtool.paths import BUILD, ROOT, VENV, files_below, venv_program
from devtool.process import Failed, must, say
from devtool.steps import Step, run_steps

TOOLS = ROOT / "tools"
#: What compiles the package; the other requirements include it.
BUILD_REQUIREMENTS = TOOLS / "requirements-build.txt"
#: What the package is compiled from.
SOURCE_FILES = (ROOT / "CMakeLists.txt", ROOT / "pyproject.toml")
SOURCE_FOLDERS = ("cmake", "include", "core", "launcher", "python", "adapters")
WHEELS = BUILD / "wheels"
#: Clones share compiled files.
SHARED_CCACHE = {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "true"}
#: ccache gets the included files from the compiler, and does not run the preprocessor first. Not
#: for unity builds: the sources that CMake writes for them contain the path of the clone, and only
#: their preprocessed text is the same in all clones.
DIRECT_CCACHE = {**SHARED_CCACHE, "CCACHE_DEPEND": "true"}
PRESETS_WITHOUT_UNITY = ("release", "debug")
WITH_CCACHE = {
    "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
    "CMAKE_C_COMPILER_LAUNCHER": "ccache",
    # Named as in the presets, so that most objects are compiled once for both.
    "CXX": os.environ.get("CXX", "c++"),
    "CC": os.environ.get("CC", "cc"),
    **DIRECT_CCACHE,
}


@dataclass(frozen=True)
class Package:
    """The package `horovod`, without the parts that are named as in HOROVOD_WITHOUT_<part>."""

    without: tuple[str, ...] = ()

    @property
    def env(self) -> dict[str, str]:
        return {f"HOROVOD_WITHOUT_{part}": "1" for part in self.without}

    def stamp(self, fingerprint: str) -> str:
        return "\n".join([fingerprint, *(f"without {part}" for part in self.without)])

    def is_there(self, stamp: Path, fingerprint: str) -> bool:
        """True if the package that `stamp` records is this one, or has all parts."""
        serves = (self.stamp(fingerprint), COMPLETE.stamp(fingerprint))
        return stamp.is_file() and stamp.read_text() in serves


@dataclass(frozen=True)
class Scope:
    """What a command needs on the machine. A wider scope adds to what a narrower one has set up."""

    debian: tuple[Path, ...]  #: lists of Debian packages
    requirements: Path  #: of `.venv`
    contents: str  #: the largest of them, for the user
    package: Package


COMPLETE = Package()
FOR_TESTS = Scope(
    debian=(TOOLS / "debian-packages-demo.txt", TOOLS / "debian-packages.txt"),
    requirements=TOOLS / "requirements.txt",
    contents="PyTorch, TensorFlow, JAX and tools",
    package=COMPLETE,
)
FOR_DEMO = Scope(
    debian=(TOOLS / "debian-packages-demo.txt",),
    requirements=TOOLS / "requirements-demo.txt",
    contents="PyTorch",
    package=Package(without=("MPI", "TENSORFLOW", "JAX", "MXNET")),
)
FOR_WHEEL = Scope(
    debian=FOR_TESTS.debian,
    requirements=BUILD_REQUIREMENTS,
    contents="build tools",
    package=COMPLETE,
)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def steps_of(scope: Scope, with_package: bool) -> list[Step]:
    """The steps of a set-up. The package is compiled while pip installs what it is used with."""
    debian = Step(
        "Debian packages",
        "apt-get installs them",
        functools.partial(install_debian_packages, scope.debian),
    )
    tools = Step(
        "build tools",
        "pip installs nanobind and scikit-build-core",
        functools.partial(make_environment, VENV, BUILD_REQUIREMENTS),
        after=(debian.title,),
    )
    environment = Step(
        "environment",
        f"pip installs {scope.contents}",
        functools.partial(make_environment, VENV, scope.requirements),
        after=(tools.title,),
    )
    compiled = Step(
        "compilation",
        "takes minutes, unless ccache has the results",
        functools.partial(compile_package, scope.package),
        after=(tools.title,),
    )
    installed = Step(
        "package",
        "pip installs the package horovod",
        functools.partial(install_package, VENV, scope.package),
        after=(environment.title, compiled.title),
    )
    return [debian, tools, environment, *([compiled, installed] if with_package else [])]


def set_up(scope: Scope, *, with_package: bool = False) -> None:
    """Installs packages, creates the virtual environment and, with `with_package`, compiles the
    package and installs it into the environment."""
    if sys.version_info < (3, 10):  # noqa: UP036 (this file runs on any Python)
        raise Failed(f"Python 3.10 or later is required, found {sys.version.split()[0]}")
    say("set-up" + (" and build" if with_package else ""))
    run_steps(steps_of(scope, with_package))


def entries(file: Path) -> list[str]:
    """The lines of a list that are neither empty nor comments."""
    lines = [line.strip() for line in file.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def missing_packages(lists: Sequence[Path]) -> list[str]:
    wanted = [package for file in lists for package in entries(file)]
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted],
        capture_output=True,
        text=True,
    )
    there = {line.split()[0] for line in query.stdout.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in there]


def install_debian_packages(lists: Sequence[Path]) -> str:
    if shutil.which("dpkg-query") is None:
        return f"not a Debian system: see {lists[0].relative_to(ROOT)}"
    missing = missing_packages(lists)
    if not missing:
        return "all there"
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if sudo and shutil.which("sudo") is None:
        raise Failed(f"run as root, or install: {' '.join(missing)}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    must([*sudo, "apt-get", "update"], "apt-update", env=quiet)
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    must([*sudo, *install], "apt-install", env=quiet)
    return f"installed {len(missing)}"


def included(requirements: Path) -> list[Path]:
    """Returns the file, after the files that it includes."""
    marked = [line.removeprefix("-r ") for line in entries(requirements) if line.startswith("-r ")]
    lower = [file for name in marked for file in included(requirements.parent / name)]
    return [*lower, requirements]


def make_environment(venv: Path, requirements: Path, python: str = sys.executable) -> str:
    """Creates a virtual environment of `python`, or adds to one, so that it has `requirements`,
    which a stamp file in it records."""
    stamp = venv / f".{requirements.stem}"
    version = sys.version if python == sys.executable else python
    wanted = "\n".join([version, *(file.read_text() for file in included(requirements))])
    if stamp.is_file() and stamp.read_text() == wanted:
        return "all there"
    if not (venv / "bin" / "pip").is_file():
        must([python, "-m", "venv", str(venv)], "venv")
    must([venv_program("pip", venv), "install", "-r", str(requirements)], f"pip{venv.name}")
    stamp.write_text(wanted)
    return f"{venv.relative_to(ROOT)} has {requirements.relative_to(ROOT)}"


def build_preset(preset: str, *targets: str, in_background: bool = False) -> str:
    must(["cmake", "--preset", preset], f"configure-{preset}", deadline_s=300)
    must(
        ["ninja", "-C", str(BUILD / preset), f"-j{cores()}", *targets],
        f"build-{preset}",
        deadline_s=3600,
        env=DIRECT_CCACHE if preset in PRESETS_WITHOUT_UNITY else SHARED_CCACHE,
        in_background=in_background,
    )
    return f"build/{preset}"


def package_fingerprint(*others: str) -> str:
    """Returns a digest of all sources of the package, of the Python that runs, and of `others`."""
    digest = hashlib.sha256("\0".join([sys.version, *others]).encode())
    for path in [*SOURCE_FILES, *files_below(*SOURCE_FOLDERS)]:
        if path.name.endswith("_test.cc"):
            continue
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
        digest.update(path.read_bytes())
    return digest.hexdigest()


def check_compiler() -> None:
    compiler = shlex.split(WITH_CCACHE["CXX"])[0]
    if shutil.which(compiler) is None:
        raise Failed(
            f"there is no C++ compiler `{compiler}`; install it (apt-get install g++), or set CXX "
            "to one of GCC 12 or Clang 16, or later"
        )


def build_wheel(package: Package, fingerprint: str) -> Path:
    """Builds the package once for all environments, independent of their frameworks."""
    stamp = WHEELS / "fingerprint"
    if not package.is_there(stamp, fingerprint):
        check_compiler()
        shutil.rmtree(WHEELS, ignore_errors=True)
        must(
            [
                venv_program("pip"),
                "wheel",
                "--no-build-isolation",
                "--no-deps",
                f"--config-settings=build-dir={BUILD / 'wheel'}",
                f"--wheel-dir={WHEELS}",
                str(ROOT),
            ],
            "wheel",
            env={**WITH_CCACHE, **package.env, "CMAKE_BUILD_PARALLEL_LEVEL": str(cores())},
        )
        stamp.write_text(package.stamp(fingerprint))
    (wheel,) = WHEELS.glob("*.whl")
    return wheel


def is_installed(venv: Path, package: Package, fingerprint: str) -> bool:
    has_program = (venv / "bin" / "horovodrun").is_file()
    return has_program and package.is_there(venv / ".package", fingerprint)


def compile_package(package: Package) -> str:
    """Builds the wheel with the tools in `.venv`, unless it is installed there."""
    fingerprint = package_fingerprint()
    if is_installed(VENV, package, fingerprint):
        return "unchanged"
    return str(build_wheel(package, fingerprint).relative_to(ROOT))


def install_package(venv: Path = VENV, package: Package = COMPLETE) -> str:
    """Builds the wheel with the tools in `.venv` and installs it, unless nothing has changed."""
    fingerprint = package_fingerprint()
    if is_installed(venv, package, fingerprint):
        return "unchanged"
    stamp = venv / ".package"
    stamp.unlink(missing_ok=True)
    wheel = build_wheel(package, fingerprint)
    options = ["--no-deps", "--force-reinstall"]
    must([venv_program("pip", venv), "install", *options, str(wheel)], f"package{venv.name}")
    stamp.write_text((WHEELS / "fingerprint").read_text())
    return f"horovod is in {venv.relative_to(ROOT)}"


@dataclass(frozen=True)
class Apart:
    """An environment beside `.venv`, for a suite whose packages do not fit those there."""

    folder: str
    requirements: str
    newest_python: tuple[int, int] | None = None  #: None: any that `./dev` runs on

    @property
    def venv(self) -> Path:
        return ROOT / self.folder

    def install(self) -> str:
        if self.newest_python and sys.version_info[:2] > self.newest_python:
            newest = ".".join(map(str, self.newest_python))
            raise Failed(f"{self.requirements} needs Python {newest} or older: run ./dev with it")
        make_environment(self.venv, TOOLS / self.requirements)
        return install_package(self.venv)


#: By the name of the suite.
APART = {
    "torch-oldest": Apart(".venv-oldest", "requirements-oldest.txt"),
    "tensorflow-2.15": Apart(".venv-tensorflow-2.15", "requirements-tensorflow-2.15.txt"),
    "jax-oldest": Apart(".venv-jax-oldest", "requirements-jax-oldest.txt"),
    "trainers": Apart(".venv-trainers", "requirements-trainers.txt"),
    "mxnet": Apart(".venv-mxnet", "requirements-mxnet.txt", newest_python=(3, 11)),
}


def install_both_ways() -> str:
    """Installs the package, and makes a build for `cmake --install`."""
    return f"{install_package()}, {build_preset('release')}"


#: Folders whose test programs run on the stand-ins for the GPU driver and NCCL.
ON_STAND_INS = ("device", "gpu")
#: Folders whose code runs in several threads, or on shared memory of several processes.
THREADED = (
    "base",
    "device",
    "transport",
    "group",
    "bootstrap",
    "blocking",
    "engine",
    "observe",
    "capi",
    "gpu",
)
BENCH_TARGETS = ("bench_ours", "bench_across", "bench_kernel", "horovodrun")
#: The builds by name. Suites run while the sanitizers are built, and have priority: builds use the
#: cores that are idle while suites wait for processes.
BUILDS: dict[str, Callable[[], str]] = {
    "package": install_package,
    "release": lambda: build_preset("release"),
    "bench": lambda: build_preset("release", *BENCH_TARGETS),
    "installed": install_both_ways,
    "asan": lambda: build_preset("asan", in_background=True),
    "launcher-asan": lambda: (
        f"{install_package()}, {build_preset('asan', 'horovodrun', in_background=True)}"
    ),
    "tsan": lambda: build_preset(
        "tsan", *(f"test_{folder}" for folder in THREADED), in_background=True
    ),
    "fuzz": lambda: build_preset("fuzz", "fuzz", in_background=True),
    **{suite: environment.install for suite, environment in APART.items()},
}

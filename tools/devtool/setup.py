"""From a bare Debian machine to an environment in which everything runs. Each step looks first
whether there is anything to do, so that the second time costs next to nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from devtool.paths import BUILD, ROOT, VENV, files_below, venv_program
from devtool.process import Failed, must, say, step

PACKAGES = ROOT / "tools" / "debian-packages.txt"
OLDEST = ROOT / ".venv-oldest"  # with the oldest torch that is supported
OLDEST_TENSORFLOW = ROOT / ".venv-tensorflow-2.15"  # the same of TensorFlow
REQUIREMENTS = ROOT / "tools" / "requirements.txt"
WHEELS = BUILD / "wheels"
#: A file that one clone has compiled need not be compiled again by another.
SHARED_CCACHE = {"CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "true"}
WITH_CCACHE = {
    "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
    "CMAKE_C_COMPILER_LAUNCHER": "ccache",
    # By the names that the presets find, so that most objects are compiled once for both.
    "CXX": os.environ.get("CXX", "c++"),
    "CC": os.environ.get("CC", "cc"),
    **SHARED_CCACHE,
}


def cores() -> int:
    return len(os.sched_getaffinity(0))


def set_up() -> None:
    """Packages and the virtual environment."""
    if sys.version_info < (3, 10):  # noqa: UP036 (this file runs on whatever is there)
        raise Failed(f"Python 3.10 or later is needed; this is {sys.version.split()[0]}")
    say("set-up")
    step("Debian packages", install_debian_packages)
    step("environment", lambda: make_environment(VENV, REQUIREMENTS))


def missing_packages() -> list[str]:
    wanted = [
        line.strip()
        for line in PACKAGES.read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted],
        capture_output=True,
        text=True,
    )
    there = {line.split()[0] for line in query.stdout.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in there]


def install_debian_packages() -> str:
    if shutil.which("dpkg-query") is None:
        return f"not a Debian system: see {PACKAGES.relative_to(ROOT)}"
    missing = missing_packages()
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


def make_environment(venv: Path, requirements: Path) -> str:
    """A virtual environment with exactly `requirements`, remembered by a stamp in it."""
    stamp = venv / ".requirements"
    wanted = f"{sys.version}\n{requirements.read_text()}"
    if stamp.is_file() and stamp.read_text() == wanted:
        return "all there"
    if not (venv / "bin" / "pip").is_file():
        must([sys.executable, "-m", "venv", str(venv)], "venv")
    must([venv_program("pip", venv), "install", "-r", str(requirements)], f"pip{venv.name}")
    stamp.write_text(wanted)
    return f"{venv.relative_to(ROOT)} has {requirements.relative_to(ROOT)}"


def build_preset(preset: str, *targets: str, priority: Sequence[str] = ()) -> str:
    must(["cmake", "--preset", preset], f"configure-{preset}", deadline_s=300)
    must(
        [*priority, "ninja", "-C", str(BUILD / preset), f"-j{cores()}", *targets],
        f"build-{preset}",
        deadline_s=3600,
        env=SHARED_CCACHE,
    )
    return f"build/{preset}"


def package_fingerprint() -> str:
    """Of all that goes into the wheel."""
    digest = hashlib.sha256(sys.version.encode())
    single = [ROOT / "CMakeLists.txt", ROOT / "pyproject.toml"]
    for path in [*single, *files_below("cmake", "include", "core", "job", "python", "adapters")]:
        if path.name.endswith("_test.cc"):
            continue
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0")
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build_wheel(fingerprint: str) -> Path:
    """The package, built once for all environments, whatever frameworks these have."""
    stamp = WHEELS / "fingerprint"
    if not stamp.is_file() or stamp.read_text() != fingerprint:
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
            env={**WITH_CCACHE, "CMAKE_BUILD_PARALLEL_LEVEL": str(cores())},
        )
        stamp.write_text(fingerprint)
    (wheel,) = WHEELS.glob("*.whl")
    return wheel


def install_package(venv: Path = VENV) -> str:
    """The wheel, built with the tools that are in `.venv`, unless nothing has changed."""
    stamp = venv / ".package"
    wanted = package_fingerprint()
    installed = stamp.is_file() and (venv / "bin" / "horovodrun").is_file()
    if installed and stamp.read_text() == wanted:
        return "unchanged"
    stamp.unlink(missing_ok=True)
    wheel = build_wheel(wanted)
    options = ["--no-deps", "--force-reinstall"]
    must([venv_program("pip", venv), "install", *options, str(wheel)], f"package{venv.name}")
    stamp.write_text(wanted)
    return f"horovod is in {venv.relative_to(ROOT)}"


def install_for_oldest_torch() -> str:
    make_environment(OLDEST, ROOT / "tools" / "requirements-oldest.txt")
    return install_package(OLDEST)


def install_for_oldest_tensorflow() -> str:
    requirements = ROOT / "tools" / "requirements-tensorflow-2.15.txt"
    make_environment(OLDEST_TENSORFLOW, requirements)
    return install_package(OLDEST_TENSORFLOW)


def install_both_ways() -> str:
    """The package, and a build that `cmake --install` can install."""
    return f"{install_package()}, {build_preset('release')}"


#: For builds beside which suites run: these wait for processes more than they calculate.
LOW_PRIORITY = ("nice", "-n", "19")
#: Folders whose code runs in several threads, or on memory that processes share.
THREADED = ("base", "transport", "group", "bootstrap", "backend", "engine", "observe", "capi")
BENCH_TARGETS = ("bench_ours", "bench_across", "bench_kernel", "horovodrun")
#: What can be built, by name.
BUILDS: dict[str, Callable[[], str]] = {
    "package": install_package,
    "release": lambda: build_preset("release"),
    "bench": lambda: build_preset("release", *BENCH_TARGETS),
    "installed": install_both_ways,
    "asan": lambda: build_preset("asan", priority=LOW_PRIORITY),
    "tsan": lambda: build_preset(
        "tsan", *(f"test_{folder}" for folder in THREADED), priority=LOW_PRIORITY
    ),
    "fuzz": lambda: build_preset("fuzz", "fuzz", priority=LOW_PRIORITY),
    "oldest": install_for_oldest_torch,
    "oldest-tensorflow": install_for_oldest_tensorflow,
}

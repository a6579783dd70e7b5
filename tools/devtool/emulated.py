"""The suite `aarch64`: unit tests that zig compiles for another CPU, and that qemu-user runs."""

from __future__ import annotations

from pathlib import Path

from devtool import toolchain
from devtool.libraries import FOLDER, static_libraries
from devtool.paths import BUILD, ROOT
from devtool.process import must
from devtool.setup import TOOLS, cores, install_debian_packages
from devtool.toolchain import Target, compiler_environment, defined, definitions

TARGET = Target("aarch64")
TESTS = f"portable/{TARGET.cpu}-tests"  #: the folder in build/
DEBIAN = TOOLS / f"debian-packages-{TARGET.cpu}.txt"
#: Folders of core/ that depend on the CPU: SIMD code, memory order, layouts of bytes.
TESTED = ("kernel", "collective", "negotiate", "transport")
#: The loader and the libc of the CPU, where Debian's cross compilers have them.
SYSTEM = f"/usr/{TARGET.cpu}-linux-gnu"
EMULATOR = (f"qemu-{TARGET.cpu}", "-L", SYSTEM)
GOOGLETEST = Path("/usr/src/googletest")  #: of Debian's libgtest-dev


def build() -> str:
    """Builds the tests. The objects of the core are those of the wheel, and ccache has them if
    there is one: the folder has the same depth, which is in the paths that ccache compares."""
    install_debian_packages([DEBIAN])
    toolchain.prepare_tools()
    prefix = static_libraries(TARGET)
    googletest = FOLDER / f"{TARGET.triple}-googletest"
    shared = {**definitions(TARGET, prefix), "CMAKE_BUILD_TYPE": "Release"}
    installed = {"CMAKE_INSTALL_PREFIX": str(googletest), "CMAKE_INSTALL_LIBDIR": "lib"}
    build_by_zig(GOOGLETEST, googletest / "build", {**shared, **installed}, "install")
    of_tests = {
        "GTest_DIR": str(googletest / "lib" / "cmake" / "GTest"),
        "CMAKE_CROSSCOMPILING_EMULATOR": ";".join(EMULATOR),
        "HVD_LAUNCHER": "OFF",
    }
    build_by_zig(ROOT, BUILD / TESTS, {**shared, **of_tests}, *(f"test_{name}" for name in TESTED))
    return f"build/{TESTS}"


def build_by_zig(source: Path, build: Path, known: dict[str, str], *targets: str) -> None:
    env = compiler_environment(TARGET)
    log = f"{TARGET.cpu}-{build.parent.name}-{build.name}"
    configure = ["cmake", "-GNinja", "-S", str(source), "-B", str(build), *defined(known)]
    must(configure, f"{log}-configure", env=env)
    must(["ninja", "-C", str(build), f"-j{cores()}", *targets], log, deadline_s=7200, env=env)

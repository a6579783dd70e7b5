"""What the package's shared objects need of others, and what they show: no framework, no symbol
that could meet one of a framework in the same process."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import exports
import pytest
from exports import PLUGINS, symbols

from devtool import binaries as binaries_of_wheels
from devtool.paths import venv_program

#: Of a build for the system on which it runs: also its C++ library, and Highway.
SYSTEM = binaries_of_wheels.SYSTEM | {"libstdc++.so.6", "libhwy.so.1"}
OURS = {"libhorovod.so"}
LIBRARIES = ["libhorovod", "libhorovod_tensorflow", "libhorovod_jax", "libhorovod_mxnet"]
#: C++ names of frameworks, mangled, and C names.
FRAMEWORKS = re.compile(
    r"N?K?(2at|3c10|5torch|10tensorflow|3tsl|3xla|5mxnet|7nnvm)|"
    r"(THP|TF_|TFE_|MX|NN|nccl|cuda|cu[A-Z]|MPI_|mpi_)\w*"
)
PYTHON = re.compile(r"_?Py\w+")


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def package() -> Path:
    script = "import horovod; print(horovod.__path__[0])"
    return Path(run(venv_program("python"), "-c", script).strip())


def binaries() -> dict[str, Path]:
    found = {path.name.split(".")[0]: path for path in package().rglob("*.so*")}
    return {**found, "horovodrun": Path(venv_program("horovodrun"))}


def needed(path: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", str(path))))


def is_of_a_framework(symbol: str) -> bool:
    plain = symbol.removeprefix("_ZTI").removeprefix("_ZTV").removeprefix("_Z")
    return FRAMEWORKS.match(plain) is not None


def test_the_package_has_the_module_the_library_and_the_launcher() -> None:
    found = set(binaries()) - PLUGINS
    assert found == exports.BINARIES


@pytest.mark.parametrize("name", [*LIBRARIES, "_core", "horovodrun"])
def test_no_binary_needs_a_framework(name: str) -> None:
    path = binaries()[name]
    assert needed(path) - SYSTEM - OURS == set()
    undefined = symbols(path, "--undefined-only")
    assert undefined, "nm shows nothing"
    assert not {symbol for symbol in undefined if is_of_a_framework(symbol)}


@pytest.mark.parametrize("name", [*LIBRARIES, "horovodrun"])
def test_only_the_module_knows_python(name: str) -> None:
    undefined = symbols(binaries()[name], "--undefined-only")
    assert not {symbol for symbol in undefined if PYTHON.fullmatch(symbol)}


@pytest.mark.parametrize("name", [*LIBRARIES, "_core"])
def test_a_library_shows_its_interface_and_nothing_else(name: str) -> None:
    assert exports.wrong(name, binaries()[name]) == set()


def test_a_plugin_links_to_no_mpi_and_shows_its_table_alone() -> None:
    plugins = {name: path for name, path in binaries().items() if name in PLUGINS}
    if not plugins:
        pytest.skip("built without MPI: install libopenmpi-dev and libmpich-dev")
    for name, path in plugins.items():
        assert needed(path) - SYSTEM == set(), name
        assert exports.wrong(name, path) == set(), name
        assert "MPI_Iallreduce" in symbols(path, "--undefined-only"), name


def test_names_of_frameworks_are_recognised() -> None:
    for name in ("_ZN5torch3jitE", "_ZNK2at6Tensor", "_ZN3c105Error", "TF_NewStatus", "MXNDArray"):
        assert is_of_a_framework(name), name
    for name in ("_ZNSt6vector", "memcpy", "hvd_init", "_ZN3hwy15GetChosenTargetEv"):
        assert not is_of_a_framework(name), name

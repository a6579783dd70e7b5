"""What is in a portable wheel, and what it needs of a system. Nothing here installs one."""

from __future__ import annotations

import email
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import exports
import pytest
from commands import must

from devtool import bill, binaries, toolchain, wheel
from devtool.binaries import Binary
from devtool.libraries import LIBRARIES, static_libraries
from devtool.paths import BUILD, venv_program
from devtool.wheel import Build

BUILDS = wheel.for_tests()
#: Prints the first error in a bill of materials, or None. The schema is in the package.
VALIDATE = """import pathlib, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = pathlib.Path(sys.argv[1]).read_text()
print(JsonStrictValidator(SchemaVersion.V1_6).validate_str(text))"""


@dataclass(frozen=True)
class Wheel:
    build: Build
    path: Path
    names: list[str]
    binaries: dict[str, Binary]  #: by their names without folder and ending

    def text(self, name: str) -> str:
        """Returns a file of the metadata."""
        (found,) = [one for one in self.names if one.endswith(f".dist-info/{name}")]
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(found).decode()

    def fields(self, name: str) -> Message:
        return email.message_from_string(self.text(name))

    def bill(self) -> list[dict[str, object]]:
        components: list[dict[str, object]] = json.loads(self.text(f"{bill.FOLDER}/{bill.NAME}"))[
            "components"
        ]
        return components


@pytest.fixture(scope="module", params=BUILDS, ids=lambda build: build.name)
def built(request: pytest.FixtureRequest) -> Iterator[Wheel]:
    path = wheel.wheel_of(request.param)
    names = zipfile.ZipFile(path).namelist()
    with tempfile.TemporaryDirectory() as folder:
        found = binaries.binaries(path, Path(folder))
        by_name = {Path(one.name).name.split(".")[0]: one for one in found}
        yield Wheel(request.param, path, names, by_name)


def test_there_is_a_wheel_to_test() -> None:
    assert BUILDS, "no Python on this machine has headers"


def test_the_tags_are_those_of_the_python_and_of_the_oldest_glibc(built: Wheel) -> None:
    fields = built.fields("WHEEL")
    tag = f"{built.build.tag}-{built.build.target.platform}"
    assert fields.get_all("Tag") == [tag]
    assert built.path.name.endswith(f"-{tag}.whl")
    assert fields["Root-Is-Purelib"] == "false"


def test_auditwheel_finds_nothing_that_is_not_in_every_system(built: Wheel) -> None:
    assert "GLIBC_2" in wheel.audit(built.path, built.build.target)


def test_every_part_of_the_package_is_in_it(built: Wheel) -> None:
    assert set(built.binaries) == exports.BINARIES | exports.PLUGINS
    for name in ("include/horovod/horovod.h", "include/horovod/horovod.hpp"):
        assert f"horovod/{name}" in built.names
    assert "horovod/lib/cmake/horovod/horovodConfig.cmake" in built.names
    assert any(name.endswith(".data/scripts/horovodrun") for name in built.names)
    ending = ".abi3.so" if "abi3" in built.build.tag else ".so"
    assert built.binaries["_core"].name.endswith(ending)


def test_no_binary_needs_more_than_glibc_2_28(built: Wheel) -> None:
    for binary in built.binaries.values():
        assert not list(binaries.complaints(binary, toolchain.GLIBC))
        assert binary.needed(), f"readelf shows nothing of {binary.name}"


def test_the_wheel_is_small(built: Wheel) -> None:
    assert built.path.stat().st_size <= wheel.MOST_BYTES


def test_no_binary_shows_symbols_of_what_is_linked_into_it(built: Wheel) -> None:
    for name, binary in built.binaries.items():
        if name != "horovodrun":
            assert exports.wrong(name, binary.path) == set(), name


def linked(build: Build) -> set[Path]:
    """Returns the archives and shared libraries that the linker was given, except our own."""
    recipe = (BUILD / "portable" / build.name / "build.ninja").read_text()
    words = re.findall(r"(?<=[\s=])/\S+\.(?:a|so)\b[\d.]*", recipe)
    return {Path(word) for word in words if not word.startswith(str(BUILD / "portable"))}


def test_the_bill_lists_what_the_linker_was_given(built: Wheel) -> None:
    """The toolchain finds libraries in one folder only, and so the bill is complete."""
    prefix = static_libraries(built.build.target)
    archives = {library.archive: library.name for library in LIBRARIES if library.archive}
    found = linked(built.build)
    assert {path.parent for path in found} == {prefix / "lib"}
    assert {path.name for path in found} == set(archives)
    folders = {path.name for path in (prefix / "include").iterdir() if path.is_dir()}
    assert folders == {library.headers for library in LIBRARIES}
    listed = {str(one["name"]) for one in built.bill()}
    assert {library.name for library in LIBRARIES} | {"nanobind", "libc++"} < listed


def test_the_bill_has_a_version_a_source_and_a_licence_for_each_part(built: Wheel) -> None:
    for one in built.bill():
        assert one["version"] and str(one["purl"]).startswith("pkg:"), one
        assert one["licenses"] == [{"expression": wheel_licence(one)}]
        assert wheel_licence(one) in built.fields("METADATA")["License-Expression"].split(" AND ")


def wheel_licence(one: dict[str, object]) -> str:
    (licence,) = one["licenses"]  # type: ignore[misc]
    return str(licence["expression"])


def test_the_bill_follows_the_schema_of_cyclonedx(built: Wheel, tmp_path: Path) -> None:
    (tmp_path / bill.NAME).write_text(built.text(f"{bill.FOLDER}/{bill.NAME}"))
    python = venv_program("python", toolchain.TOOLS)
    assert must(python, "-c", VALIDATE, str(tmp_path / bill.NAME)) == "None\n"


def test_the_licence_of_each_part_is_in_it(built: Wheel) -> None:
    files = built.fields("METADATA").get_all("License-File", [])
    assert len(files) == len(built.bill()) + 1
    for name in files:
        assert re.search(r"copyright|permission", built.text(f"licenses/{name}"), re.I), name


def test_no_folder_of_this_machine_is_named_in_a_binary(built: Wheel) -> None:
    for binary in built.binaries.values():
        text = binary.path.read_bytes()
        for folder in (f"{BUILD.parent}/", f"{Path.home()}/"):
            assert folder.encode() not in text, f"{folder} in {binary.name}"


@pytest.mark.parametrize(
    "disable_ccache",
    [False, pytest.param(True, marks=pytest.mark.slow)],  # without it, everything is compiled
)
def test_a_build_in_another_folder_gives_the_same_bytes(
    disable_ccache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if disable_ccache:
        monkeypatch.setenv("CCACHE_DISABLE", "1")
    build = BUILDS[-1]
    wheel.build_one(build, tmp_path, "again")
    assert wheel.wheel_of(build, tmp_path).read_bytes() == wheel.wheel_of(build).read_bytes()

"""What `./dev wheel` builds, and what it says of the parts of a wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devtool import bill, binaries, inputs, libraries, wheel
from devtool.bill import Part
from devtool.binaries import Binary
from devtool.libraries import Source
from devtool.process import Failed
from devtool.toolchain import Target

HERE = Target("x86_64")
FOUND = {(3, 9): "/nine", (3, 10): "/ten", (3, 11): "/eleven", (3, 13): "/13", (3, 14): "/14"}
PARTS = [
    Part("zlib++", "1:2.0+x", "MIT", "pkg:deb/debian/zlib@1", "MIT"),
    Part("start files", "3", "Apache-2.0 WITH LLVM-exception", "pkg:pypi/zig@3", "LLVM"),
]
METADATA = """\
Metadata-Version: 2.4
Name: horovod
Version: 1.2
License-Expression: Apache-2.0
License-File: LICENSE

License-File: LICENSE
"""


def test_a_python_before_3_12_has_a_wheel_of_its_own_and_later_ones_share_one() -> None:
    builds = wheel.plan(HERE, ["3.10", "3.11", "3.12", "3.14"], FOUND).builds
    assert [build.tag for build in builds] == ["cp310-cp310", "cp311-cp311", "cp312-abi3"]
    assert [build.python for build in builds] == ["/ten", "/eleven", "/13"]


def test_a_python_that_is_not_there_is_told_and_the_others_are_built() -> None:
    todo = wheel.plan(HERE, ["3.10", "3.11", "3.12"], {(3, 11): "/eleven"})
    assert [build.tag for build in todo.builds] == ["cp311-cp311"]
    assert todo.missing == ("3.10", "3.12")


@pytest.mark.parametrize("version", ["3", "three.ten", "3.10.2", ""])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(Failed, match="takes versions such as"):
        wheel.plan(HERE, [version], FOUND)


def test_only_the_wheel_of_the_stable_abi_asks_for_it() -> None:
    asks = {}
    for build in wheel.plan(HERE, wheel.PYTHONS, FOUND).builds:
        build_settings = wheel.settings(build, Path("build"), {})
        asks[build.interpreter] = build_settings.get("wheel.py-api")
    assert asks == {"cp310": None, "cp311": None, "cp312": "cp312"}


def test_a_target_is_named_by_its_cpu_or_as_zig_spells_it() -> None:
    assert wheel.chosen_target("aarch64") == wheel.chosen_target("aarch64-linux-gnu.2.28")
    assert wheel.chosen_target("aarch64").platform == "manylinux_2_28_aarch64"
    with pytest.raises(Failed, match="x86_64, "):
        wheel.chosen_target("riscv64")


def test_the_interpreters_that_are_found_are_what_they_are_called() -> None:
    for (major, minor), path in wheel.interpreters().items():
        script = "import sys; print(*sys.version_info[:2])"
        shown = subprocess.run([path, "-c", script], capture_output=True, text=True, check=True)
        assert shown.stdout.split() == [str(major), str(minor)]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was built into dist/, which is elsewhere, by something quicker than a compiler."""
    names: list[str] = []

    def build_one(build: wheel.Build) -> str:
        names.append(build.tag)
        name = f"horovod-1-{build.tag}-{build.target.platform}.whl"
        (wheel.DIST / name).write_text(f"wheel {len(names)}")
        return name

    monkeypatch.setattr(wheel, "BUILD", tmp_path)
    monkeypatch.setattr(wheel, "DIST", tmp_path / "dist")
    monkeypatch.setattr(wheel, "build_one", build_one)
    monkeypatch.setattr(inputs, "fingerprint", lambda *made_from: str(made_from[1:]))
    (tmp_path / "portable").mkdir()
    (tmp_path / "dist").mkdir()
    return names


def test_a_wheel_is_built_again_only_if_something_has_changed(built: list[str]) -> None:
    eleven, twelve = wheel.plan(HERE, ["3.11", "3.12"], FOUND).builds
    other_python = wheel.Build(HERE, (3, 12), "/other")
    for build in (eleven, eleven, twelve, twelve, other_python, other_python, eleven):
        wheel.build_if_changed(build)
    assert built == ["cp311-cp311", "cp312-abi3", "cp312-abi3"]


def test_a_wheel_in_dist_that_is_another_one_is_replaced(built: list[str]) -> None:
    (build,) = wheel.plan(HERE, ["3.11"], FOUND).builds
    wheel.build_if_changed(build)
    (made,) = wheel.DIST.iterdir()
    for change in (lambda: made.write_text("else"), made.unlink):
        change()
        wheel.build_if_changed(build)
    assert len(built) == 3


def test_a_wheel_depends_on_the_sources_the_tools_and_the_time_of_their_last_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "static_libraries", lambda target: tmp_path / target.cpu)

    def now(cpu: str = "x86_64", tag: str = "cp311-cp311") -> str:
        return inputs.fingerprint(Target(cpu), sys.executable, tag)

    digests = [now(), now("aarch64"), now(tag="cp312-abi3")]
    for name in ("README.md", "wheel.py"):
        (tmp_path / name).write_text("changed")
        kind = "RECIPES" if name.endswith("py") else "OTHERS"
        with monkeypatch.context() as patch:
            patch.setattr(inputs, kind, (tmp_path / name,))
            patch.setattr(inputs, "last_change", lambda: "0")
            digests.append(now())
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "last_change", lambda: "0")
        digests.append(now())
    assert len(set(digests)) == len(digests)
    assert now() == digests[0]


def test_the_time_of_a_wheel_is_that_of_the_last_commit_of_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    git = ["git", "-C", str(tmp_path), *identity]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for seconds, name in enumerate(["core/a.cc", "docs/b.md"], start=1_000_000_000):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
        subprocess.run([*git, "add", name], check=True)
        env = {**os.environ, "GIT_COMMITTER_DATE": f"{seconds} +0000"}
        subprocess.run([*git, "commit", "--quiet", "-m", name], check=True, env=env)
    for name, value in {"ROOT": tmp_path, "SOURCE_FILES": (), "OTHERS": ()}.items():
        monkeypatch.setattr(inputs, name, value)
    assert inputs.last_change() == "1000000000"


@pytest.mark.parametrize(
    ("platform", "keeps_it"),
    [
        ("manylinux_2_17_x86_64", True),
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_31_x86_64", False),
        ("manylinux_2_28_aarch64", False),
        ("linux_x86_64", False),
    ],
)
def test_a_wheel_that_needs_a_newer_system_than_its_tag_says_is_refused(
    platform: str, keeps_it: bool
) -> None:
    shown = f'a.whl is consistent with\nthe following platform tag: "{platform}".\n'
    assert wheel.keeps_promise(shown, HERE) is keeps_it


def test_the_folder_of_the_libraries_is_another_one_for_another_version_or_recipe() -> None:
    old, new = {"a": Source("a", "1-1")}, {"a": Source("a", "1-2")}
    names = {
        libraries.prefix_name(target, sources, recipe)
        for target in (HERE, Target("aarch64"))
        for sources in (old, new)
        for recipe in (b"one", b"two")
    }
    assert len(names) == 8
    assert libraries.prefix_name(HERE, old, b"one") == libraries.prefix_name(HERE, old, b"one")


def test_lists_of_archives_are_turned_to_sources() -> None:
    old_form = "# deb is a word\ndeb [signed-by=/k] http://a stable main\ndeb-src http://b x main\n"
    new_form = "# Types: deb\nTypes: deb deb-src\nURIs: http://a\nSigned-By: /k\n"
    assert libraries.sources_only(old_form) == (
        "# deb is a word\ndeb-src [signed-by=/k] http://a stable main\ndeb-src http://b x main\n"
    )
    expected = "# Types: deb\nTypes: deb-src\nURIs: http://a\nSigned-By: /k\n"
    assert libraries.sources_only(new_form) == expected


def test_the_version_of_a_source_package_is_read_from_its_description() -> None:
    assert libraries.version_in("Source: a\nVersion: 1:2.0-3\nBinary: b\n") == "1:2.0-3"
    with pytest.raises(Failed, match="no version"):
        libraries.version_in("Source: a\n")


def test_an_archive_with_only_a_newer_version_is_used_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts stand for dpkg-source, and for apt-get, which refuses the version asked for."""
    programs = {
        "apt-get": 'case "$*" in *=*) exit 100;; esac; echo "Version: 1-9" > a_1-9.dsc',
        "dpkg-source": "exit 0",
    }
    for name, lines in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{lines}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = libraries.fetch_one(Source("a", "1-1"), ["apt-get"], tmp_path, tmp_path)
    assert found == Source("a", "1-9")


def test_a_binary_that_needs_more_than_the_oldest_system_has_is_refused(tmp_path: Path) -> None:
    source, program = tmp_path / "a.cc", tmp_path / "a.so"
    source.write_text("#include <string>\nstd::string f(char* s) { return std::string(s) + 'x'; }")
    compile_it = ["g++", "-shared", "-fPIC", "-O0", str(source), "-o", str(program)]
    subprocess.run(compile_it, check=True)
    found = list(binaries.complaints(Binary("a.so", program), "2.2"))
    assert found[0] == "a.so needs libstdc++.so.6, which is not on every system"
    assert found[1].startswith("a.so needs glibc 2.") and found[1].endswith("newer than 2.2")
    assert len(list(binaries.complaints(Binary("a.so", program), "2.99"))) == 1


def test_the_bill_names_every_part_and_is_the_same_every_time() -> None:
    text = bill.sbom("1.2", PARTS, 1000)
    found = json.loads(text)
    assert text == bill.sbom("1.2", PARTS, 1000) != bill.sbom("1.3", PARTS, 1000)
    assert [one["name"] for one in found["components"]] == ["zlib++", "start files"]
    assert found["metadata"]["timestamp"] == "1970-01-01T00:16:40Z"
    assert found["dependencies"][0]["dependsOn"] == ["zlib++", "start files"]


def test_the_licences_of_the_parts_join_that_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "METADATA").write_text(METADATA)
    bill.add(tmp_path, PARTS, 1000)
    fields, _, body = (tmp_path / "METADATA").read_text().partition("\n\n")
    expression = "Apache-2.0 AND Apache-2.0 WITH LLVM-exception AND MIT"
    assert f"License-Expression: {expression}\n" in fields
    assert body == "License-File: LICENSE\n"
    named = [line.split()[1] for line in fields.splitlines() if line.startswith("License-File")]
    assert named == ["LICENSE", "third-party/zlib++.txt", "third-party/start-files.txt"]
    assert [(tmp_path / "licenses" / name).read_text() for name in named[1:]] == ["MIT", "LLVM"]

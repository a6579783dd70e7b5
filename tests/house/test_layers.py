"""The include table: layers only point down."""

from __future__ import annotations

from sources import includes, is_test, name, sources

from devtool.paths import ROOT

# What a folder stands on; what that stands on is allowed too.
STANDS_ON = {
    "base": [],
    "kernel": ["base"],
    "memory": ["kernel"],
    "transport": ["base"],
    "group": ["transport", "kernel"],
    "collective": ["kernel"],
    "negotiate": ["base"],
    "backend": ["collective", "group"],
    "observe": ["base"],
    "engine": ["backend", "negotiate", "observe"],
    "capi": ["engine"],
}
# The same for the folders of the launcher; the files beside them stand on all.
JOB_STANDS_ON = {
    "options": [],
    "stream": [],
    "driver": [],
    "process": ["options"],
    "local": ["process", "stream", "driver"],
    "remote": ["local"],
    "through": ["process", "driver"],
}
# Single headers beyond the table, each with its reason.
GENERATED = {"core/capi/version.h"}
INTERFACES = {
    # Schedules are pure; the executor needs the interface of a Group and no more of it.
    "collective": {"core/group/group.h"},
    # Where the ranks are: one value, for the links that are made and for the tree of agreement.
    "group": {"core/negotiate/topology.h"},
    # The file of a trace is closed at fork like every descriptor.
    "observe": {"core/transport/file_descriptor.h"},
}
# Outside core/: what they may use of it.
OUTSIDE = {
    "include": set(),
    "adapters": set(),  # the C interface, and nothing of the core
    "job": {"base", "transport"},  # and the version, which the build writes
    "python": {"base"},
}


def below(folder: str, table: dict[str, list[str]]) -> set[str]:
    found = {folder}
    for lower in table[folder]:
        found |= below(lower, table)
    return found


def layer(top: str, include: str) -> str | None:
    """The folder of `top` that an include names; None: it is not there, or in no folder of it."""
    parts = include.split("/")
    return parts[1] if parts[0] == top and len(parts) > 2 else None


def violations(path: str, included: list[str], test: bool) -> list[str]:
    top, folder = path.split("/")[:2]
    if top == "core" and folder == "sim":
        return []
    allowed = below(folder, STANDS_ON) if top == "core" else OUTSIDE[top]
    if test:
        allowed = allowed | {"sim"}
    known = INTERFACES.get(folder, set()) | GENERATED
    found = [
        include
        for include in included
        if layer("core", include) not in {None, *allowed} and include not in known
    ]
    if top == "job" and folder in JOB_STANDS_ON:
        inside = {None, *below(folder, JOB_STANDS_ON)}
        found += [
            include
            for include in included
            if layer("job", include) not in inside
            or (include.startswith("job/") and include.count("/") == 1)
        ]
    return [f"{path} includes {include}" for include in found]


def test_every_folder_is_in_a_table() -> None:
    folders = {path.name for path in (ROOT / "core").iterdir() if path.is_dir()}
    assert folders <= {*STANDS_ON, "sim"}
    assert {path.name for path in (ROOT / "job").iterdir() if path.is_dir()} == {*JOB_STANDS_ON}


def test_layers_only_point_down() -> None:
    found = []
    for path in sources("core/", "include/", "job/", "python/", "adapters/"):
        found += violations(name(path), includes(path), is_test(path))
    assert not found, "\n".join(found)


def test_the_check_sees_an_include_that_points_up() -> None:
    assert violations("core/base/a.cc", ["core/engine/engine.h"], False)
    assert violations("core/collective/a.cc", ["core/group/link_group.h"], False)
    assert violations("core/engine/a.cc", ["core/sim/world.h"], False)
    assert violations("job/options/a.cc", ["job/process/spawn.h"], False)
    assert violations("job/local/a.cc", ["job/launch.h"], False)
    assert not violations("core/collective/a.cc", ["core/group/group.h"], False)
    assert not violations("job/remote/a.cc", ["job/process/spawn.h"], False)
    assert not violations("job/a.cc", ["job/remote/agent.h"], False)
    assert not violations("core/engine/a_test.cc", ["core/sim/world.h"], True)


def test_included_files_exist_under_that_name() -> None:
    for path in sources("core/", "job/", "python/"):
        for include in includes(path):
            if include.startswith(("core/", "job/", "python/", "tests/", "adapters/")):
                source = f"{include}.in" if include in GENERATED else include
                assert (ROOT / source).is_file(), f"{name(path)} includes {include}"

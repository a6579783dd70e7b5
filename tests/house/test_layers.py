"""The include table: layers only point down."""

from __future__ import annotations

from sources import includes, is_test, name, sources

from devtool.paths import ROOT

# What a folder stands on; what that stands on is allowed too.
STANDS_ON = {
    "base": [],
    "kernel": ["base"],
    "device": ["base"],
    "memory": ["kernel"],
    "transport": ["base"],
    "group": ["transport", "kernel"],
    "bootstrap": ["group"],
    "collective": ["kernel"],
    "negotiate": ["base"],
    "backend": ["collective", "bootstrap", "device"],
    "blocking": ["backend"],
    "observe": ["base"],
    "engine": ["blocking", "negotiate", "observe"],
    "capi": ["engine"],
}
# The same for the folders of the launcher; the files beside them stand on all.
LAUNCHER_STANDS_ON = {
    "worker": [],
    "options": ["worker"],
    "stream": ["worker"],
    "elastic": ["worker"],
    "driver": ["elastic"],
    "process": ["options"],
    "dump": ["process"],
    "local": ["process", "stream", "driver"],
    "remote": ["local"],
    "through": ["process", "driver"],
}
# Single headers beyond the table, each with its reason.
GENERATED = {
    f"core/device/kernels/{name}_ptx.h": "core/device/kernels/ptx.h.in"
    for name in ("copy_scale", "reduce")
}
INTERFACES = {
    # Schedules are pure; the executor needs the interface of a Group and no more of it.
    "collective": {"core/group/group.h"},
    # Tests compare the kernels of GPUs with those of the host.
    "device": {"core/kernel/kernel.h"},
    # Where the ranks are: one value, for the links that are made and for the tree of agreement.
    "bootstrap": {"core/negotiate/topology.h"},
    # The file of a trace is closed at fork like every descriptor.
    "observe": {"core/transport/file_descriptor.h"},
}
# Outside core/: what they may use of it.
OUTSIDE = {
    "include": set(),
    "adapters": set(),  # the C interface, and nothing of the core
    "launcher": {"base", "transport"},
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
    known = INTERFACES.get(folder, set()) | GENERATED.keys()
    found = [
        include
        for include in included
        if layer("core", include) not in {None, *allowed} and include not in known
    ]
    if top == "launcher" and folder in LAUNCHER_STANDS_ON:
        inside = {None, *below(folder, LAUNCHER_STANDS_ON)}
        found += [
            include
            for include in included
            if layer("launcher", include) not in inside
            or (include.startswith("launcher/") and include.count("/") == 1)
        ]
    return [f"{path} includes {include}" for include in found]


def test_every_folder_is_in_a_table() -> None:
    folders = {path.name for path in (ROOT / "core").iterdir() if path.is_dir()}
    assert folders <= {*STANDS_ON, "sim"}
    assert {path.name for path in (ROOT / "launcher").iterdir() if path.is_dir()} == {
        *LAUNCHER_STANDS_ON
    }


def test_layers_only_point_down() -> None:
    found = []
    for path in sources("core/", "include/", "launcher/", "python/", "adapters/"):
        found += violations(name(path), includes(path), is_test(path))
    assert not found, "\n".join(found)


def test_the_check_sees_an_include_that_points_up() -> None:
    assert violations("core/base/a.cc", ["core/engine/engine.h"], False)
    assert violations("core/collective/a.cc", ["core/group/link_group.h"], False)
    assert violations("core/engine/a.cc", ["core/sim/world.h"], False)
    assert violations("launcher/options/a.cc", ["launcher/process/spawn.h"], False)
    assert violations("launcher/local/a.cc", ["launcher/launch.h"], False)
    assert not violations("core/collective/a.cc", ["core/group/group.h"], False)
    assert not violations("launcher/remote/a.cc", ["launcher/process/spawn.h"], False)
    assert not violations("launcher/a.cc", ["launcher/remote/agent.h"], False)
    assert not violations("core/engine/a_test.cc", ["core/sim/world.h"], True)


def test_included_files_exist_under_that_name() -> None:
    for path in sources("core/", "launcher/", "python/"):
        for include in includes(path):
            if include.startswith(("core/", "launcher/", "python/", "tests/", "adapters/")):
                source = GENERATED.get(include, include)
                assert (ROOT / source).is_file(), f"{name(path)} includes {include}"

"""The Python packages import each other in one direction only: no cycle, and a table."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from devtool.paths import ROOT

TREE = ROOT / "python"
#: The areas below `horovod` that an area may import; what these import is allowed too. The empty
#: name is `horovod` itself: its own modules and the native module.
STANDS_ON = {
    "common": [],
    "data": [],
    "runner": ["common"],
    "doctor": ["runner"],
    "": ["runner"],
    "_keras": ["common"],
    "torch": ["_keras"],
    "tensorflow": ["_keras"],
    "keras": ["_keras"],
    "jax": ["common"],
    "mxnet": ["common"],
}
#: What every area may import of `horovod` itself.
FOR_ALL = {"horovod", "horovod._core", "_horovod_torch_backend"}

Graph = Mapping[str, set[str]]


def imports(tree: ast.AST, modules: set[str]) -> set[str]:
    """Those of `modules` that a module imports, also inside functions and for type checkers."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            parts = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {part if part in modules else node.module for part in parts.values()}
    return found & modules


def modules() -> dict[str, Path]:
    """The files of the package, by the names of their modules."""
    found = {}
    for path in [*TREE.rglob("*.py"), *TREE.rglob("*.pyi")]:
        name = ".".join(path.relative_to(TREE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def graph() -> Graph:
    files = modules()
    names = set(files)
    return {n: imports(ast.parse(p.read_text()), names) - {n} for n, p in files.items()}


def cycles(graph: Graph) -> list[str]:
    """The imports that are part of a cycle: those of modules that are left when those that import
    nothing of the rest are taken away, again and again, in both directions."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        imported = set().union(*left.values())
        kept = {n: targets & set(left) for n, targets in left.items() if n in imported}
        kept = {name: targets for name, targets in kept.items() if targets}
        if kept == left:
            return sorted(f"{name} imports {', '.join(sorted(t))}" for name, t in left.items())
        left = kept


def area(module: str) -> str:
    """The folder below `horovod` that a module is in; "" for `horovod` itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in STANDS_ON else ""


def below(name: str) -> set[str]:
    return {name}.union(*map(below, STANDS_ON[name]))


def wrong_direction(graph: Graph) -> list[str]:
    return sorted(
        f"{name} imports {target}"
        for name, targets in graph.items()
        for target in targets - FOR_ALL
        if area(target) not in below(area(name))
    )


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycles(graph()) == []


def test_every_folder_is_in_the_table() -> None:
    folders = {path.parent.name for path in (TREE / "horovod").glob("*/__init__.py")}
    assert folders == set(STANDS_ON) - {""}


def test_areas_import_only_what_they_stand_on() -> None:
    assert wrong_direction(graph()) == []


def test_the_checks_see_what_is_wrong() -> None:
    names = {"horovod.a", "horovod.a.b", "horovod.c"}
    code = "def f():\n    from horovod.a import b, x\n    import horovod.c\n"
    assert imports(ast.parse(code), names) == names
    triangle = {"horovod.a": {"horovod.b"}, "horovod.b": {"horovod.c"}, "horovod.c": {"horovod.a"}}
    assert len(cycles({**triangle, "horovod.d": {"horovod.a"}, "horovod.e": set()})) == 3
    assert cycles({"horovod.a": {"horovod.b", "horovod.c"}, "horovod.b": {"horovod.c"}}) == []
    assert wrong_direction({"horovod._keras.a": {"horovod.torch.b"}})
    assert wrong_direction({"horovod.common.a": {"horovod.runner"}})
    assert not wrong_direction({"horovod.torch.a": {"horovod._keras.b", "horovod._core"}})

"""AutoGraph converts functions of ours that are called in a tf.function, and warns of what fails.

It refuses a local variable with a type where it cuts a function into pieces.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

#: Some modules of these packages are for one of them, which may be missing.
OTHER_FRAMEWORKS = ("jax", "torch")
PACKAGES = ("horovod.tensorflow", "horovod.keras", "horovod._keras", "horovod.common")


def functions() -> Iterator[Callable[..., Any]]:
    for package in PACKAGES:
        folder = importlib.import_module(package).__path__
        for found in pkgutil.walk_packages(folder, f"{package}."):
            try:
                module = importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if error.name in OTHER_FRAMEWORKS:
                    continue
                raise
            classes = [one for one in vars(module).values() if inspect.isclass(one)]
            for owner in (module, *classes):
                if owner is not module and owner.__module__ != module.__name__:
                    continue
                for one in vars(owner).values():
                    function = getattr(one, "__func__", one)
                    if inspect.isfunction(function) and function.__module__ == module.__name__:
                        yield function


def tree_of(function: Callable[..., Any]) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):  # a dataclass has made it
        return None


def has_typed_local(function: Callable[..., Any]) -> bool:
    tree = tree_of(function)
    nodes = list(ast.walk(tree)) if tree else []
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
        return False  # a generator is left as it is, without a word
    return any(isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) for n in nodes)


TYPED = {f"{one.__module__}.{one.__qualname__}": one for one in functions() if has_typed_local(one)}


@pytest.mark.parametrize("name", TYPED)
def test_functions_with_typed_locals_can_be_converted(name: str) -> None:
    tf.autograph.to_graph(TYPED[name])

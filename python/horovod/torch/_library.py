"""Operations as operators of torch.library, so that torch.compile keeps them in its graphs.

Only compiled code calls them (`horovod::allreduce` and so on); other calls go straight to the
runtime. An operator does at run time what the function does, its checks and the number of an
unnamed operation included. A result that compiled code does not use is not asked for: ranks must
use the same ones. torch before 2.4 cannot make such operators: there a compiled function
is cut at an operation, and the operation itself is not compiled.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

_custom_op: Callable[..., Any] | None = getattr(torch.library, "custom_op", None)


def has_operators() -> bool:
    """Returns whether this torch supports operators."""
    return _custom_op is not None


def is_compiling() -> bool:
    """Returns whether torch.compile is tracing and this torch supports operators."""
    return _custom_op is not None and torch.compiler.is_compiling()


def operators() -> Any:
    """Returns the operators that `define` has made, by name."""
    return torch.ops.horovod


def define(
    schema: str,
    run: Callable[..., Any],
    like: Callable[..., Any],
    remember: Callable[..., None],
    backward: Callable[..., Any],
) -> None:
    """Makes an operator.

    `schema`: name and typed parameters. `run`: does it. `like`: an uninitialised result, of the
    right shapes. `remember(ctx, inputs, output)`: notes for `backward(ctx, gradient)`.
    """
    if _custom_op is None:
        return
    name, parameters = schema.split("(", 1)
    operator = _custom_op(f"horovod::{name}", run, mutates_args=(), schema=f"({parameters}")
    operator.register_fake(like)
    operator.register_autograd(backward, setup_context=remember)


def leave_uncompiled(package: str) -> None:
    """Makes torch compile none of the functions that `package` and its modules have loaded.
    Importing the compiler to tell it would take half a second."""
    within = f"{package}."
    loaded = [name for name in sys.modules if f"{name}.".startswith(within)]
    for function in _functions_in(*loaded):
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        for code in _codes_in(function.__code__):
            _skip(code)


def _skip(code: types.CodeType) -> None:
    compiler: Any = torch._C._dynamo.eval_frame
    if hasattr(compiler, "skip_code"):  # in older versions
        compiler.skip_code(code)
        return
    skip = compiler._FrameAction.SKIP
    compiler.set_code_exec_strategy(code, compiler._FrameExecStrategy(skip, skip))


def _functions_in(*modules: str) -> Iterator[types.FunctionType]:
    for name in modules:
        values = [*vars(sys.modules[name]).values()]
        classes = [each for each in values if inspect.isclass(each) and each.__module__ == name]
        for value in [*values, *(each for kind in classes for each in vars(kind).values())]:
            function = getattr(value, "fget", None) or getattr(value, "__func__", value)
            if isinstance(function, types.FunctionType) and function.__module__ in modules:
                yield function


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)

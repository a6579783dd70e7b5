"""Operations as operators of torch.library, so that torch.compile keeps them in its graphs.

Only compiled code calls them (`horovod::allreduce` and so on); other calls go straight to the
runtime. An operator does at run time what the function does, its checks and the number of an
unnamed operation included. A result that compiled code does not use is not asked for: ranks must
use the same ones. torch before 2.4 cannot make such operators: there a compiled function
is cut at an operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_custom_op: Callable[..., Any] | None = getattr(torch.library, "custom_op", None)


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

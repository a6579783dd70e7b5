"""What JAX does not export: effects that order operations. All other modules use its public names.

A primitive with an ordered effect takes and returns a token in the compiled program, and programs
pass it on to each other. So operations run in the order in which Python has called them.
"""

from __future__ import annotations

import time
from typing import Any

import jax

from horovod.common.exceptions import HorovodVersionMismatchError

OLDEST = "0.7.2"


def misfit(why: str) -> HorovodVersionMismatchError:
    """What is raised where this JAX cannot be used; in one sentence, with the reason."""
    error = HorovodVersionMismatchError("jax", f"{OLDEST} or later", jax.__version__)
    error.msg = (
        f"Horovod does not fit the installed jax {jax.__version__}: {why}; install a jax that "
        f"fits, of those from {OLDEST} on, or reinstall Horovod: pip install --no-cache-dir "
        "--force-reinstall horovod"
    )
    error.args = (error.msg,)
    return error


try:
    from jax._src import core as jax_core
    from jax._src import effects as _effects
    from jax._src.dispatch import runtime_tokens as _tokens
    from jax.extend.core import Primitive as Primitive
    from jax.interpreters import ad as ad
    from jax.interpreters import batching as batching
    from jax.interpreters import mlir as mlir

    _ALLOWED = (
        _effects.ordered_effects,
        _effects.lowerable_effects,
        _effects.control_flow_allowed_effects,
        _effects.custom_derivatives_allowed_effects,
        _effects.remat_allowed_effects,
    )
    ABSTRACT_TOKEN = jax_core.abstract_token
    ShapedArray = jax_core.ShapedArray
except (ImportError, AttributeError) as error:
    raise misfit(f"its ordered effects have changed ({error})") from error


class Ordered(_effects.Effect):  # type: ignore[misc]
    """Of all operations."""

    def __str__(self) -> str:
        return "Horovod"


for _types in _ALLOWED:
    _types.add_type(Ordered)

EFFECT = Ordered()


def zero_tangent(value: Any) -> Any:
    """The tangent of a value that does not depend on what a derivative is taken of."""
    return ad.Zero(jax.typeof(value).to_tangent_aval())


#: Operations in flight get so long to end when the job ends on this rank.
_SECONDS_TO_END = 10
_PAUSE_SECONDS = 0.001


def wait_for_operations() -> None:
    """Waits until the operations of compiled programs that this thread has started have ended.

    Raises: their error, once.
    """
    try:
        _tokens.block_until_ready()
    finally:
        _tokens.clear()


def let_operations_end() -> None:
    """Waits for a while until they have ended, also with an error."""
    deadline = time.monotonic() + _SECONDS_TO_END
    tokens = [getattr(token, "_buf", token) for token in _tokens.current_tokens.values()]
    while time.monotonic() < deadline and not all(map(_is_ready, tokens)):
        time.sleep(_PAUSE_SECONDS)
    _tokens.clear()


def _is_ready(token: Any) -> bool:
    is_ready = getattr(token, "is_ready", None)
    return is_ready is None or bool(is_ready())

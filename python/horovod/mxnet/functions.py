"""Values that all ranks share: parameters at the start, and objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mxnet as mx

from horovod.common import _objects
from horovod.mxnet._errors import as_mxnet_errors
from horovod.mxnet._operations import broadcast_

#: No Mapping in version 1. Version 2 has dicts.
_PARAMETERS = getattr(mx.gluon, "ParameterDict", dict)


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrites parameters on all ranks by those of `root_rank`. Call it once, before training.

    Args:
        params: NDArrays or gluon parameters by name: `net.collect_params()`, or a dict such as that
            of `module.get_params()`. Parameters without a shape yet (deferred initialisation) are
            broadcast when MXNet initialises them, at the first forward pass.
        prefix: begins the names of the operations.

    Raises: ValueError for other types, before anything is sent; MXNetError.
    """
    if not isinstance(params, (Mapping, _PARAMETERS)):
        raise ValueError(
            "broadcast_parameters: params must be a dict of NDArrays or parameters by name, or a "
            f"gluon ParameterDict, got {type(params).__name__}"
        )
    named = sorted(params.items())
    for name, one in named:
        if not isinstance(one, (mx.nd.NDArray, mx.gluon.Parameter)):
            raise ValueError(
                f"broadcast_parameters: {name} must be an NDArray or a gluon Parameter, got "
                f"{type(one).__name__}"
            )
    sent = []
    for name, one in named:
        sent += _broadcast(one, root_rank, f"parameter.{prefix or ''}{name}")
    for array in sent:
        array.wait_to_read()


def _broadcast(one: Any, root_rank: int, name: str) -> list[Any]:
    """The arrays that will be overwritten."""
    if isinstance(one, mx.nd.NDArray):
        return [broadcast_(one, root_rank, name)]
    if one._data is None and one._deferred_init:
        _broadcast_when_initialised(one, root_rank, name)
        return []
    return _broadcast_parameter(one, root_rank, name)


def _broadcast_parameter(parameter: Any, root_rank: int, name: str) -> list[Any]:
    arrays = parameter.list_data()
    broadcast_(arrays[0], root_rank, name)
    for other in arrays[1:]:
        arrays[0].copyto(other)
    return list(arrays)


def _broadcast_when_initialised(parameter: Any, root_rank: int, name: str) -> None:
    """Parameters are initialised in the order of the layers, which is equal on all ranks."""
    initialise = parameter._init_impl

    def initialise_and_broadcast(*args: Any, **options: Any) -> None:
        parameter.__dict__.pop("_init_impl", None)  # from now on it is the method again
        initialise(*args, **options)
        _broadcast_parameter(parameter, root_rank, name)

    parameter._init_impl = initialise_and_broadcast


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Returns the object of `root_rank` on every rank: anything that cloudpickle supports. Blocks.

    Other ranks may pass anything. Ranks must trust each other, since unpickling runs code.
    Raises: ValueError, MXNetError.
    """
    with as_mxnet_errors():
        return _objects.broadcast_object(obj, root_rank, name)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Returns a list of the objects of all ranks, in the order of ranks. Blocks.

    Ranks must trust each other, since unpickling runs code.
    Raises: ValueError, MXNetError.
    """
    with as_mxnet_errors():
        return _objects.allgather_object(obj, name)

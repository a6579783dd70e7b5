"""The public names of horovod.mxnet, with their exact signatures."""

from __future__ import annotations

import inspect
from typing import Any

import mxnet as mx
import pytest
from common_names import FUNCTIONS, NAMES, NUMBERS

import horovod.mxnet as hvd

FACTORS = "prescale_factor=1.0, postscale_factor=1.0"
REDUCTION = f"average=None, name=None, priority=0, {FACTORS}, process_set=gps, op=None"
SCATTER = f"op=0, name=None, priority=0, process_set=gps, {FACTORS}"
REST = "name=None, priority=0, process_set=gps"

SURFACE = {
    "allreduce": f"tensor, {REDUCTION}",
    "allreduce_": f"tensor, {REDUCTION}",
    "grouped_allreduce": f"tensors, {REDUCTION}",
    "grouped_allreduce_": f"tensors, {REDUCTION}",
    "allgather": f"tensor, {REST}",
    "grouped_allgather": f"tensors, {REST}",
    "broadcast": f"tensor, root_rank, {REST}",
    "broadcast_": f"tensor, root_rank, {REST}",
    "alltoall": f"tensor, splits=None, {REST}",
    "reducescatter": f"tensor, {SCATTER}",
    "grouped_reducescatter": f"tensors, {SCATTER}",
    "DistributedOptimizer": "optimizer, gradient_predivide_factor=1.0, num_groups=0, "
    "process_set=gps",
    "DistributedTrainer": "params, optimizer, optimizer_params=None, compression=none, "
    "gradient_predivide_factor=1.0, prefix=None, num_groups=0, process_set=gps",
    "broadcast_parameters": "params, root_rank=0, prefix=None",
    "broadcast_object": "obj, root_rank=0, name=None",
    "allgather_object": "obj, name=None",
    "check_extension": "ext_name, ext_env_var, pkg_path, *args",
}
OPTIMIZER = {
    "create_state": "index, weight",
    "create_state_multi_precision": "index, weight",
    "update": "index, weight, grad, state",
    "update_multi_precision": "index, weight, grad, state",
    "set_learning_rate": "lr",
    "set_lr_mult": "args_lr_mult",
    "set_wd_mult": "args_wd_mult",
}
CLASSES = {"Compression", "HorovodInternalError", "HorovodMismatchError"}


def spelled(parameter: inspect.Parameter) -> str:
    stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    default: Any = parameter.default
    if default is parameter.empty:
        return stars + parameter.name
    if default is hvd.global_process_set:
        return f"{parameter.name}=gps"
    if default is hvd.Compression.none:
        return f"{parameter.name}=none"
    return f"{parameter.name}={default!r}"


def signature(function: Any) -> str:
    """Without types and self."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(spelled(one) for one in parameters if one.name != "self")


@pytest.mark.parametrize(("name", "wanted"), {**SURFACE, **FUNCTIONS}.items())
def test_every_name_has_its_documented_signature(name: str, wanted: str) -> None:
    assert signature(getattr(hvd, name)) == wanted


@pytest.mark.parametrize(("name", "wanted"), OPTIMIZER.items())
def test_the_optimizer_has_the_methods_of_mxnet(name: str, wanted: str) -> None:
    assert signature(getattr(hvd.DistributedOptimizer, name)) == wanted


@pytest.mark.parametrize(("name", "number"), NUMBERS.items())
def test_reductions_are_plain_numbers(name: str, number: int) -> None:
    assert getattr(hvd, name) == number and type(getattr(hvd, name)) is int


def test_no_name_is_missing_here() -> None:
    assert set(hvd.__all__) == set(SURFACE) | CLASSES | NAMES
    assert issubclass(hvd.DistributedTrainer, mx.gluon.Trainer)
    assert issubclass(hvd.DistributedOptimizer, mx.optimizer.Optimizer)
    for error in (hvd.HorovodInternalError, hvd.HorovodMismatchError):
        assert issubclass(error, mx.MXNetError)


def test_compression_leaves_integers_alone() -> None:
    for compressor, sent in [(hvd.Compression.none, "float32"), (hvd.Compression.fp16, "float16")]:
        for dtype, wanted in [("float32", sent), ("int32", "int32")]:
            compressed, context = compressor.compress(mx.nd.ones((2,), dtype=dtype))
            assert compressed.dtype == mx.nd.ones((1,), dtype=wanted).dtype
            again = compressor.decompress(compressed, context)
            assert again.dtype == mx.nd.ones((1,), dtype=dtype).dtype

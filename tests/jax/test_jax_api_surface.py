"""The public names of horovod.jax, with their exact signatures."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from common_names import FUNCTIONS, NAMES, NUMBERS

import horovod.jax as hvd

REDUCTION = (
    "tensor, name=None, op=0, prescale_factor=1.0, postscale_factor=1.0, compression=none, "
    "process_set=gps"
)
GROUPED = "tensors, *args, **options"
GRADIENT = (
    "fun, argnums=0, has_aux=False, *, op=0, compression=none, gradient_predivide_factor=1.0, "
    "groups=None, process_set=gps"
)
SURFACE = {
    "allreduce": REDUCTION,
    "reducescatter": REDUCTION,
    "allgather": "tensor, name=None, process_set=gps",
    "broadcast": "tensor, root_rank=0, name=None, process_set=gps",
    "alltoall": "tensor, splits=None, name=None, process_set=gps",
    "grouped_allreduce": GROUPED,
    "grouped_reducescatter": GROUPED,
    "grouped_allgather": GROUPED,
    "barrier": "process_set=gps",
    "join": "",
    "DistributedOptimizer": "optimizer, op=0, compression=none, backward_passes_per_step=1, "
    "groups=None, *, name=None, gradient_predivide_factor=1.0, "
    "average_aggregated_gradients=False, process_set=gps",
    "value_and_grad": GRADIENT,
    "grad": GRADIENT,
    "broadcast_parameters": "params, root_rank=0, name=None, process_set=gps",
    "metric_average": "value, name=None, process_set=gps",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=gps",
    "allgather_object": "obj, name=None, process_set=gps",
    "check_extension": "ext_name, ext_env_var, pkg_path, *args",
}
BESIDES = {"Compression", "HorovodInternalError", "elastic"}


class Spelled(str):
    """A default. Its repr has no quotes."""

    def __repr__(self) -> str:
        return str(self)


def spelled(parameter: inspect.Parameter) -> inspect.Parameter:
    default: Any = parameter.default
    if default is hvd.global_process_set:
        default = Spelled("gps")
    elif default is hvd.Compression.none:
        default = Spelled("none")
    return parameter.replace(annotation=parameter.empty, default=default)


def signature(function: Any) -> str:
    """Without types."""
    found = inspect.signature(function)
    parameters = [spelled(one) for one in found.parameters.values()]
    text = str(found.replace(parameters=parameters, return_annotation=found.empty))
    return text.removeprefix("(").removesuffix(")")


@pytest.mark.parametrize(("name", "wanted"), {**SURFACE, **FUNCTIONS}.items())
def test_every_name_has_its_documented_signature(name: str, wanted: str) -> None:
    assert signature(getattr(hvd, name)) == wanted


@pytest.mark.parametrize(("name", "number"), NUMBERS.items())
def test_reductions_are_plain_numbers(name: str, number: int) -> None:
    assert getattr(hvd, name) == number and type(getattr(hvd, name)) is int


def test_no_name_is_missing_here() -> None:
    assert set(hvd.__all__) == set(SURFACE) | BESIDES | NAMES


def test_elastic_states_have_the_surface_of_other_frameworks() -> None:
    shared = {"ElasticBatchSampler", "ElasticSampler", "ElasticStream", "run"}
    assert set(hvd.elastic.__all__) == shared | {"JaxState"}
    state = hvd.elastic.JaxState
    assert signature(state.__init__) == "self, params=None, opt_state=None, **kwargs"
    for method in ("commit", "save", "restore", "sync", "check_host_updates", "on_reset"):
        assert callable(getattr(state, method)), method
    assert callable(state.register_reset_callbacks)

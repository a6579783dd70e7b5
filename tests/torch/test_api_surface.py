"""The public names of horovod.torch, with their exact signatures, and the test that uses each."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import horovod.torch as hvd

HERE = Path(__file__).parent
FACTORS = "prescale_factor=1.0, postscale_factor=1.0"
SET = "process_set=gps"
REDUCE = f"average=None, name=None, op=None, {FACTORS}, {SET}"
COMPRESSED = f"average=None, name=None, compression=none, op=None, {FACTORS}, {SET}"
SCATTER = f"name=None, op=0, {SET}, {FACTORS}"
SCATTER_COMPRESSED = f"name=None, compression=none, op=0, {SET}, {FACTORS}"


class Row(NamedTuple):
    """`signature` is None for what is no function. `test`: file without .py, and name in it."""

    name: str
    signature: str | None
    test: str


def rows(test: str, **signatures: str | None) -> list[Row]:
    return [Row(name, signature, test) for name, signature in signatures.items()]


OPERATIONS = [
    *rows(
        "test_torch_operations.test_s6_allreduce_of_wide_floats",
        allreduce_async=f"tensor, {REDUCE}",
        allreduce_=f"tensor, {REDUCE}",
    ),
    Row("allreduce", f"tensor, {COMPRESSED}", "test_torch_operations.test_s6_factors_apply_before"),
    *rows(
        "test_torch_operations.test_s6_groups_reduce_all_their_members",
        grouped_allreduce=f"tensors, {COMPRESSED}",
        grouped_allreduce_async=f"tensors, {REDUCE}",
        grouped_allreduce_=f"tensors, {REDUCE}",
    ),
    *rows(
        "test_torch_operations.test_s6_in_place_without_blocking",
        allreduce_async_=f"tensor, {REDUCE}",
        grouped_allreduce_async_=f"tensors, {REDUCE}",
    ),
    Row(
        "sparse_allreduce_async",
        f"tensor, name, op, {SET}",
        "test_s6_operations.test_s6_sparse_allreduce_adds_what_each_rank_has",
    ),
    *rows(
        "test_torch_operations.test_s6_allgather_takes_other_numbers_of_rows_and_none",
        allgather=f"tensor, name=None, {SET}",
        allgather_async=f"tensor, name=None, {SET}",
    ),
    *rows(
        "test_s6_operations.test_s6_grouped_allgather_takes_other_numbers_of_rows_and_none",
        grouped_allgather=f"tensors, name=None, {SET}",
        grouped_allgather_async=f"tensors, name=None, {SET}",
    ),
    *rows(
        "test_torch_operations.test_s6_broadcast_from_every_root",
        broadcast=f"tensor, root_rank, name=None, {SET}",
        broadcast_=f"tensor, root_rank, name=None, {SET}",
        broadcast_async=f"tensor, root_rank, name=None, {SET}",
    ),
    Row(
        "broadcast_async_",
        f"tensor, root_rank, name=None, {SET}",
        "test_torch_operations.test_s6_in_place_without_blocking",
    ),
    *rows(
        "test_s6_operations.test_s6_alltoall_uneven_splits",
        alltoall=f"tensor, splits=None, name=None, {SET}",
        alltoall_async=f"tensor, splits=None, name=None, {SET}",
    ),
    *rows(
        "test_s6_operations.test_s6_reducescatter_gives_the_first_ranks_the_rows_that_are_left",
        reducescatter=f"tensor, {SCATTER_COMPRESSED}",
        reducescatter_async=f"tensor, {SCATTER}",
    ),
    *rows(
        "test_s6_operations.test_s6_reducescatter_factors_apply_before_and_after",
        grouped_reducescatter=f"tensors, {SCATTER_COMPRESSED}",
        grouped_reducescatter_async=f"tensors, {SCATTER}",
    ),
    Row("poll", "handle", "test_torch_operations.test_s1_poll_becomes_true_without_waiting"),
    Row("synchronize", "handle", "test_torch_binding.test_a_handle_is_an_int_that_can_be_used"),
    Row("join", "device=-1", "test_s7_join.test_s7_the_last_rank_is_the_same_everywhere"),
    Row("barrier", SET, "test_torch_operations.test_s6_barrier_waits_for_all"),
]

FUNCTIONS = [
    Row(
        "broadcast_parameters",
        "params, root_rank",
        "test_torch_arguments.test_broadcast_parameters_takes_dicts_and_lists",
    ),
    Row(
        "broadcast_optimizer_state",
        "optimizer, root_rank, model=None",
        "test_torch_training.test_optimizer_state_of_the_root_reaches_everyone",
    ),
    *rows(
        "test_torch_arguments.test_an_object_can_be_broadcast_by_a_function",
        broadcast_object_fn=f"root_rank=0, name=None, {SET}",  # more than is asked for
        check_extension=None,
    ),
    *rows(
        "test_s6_operations.test_s6_objects_on_sets_empty_and_different_on_each_rank",
        broadcast_object=f"obj, root_rank=0, name=None, {SET}",
        allgather_object=f"obj, name=None, {SET}",  # the set: more than is asked for
    ),
]

OPTIMIZER = [
    Row(
        "DistributedOptimizer",
        "optimizer, named_parameters=None, compression=none, backward_passes_per_step=1, op=0, "
        "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, "
        "process_set=gps",
        "test_torch_training.",
    ),
    Row(
        "SyncBatchNorm",
        "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True",
        "test_torch_sync_batch_norm.test_s15_",
    ),
]

COMMON = [
    Row(
        "init",
        "comm=None, process_sets=None",
        "test_torch_binding.test_s1_everything_raises_before",
    ),
    Row("shutdown", "", "test_torch_binding.test_s1_everything_raises_before_init"),
    *rows(
        "test_torch_operations.test_s1_ranks_and_sizes_fit_together",
        is_initialized="",
        size="",
        local_size="",
        cross_size="",
        rank="",
        local_rank="",
        cross_rank="",
        is_homogeneous="",
    ),
    *rows(
        "test_torch_binding.test_what_was_built_is_told",
        mpi_threads_supported="",
        mpi_enabled="",
        mpi_built="",
        gloo_enabled="",
        gloo_built="",
        ddl_built="",
        ccl_built="",
        cuda_built="",
        rocm_built="",
        nccl_built="",
    ),
    *rows(
        "test_s11_timeline.test_",
        start_timeline="file_path, mark_cycles=False",
        stop_timeline="",
    ),
    Row("add_process_set", "process_set", "test_process_sets.test_"),
    Row("remove_process_set", "process_set", "test_process_sets.test_"),
    Row("ProcessSet", "ranks_or_comm", "test_process_sets.test_"),
    Row("global_process_set", None, "test_torch_binding.test_the_global_process_set_is_everyone"),
    Row(
        "Compression", None, "test_torch_operations.test_s6_compression_changes_bytes_and_not_types"
    ),
    Row("HorovodInternalError", None, "test_torch_binding.test_s2_a_failed_operation_raises_once"),
    Row("elastic", None, "test_torch_elastic.test_"),
]
ELASTIC = {
    "run": "func",
    "TorchState": "model=None, optimizer=None, **kwargs",
    "StateHandler": "value",
    "ModelStateHandler": "model",
    "OptimizerStateHandler": "optimizer",
    "SamplerStateHandler": "sampler",
    "get_handler_registry": "",
    "set_handler_registry": "registry",
    "ElasticSampler": "dataset, shuffle=True, seed=0",
}
METHODS = {
    "TorchState": {"save": "", "restore": "", "sync": "", "commit": "", "check_host_updates": ""},
    "StateHandler": {"save": "", "restore": "", "sync": "", "set_value": "value"},
    "ElasticSampler": {
        "set_epoch": "epoch",
        "record_batch": "batch_idx, batch_size",
        "state_dict": "",
        "load_state_dict": "state_dict",
        "reset": "",
    },
}
NUMBERS = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}
AUTOGRAD = {
    "HorovodAllreduce": "test_s6_gradcheck_of_allreduce",
    "HorovodGroupedAllreduce": "test_s6_gradcheck_of_allreduce",
    "HorovodAllgather": "test_s6_gradcheck_of_allgather",
    "HorovodGroupedAllgather": "test_s6_gradcheck_of_allgather",
    "HorovodBroadcast": "test_s6_gradcheck_of_broadcast",
    "HorovodAlltoall": "test_s6_gradcheck_of_alltoall",
    "HorovodReducescatter": "test_s6_gradcheck_of_reducescatter",
    "HorovodGroupedReducescatter": "test_s6_gradcheck_of_reducescatter",
}
EVERYTHING = [*OPERATIONS, *FUNCTIONS, *OPTIMIZER, *COMMON]


def spelling(default: Any) -> str:
    if default is hvd.global_process_set:
        return "gps"
    if default is hvd.Compression.none:
        return "none"
    return repr(default)


def signature(function: Any) -> str:
    parts = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}")
            continue
        assert parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        has_default = parameter.default is not inspect.Parameter.empty
        parts.append(
            f"{parameter.name}={spelling(parameter.default)}" if has_default else (parameter.name)
        )
    return ", ".join(parts)


def has_test(where: str, symbol: str) -> bool:
    """There is such a test, and its file uses the symbol, or the cases that it goes through do."""
    file, _, name = where.partition(".")
    path = HERE / f"{file}.py"
    text = path.read_text() if path.exists() else ""
    found = re.search(rf"^def {name}", text, re.MULTILINE) is not None
    used = text + (HERE / "cases.py").read_text() if "import cases" in text else text
    return found and re.search(rf"\b{symbol}\b", used) is not None


@pytest.mark.parametrize("row", EVERYTHING, ids=lambda row: row.name)
def test_every_name_has_its_documented_signature(row: Row) -> None:
    found = getattr(hvd, row.name)
    assert row.name in hvd.__all__
    if row.signature is not None:
        assert signature(found) == row.signature


@pytest.mark.parametrize("row", EVERYTHING, ids=lambda row: row.name)
def test_every_name_is_used_by_a_test(row: Row) -> None:
    assert has_test(row.test, row.name), row.test


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_operations_are_also_in_mpi_ops(row: Row) -> None:
    mpi_ops = importlib.import_module("horovod.torch.mpi_ops")
    assert getattr(mpi_ops, row.name) is getattr(hvd, row.name)
    assert row.name in mpi_ops.__all__


@pytest.mark.parametrize("name", AUTOGRAD)
def test_autograd_functions_are_in_mpi_ops(name: str) -> None:
    mpi_ops = importlib.import_module("horovod.torch.mpi_ops")
    assert issubclass(getattr(mpi_ops, name), torch.autograd.Function)
    assert name in mpi_ops.__all__
    assert has_test(f"test_s6_gradients.{AUTOGRAD[name]}", "gradcheck")


@pytest.mark.parametrize("name", NUMBERS)
def test_reductions_are_plain_numbers(name: str) -> None:
    assert getattr(hvd, name) == NUMBERS[name] and type(getattr(hvd, name)) is int


@pytest.mark.parametrize("name", ELASTIC)
def test_names_of_elastic_have_their_documented_signatures(name: str) -> None:
    found = getattr(importlib.import_module("horovod.torch.elastic"), name, None)
    found = found or getattr(importlib.import_module("horovod.torch.elastic.state"), name)
    assert signature(found) == ELASTIC[name]
    for method, expected in METHODS.get(name, {}).items():
        own = list(inspect.signature(getattr(found, method)).parameters)[1:]
        assert ", ".join(own) == expected


#: Names that Horovod does not have (docs/differences.md).
BEYOND = {"Group", "recv", "recv_async", "send", "send_async"}


def test_no_public_name_is_missing_here() -> None:
    listed = {row.name for row in EVERYTHING} | set(NUMBERS)
    assert set(hvd.__all__) == listed | BEYOND


@pytest.mark.parametrize(
    "module",
    [
        "mpi_ops",
        "functions",
        "compression",
        "optimizer",
        "elastic",
        "elastic.state",
        "sync_batch_norm",
    ],
)
def test_documented_modules_can_be_imported(module: str) -> None:
    importlib.import_module(f"horovod.torch.{module}")

"""The public names of the TensorFlow and Keras packages, with their exact signatures."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from common_names import FUNCTIONS, NUMBERS
from tensorflow.python.framework import op_def_registry

PRE_POST = "prescale_factor=1.0, postscale_factor=1.0"
SET = "process_set=gps"
SCOPED = f"name=None, ignore_name_scope=False, {SET}"
DEVICES = "device_dense='', device_sparse=''"
TAPE = (
    f"gradtape, {DEVICES}, compression=none, sparse_as_dense=False, op=0, "
    f"gradient_predivide_factor=1.0, num_groups=0, groups=None, {SET}"
)
KERAS = (
    f"optimizer, name=None, {DEVICES}, compression=none, sparse_as_dense=False, "
    "gradient_predivide_factor=1.0, op=0"
)
PASSES = "backward_passes_per_step=1, average_aggregated_gradients=False"
AGGREGATION = (
    "backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients"
)
SOURCES = "target, sources, output_gradients=None, use_generic_names=False, **kwargs"

COMMON = {**FUNCTIONS, "global_process_set": None, "Compression": None, "elastic": None}

OPERATIONS = {
    "allreduce": f"tensor, average=None, {DEVICES}, compression=none, op=None, {PRE_POST}, "
    f"name=None, {SET}, ignore_name_scope=False",
    "grouped_allreduce": f"tensors, average=None, {DEVICES}, compression=none, op=None, "
    f"{PRE_POST}, {SET}, ignore_name_scope=False, name=None",
    "reducescatter": f"tensor, device_dense='', compression=none, op=0, name=None, {SET}, "
    f"ignore_name_scope=False, {PRE_POST}",
    "grouped_reducescatter": f"tensors, device_dense='', compression=none, op=0, {SET}, {PRE_POST}",
    "allgather": f"tensor, {SCOPED}",
    "grouped_allgather": f"tensors, {SCOPED}",
    "broadcast": f"tensor, root_rank, {SCOPED}",
    "broadcast_": f"variables, root_rank, name=None, {SET}",
    "alltoall": f"tensor, splits=None, {SCOPED}",
    "join": "",
    "barrier": SET,  # more than is asked for
    "rank_op": "name=None",
    "local_rank_op": "name=None",
    "local_size_op": "name=None",
    "size_op": "process_set_id=0, name=None",
    "process_set_included_op": "process_set_id=0, name=None",
}

TENSORFLOW = {
    **COMMON,
    **OPERATIONS,
    "DistributedOptimizer": f"optimizer, name=None, use_locking=False, {DEVICES}, "
    "compression=none, sparse_as_dense=False, backward_passes_per_step=1, op=0, "
    "gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, "
    f"groups=None, {SET}, scale_local_gradients=True",
    "DistributedGradientTape": f"{TAPE}, scale_local_gradients=True",
    "PartialDistributedGradientTape": f"{TAPE}, local_layers=None, scale_local_gradients=True",
    "LocalGradientAggregationHelper": f"{AGGREGATION}, rank, optimizer_type, {SET}, "
    "scale_local_gradients=True, name=''",
    "broadcast_variables": f"variables, root_rank, {SET}, inplace=False",
    "broadcast_global_variables": "root_rank",
    "BroadcastGlobalVariablesHook": "root_rank, device=''",
    "broadcast_object": f"obj, root_rank=0, session=None, name=None, {SET}",
    "broadcast_object_fn": f"root_rank=0, session=None, name=None, {SET}",
    "allgather_object": f"obj, session=None, name=None, {SET}",
    "SyncBatchNormalization": "fused=False, **kwargs",
    "check_num_rank_power_of_2": "num_rank",
    "handle_average_backwards_compatibility": "op, average",
    "vars_to_refs": "vars",
    "refs_to_vars": "refs",
    "HorovodInternalError": None,
}

VALUES = {
    "allgather": "value, name=None",
    "broadcast": "value, root_rank, name=None",
    "reducescatter": "value, name=None, op=0",
    "broadcast_global_variables": "root_rank",
    "load_model": "filepath, custom_optimizers=None, custom_objects=None, compression=none, "
    "legacy_opts=False",
    "PartialDistributedOptimizer": f"{KERAS}, {PASSES}, groups=None, {SET}, local_layers=None, "
    "scale_local_gradients=True",
    "callbacks": None,
}
VALUE = f"{PRE_POST}, op=None, compression=none"
OF_KERAS = {
    **COMMON,
    **VALUES,
    "allreduce": f"value, name=None, average=True, {VALUE}",
    "DistributedOptimizer": f"{KERAS}, num_groups=0, groups=None",
}
OF_TF_KERAS = {
    **COMMON,
    **VALUES,
    "allreduce": f"value, name=None, average=None, {VALUE}",
    "DistributedOptimizer": f"{KERAS}, {PASSES}, num_groups=0, groups=None, {SET}, "
    "scale_local_gradients=True",
}
WARMUP = "warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0"
CALLBACKS = {
    "BroadcastGlobalVariablesCallback": "root_rank, device='', local_variables=None",
    "MetricAverageCallback": "device=''",
    "LearningRateScheduleCallback": "initial_lr, multiplier, start_epoch=0, end_epoch=None, "
    "staircase=True, momentum_correction=True, steps_per_epoch=None",
    "LearningRateWarmupCallback": f"initial_lr, {WARMUP}",
}
BEST = "monitor='val_loss', verbose=0"
ELASTIC = {
    "run": "func",
    "KerasState": "model, optimizer=None, **kwargs",
    "CommitStateCallback": "state, batches_per_commit=1",
    "UpdateBatchStateCallback": "state",
    "UpdateEpochStateCallback": "state",
    "UpdateSamplerStateCallback": "sampler, batch_size",
    "ElasticSampler": "dataset, shuffle=True, seed=0",
}
HELPERS = {
    "apply_op_to_not_none_tensors": "tensor_op, tensors, *args",
    "get_not_none_from_list": "tensor_list",
}

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "tensorflow.md"
SURFACE: dict[str, dict[str, str | None]] = {
    "tensorflow": TENSORFLOW,
    "tensorflow.mpi_ops": {
        name: OPERATIONS[name]
        for name in ("allgather", "broadcast", "alltoall", "join", "rank_op", "size_op")
    },
    "tensorflow.util": {"vars_to_refs": "vars", "refs_to_vars": "refs", "_executing_eagerly": ""},
    "tensorflow.functions": {
        name: TENSORFLOW[name] for name in TENSORFLOW if "broadcast_" in name or "object" in name
    },
    "tensorflow.compression": {"Compression": None, "Compressor": None},
    "tensorflow.elastic": {
        "run": "func",
        "TensorFlowKerasState": "model, optimizer=None, backend=None, **kwargs",
        "TensorFlowState": "variables=None, session=None, **kwargs",
        "ElasticSampler": "dataset, shuffle=True, seed=0",
    },
    "tensorflow.gradient_aggregation": {
        **HELPERS,
        "LocalGradientAggregationHelper": TENSORFLOW["LocalGradientAggregationHelper"],
    },
    "tensorflow.gradient_aggregation_eager": {
        **HELPERS,
        "LocalGradientAggregationHelperEager": f"{AGGREGATION}, {SET}, scale_local_gradients=True",
    },
    "tensorflow.data.compute_service": {
        "TfDataServiceConfig": "dispatchers, workers_per_dispatcher, dispatcher_side, addresses, "
        "key, timeout=60",
        "tf_data_service": "compute_config, rank",
        "send_to_data_service": "dataset, compute_config, rank, size=None, "
        "processing_mode='distributed_epoch', reuse_dataset=False, round_robin=False",
        "compute_worker_fn": "compute_config",
    },
    "tensorflow.data.compute_worker": {"main": "dispatchers, dispatcher_side, configfile, timeout"},
    "keras": OF_KERAS,
    "keras.callbacks": {
        **CALLBACKS,
        "BestModelCheckpoint": f"{BEST}, mode='auto', save_freq='epoch'",
    },
    "keras.elastic": ELASTIC,
    "tensorflow.keras": OF_TF_KERAS,
    "tensorflow.keras.callbacks": {
        **CALLBACKS,
        "BestModelCheckpoint": f"{BEST}, save_weights_only=False, mode='auto', save_freq='epoch'",
    },
    "tensorflow.keras.elastic": ELASTIC,
}
METHODS = {
    ("tensorflow.gradient_aggregation", "LocalGradientAggregationHelper"): {
        "register_local_var": "var",
        "compute_gradients": "grads, vars",
        "apply_gradients": "apply_grads_closure, optimizer, *args, **kwargs",
    },
    ("tensorflow.compression", "Compressor"): {"compress": "tensor", "decompress": "tensor, ctx"},
    ("tensorflow.elastic", "TensorFlowState"): {"save": "", "restore": "", "sync": ""},
    ("tensorflow.elastic", "TensorFlowKerasState"): {"save": "", "restore": "", "sync": ""},
    ("tensorflow.data.compute_service", "TfDataServiceConfig"): {
        "compute_client": "verbose=1",
        "to_dict": "",
        "from_dict": "config",
        "write": "filename",
        "read": "filename, wait_for_file_creation=False",
    },
}
OPTIMIZER_METHODS = {
    "register_local_var": "var",
    "_compute_gradients": "loss, var_list, grad_loss=None, tape=None",
    "get_gradients": "loss, params",
    "_aggregate_gradients": "grads_and_vars",
    "_allreduce": "grads, vars",
}
#: Those that write into variables are missing: TensorFlow's C interface does not reach there.
REGISTERED = [
    "Allreduce",
    "GroupedAllreduce",
    "Allgather",
    "GroupedAllgather",
    "Broadcast",
    "Reducescatter",
    "GroupedReducescatter",
    "Alltoall",
    "Join",
    "Size",
    "ProcessSetIncluded",
    "LocalSize",
    "Rank",
    "LocalRank",
]
#: Not documented, but scripts import them.
BESIDES: dict[str, dict[str, str | None]] = {
    "tensorflow": {
        "_executing_eagerly": "",
        "check_extension": "ext_name, ext_env_var, pkg_path, *args",
        "gpu_available": None,
        "split_list": "l, n",
    },
    "common.util": {"_cache": "f"},
}
ROWS = [
    pytest.param(module, name, signature, id=f"{module}.{name}")
    for module, names in [*SURFACE.items(), *BESIDES.items()]
    for name, signature in names.items()
]


def spelling(default: Any) -> str:
    sets = importlib.import_module("horovod.common.process_sets")
    if default is sets.global_process_set:
        return "gps"
    return "none" if getattr(default, "__name__", "") == "NoneCompressor" else repr(default)


def signature_of(function: Any) -> str:
    """Without types; of a class that of its objects' making."""
    of_class = inspect.isclass(function)
    parameters = list(
        inspect.signature(function.__init__ if of_class else function).parameters.values()
    )
    parts = []
    for parameter in parameters[1:] if of_class else parameters:
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        assert stars or parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        has_default = parameter.default is not parameter.empty
        end = f"={spelling(parameter.default)}" if has_default else ""
        parts.append(f"{stars}{parameter.name}{end}")
    return ", ".join(parts)


def method(owner: Any, name: str) -> str:
    """A method's signature without self."""
    found = signature_of(getattr(owner, name))
    return found.removeprefix("self").removeprefix(", ")


@pytest.mark.parametrize(("module", "name", "signature"), ROWS)
def test_every_name_has_its_documented_signature(
    module: str, name: str, signature: str | None
) -> None:
    found = getattr(importlib.import_module(f"horovod.{module}"), name)
    assert signature is None or signature_of(found) == signature


@pytest.mark.parametrize(("module", "owner"), METHODS)
def test_every_method_has_its_documented_signature(module: str, owner: str) -> None:
    found = getattr(importlib.import_module(f"horovod.{module}"), owner)
    for name, signature in METHODS[module, owner].items():
        assert method(found, name) == signature, name


@pytest.mark.parametrize("module", ["keras", "tensorflow.keras"])
def test_distributed_optimizers_have_the_methods_that_scripts_call(module: str) -> None:
    optimizer = importlib.import_module("horovod._keras.optimizer")
    for front in (optimizer.Distributed2, optimizer.Distributed3):
        assert front._HAS_AGGREGATE_GRAD
        for name, signature in OPTIMIZER_METHODS.items():
            assert method(front, name) == signature, name
        assert {"compute_gradients", "apply_gradients"} & set(dir(front))
    keras = importlib.import_module(f"horovod.{module}")
    assert keras.Compression.none.__name__ == "NoneCompressor"


def test_tapes_have_the_methods_that_scripts_call() -> None:
    tape = importlib.import_module("horovod.tensorflow._tape")._DistributedTape
    assert method(tape, "gradient") == SOURCES
    assert method(tape, "get_local_and_global_gradients") == SOURCES
    assert method(tape, "register_local_source") == "source"


@pytest.mark.parametrize("module", ["tensorflow", "keras", "tensorflow.keras"])
def test_reductions_are_plain_numbers_and_no_name_is_missing_here(module: str) -> None:
    found = importlib.import_module(f"horovod.{module}")
    for name, number in NUMBERS.items():
        assert getattr(found, name) == number and type(getattr(found, name)) is int
    assert set(found.__all__) == set(SURFACE[module]) | set(NUMBERS)


def test_what_runs_eagerly_is_known() -> None:
    hvd = importlib.import_module("horovod.tensorflow")
    tf = importlib.import_module("tensorflow")
    seen = [hvd._executing_eagerly()]
    tf.function(lambda: seen.append(hvd._executing_eagerly()))()
    assert seen == [True, False]


@pytest.mark.parametrize("name", REGISTERED)
def test_graphs_know_the_operations_by_their_names(name: str) -> None:
    importlib.import_module("horovod.tensorflow")
    assert op_def_registry.get(f"Horovod{name}") is not None


def test_what_the_document_says_holds_has_the_test_that_it_names() -> None:
    named = re.findall(r"`(test_\w+)\.(test_\w+)` \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert len(named) > 40
    for file, test in named:
        assert f"def {test}(" in (HERE / f"{file}.py").read_text(), f"{file}.{test}"

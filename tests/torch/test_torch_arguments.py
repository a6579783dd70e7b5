"""Arguments: what the functions take, and what they say of the rest. Against the double, in one
process, and where it says so against the runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from core_double import Double
from ranks import on_ranks
from small_models import make_model, wrapped

import horovod.torch as hvd

Begin = Callable[[int], Double]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_s2_an_unsupported_type_is_named_with_those_that_are(
    double: Begin, dtype: torch.dtype
) -> None:
    double(1)
    for operation in (hvd.allreduce, hvd.allgather, lambda t: hvd.broadcast(t, 0)):
        with pytest.raises(ValueError, match=rf"{dtype} is not supported.*int8.*bfloat16"):
            operation(torch.ones(2, dtype=dtype))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_s2_tensors_without_plain_memory_are_refused(double: Begin) -> None:
    double(1)
    refused = {
        "quantized": (torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "qint8"),
        "sparse": (torch.eye(2).to_sparse(), "sparse_coo.*to_dense"),
        "csr": (torch.eye(2).to_sparse_csr(), "sparse_csr"),
        "meta": (torch.ones(2, device="meta"), "device meta"),
        "list": ([1.0, 2.0], "torch.Tensor is needed, got list"),
    }
    for tensor, text in refused.values():
        for operation in (
            hvd.allreduce,
            hvd.allreduce_,
            hvd.allgather,
            hvd.alltoall,
            hvd.reducescatter,
            lambda t: hvd.grouped_allgather([torch.ones(2), t]),
            lambda t: hvd.grouped_reducescatter([torch.ones(2), t]),
            lambda t: hvd.broadcast_(t, 0),
            lambda t: hvd.grouped_allreduce([torch.ones(2), t]),
        ):
            with pytest.raises(ValueError, match=text):
                operation(tensor)


def test_s2_in_place_needs_contiguous_memory_and_out_of_place_copies(double: Begin) -> None:
    double(2)
    matrix = torch.arange(6.0).view(2, 3).t()
    for operation in (hvd.allreduce_, lambda t: hvd.broadcast_(t, 0)):
        with pytest.raises(ValueError, match=r"contiguous.*\(3, 2\).*\(1, 3\)"):
            operation(matrix)
    with pytest.raises(ValueError, match="contiguous"):
        hvd.grouped_allreduce_([torch.ones(2), matrix])
    assert torch.equal(hvd.allreduce(matrix), matrix)
    assert torch.equal(hvd.allgather(matrix[:, 1]), matrix[:, 1].repeat(2))
    imaginary = torch.tensor([1 + 2j, 3 + 4j]).conj().imag  # its memory holds the negative values
    assert torch.equal(hvd.allreduce(imaginary), torch.tensor([-2.0, -4.0]))


def test_op_and_average_exclude_each_other(double: Begin) -> None:
    double(2)
    one = torch.ones(1)
    with pytest.raises(ValueError, match="only one of"):
        hvd.allreduce(one, average=True, op=hvd.Sum)
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(one, average=False) == 2
    with pytest.warns(DeprecationWarning, match="average"):
        assert hvd.allreduce(one, average=True) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hvd.allreduce(one) == 1
    with pytest.raises(ValueError, match="op must be one of"):
        hvd.allreduce(one, op=17)


def test_s6_bool_is_reduced_by_min_and_max_only(double: Begin) -> None:
    double(2)
    flags = torch.tensor([True, False])
    assert torch.equal(hvd.allreduce(flags, op=hvd.Max), flags)
    for op in (hvd.Sum, hvd.Average, hvd.Product):
        with pytest.raises(ValueError, match="bool"):
            hvd.allreduce(flags, op=op)


def test_s5_a_group_has_members_and_one_type(double: Begin) -> None:
    double(2)
    with pytest.raises(ValueError, match="at least one"):
        hvd.grouped_allreduce([])
    with pytest.raises(ValueError, match="float32, int32"):
        hvd.grouped_allreduce([torch.ones(1), torch.ones(1, dtype=torch.int32)])


def test_compression_is_for_floating_tensors(double: Begin) -> None:
    core = double(2)
    for compression, number in ((hvd.Compression.fp16, 6), (hvd.Compression.bf16, 10)):
        reduced = hvd.allreduce(torch.ones(2, dtype=torch.float64), compression=compression)
        assert reduced.dtype is torch.float64
        assert core.log[-1].inputs[0][2] == number
        reduced = hvd.allreduce(torch.ones(2, dtype=torch.int32), compression=compression)
        assert reduced.dtype is torch.int32
        assert core.log[-1].inputs[0][2] == 4


def test_a_compressor_of_the_user_is_taken(double: Begin) -> None:
    double(2)

    class Halved(hvd.Compression.none):  # type: ignore[name-defined, misc]
        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
            return tensor / 2, "context"

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
            assert ctx == "context"
            return tensor * 2

    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, compression=Halved) == 2
    assert hvd.grouped_allreduce([torch.ones(1)], op=hvd.Sum, compression=Halved) == [2]


def test_broadcast_parameters_takes_dicts_and_lists(double: Begin) -> None:
    core = double(2)
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters({**model.state_dict(), "no tensor": 3}, root_rank=1)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=1)
    hvd.broadcast_parameters(list(model.parameters()), root_rank=1)
    hvd.broadcast_parameters({}, root_rank=1)
    assert [operation.root for operation in core.log] == [1] * 6
    assert core.names() == [
        *("broadcast.bias", "broadcast.weight"),
        *("broadcast.weight", "broadcast.bias"),
        *("broadcast.noname.0", "broadcast.noname.1"),
    ]
    for nonsense in (3, "weights", torch.ones(2), [("weight",)], [3]):
        with pytest.raises(ValueError, match="params must"):
            hvd.broadcast_parameters(nonsense, root_rank=0)


def test_parameters_in_another_memory_order_are_broadcast_too(double: Begin) -> None:
    double(2)
    tensor = torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last)
    before = tensor.clone()
    hvd.broadcast_parameters([tensor], root_rank=0)
    assert torch.equal(tensor, before)


def test_init_refuses_what_is_no_communicator(double: Begin) -> None:
    double(2)
    hvd.shutdown()
    with pytest.raises(ValueError, match="wrong type"):
        hvd.init(comm="everyone")
    assert not hvd.is_initialized()


def test_a_set_that_is_not_registered_is_refused(double: Begin) -> None:
    double(3)
    few = hvd.ProcessSet([2, 0])
    with pytest.raises(ValueError, match="not registered"):
        hvd.allreduce(torch.ones(1), process_set=few)
    with pytest.raises(ValueError, match="not registered"):
        parameter = torch.nn.Parameter(torch.ones(1))
        hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1), process_set=few)
    for nonsense in ("01", [0.5], None):
        with pytest.raises(ValueError, match="ranks"):
            hvd.ProcessSet(nonsense)


def x() -> torch.Tensor:
    return torch.ones(2)


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD(make_model().parameters(), lr=1.0)


#: Functions that take `op`, with everything else that they need.
REDUCING: dict[str, Callable[..., Any]] = {
    "allreduce": lambda **given: hvd.allreduce(x(), **given),
    "allreduce_": lambda **given: hvd.allreduce_(x(), **{"name": "a", **given}),
    "allreduce_async": lambda **given: hvd.allreduce_async(x(), **given),
    "allreduce_async_": lambda **given: hvd.allreduce_async_(x(), **{"name": "a", **given}),
    "grouped_allreduce": lambda **given: hvd.grouped_allreduce([x()], **given),
    "grouped_allreduce_": lambda **given: hvd.grouped_allreduce_([x()], **{"name": "a", **given}),
    "grouped_allreduce_async": lambda **given: hvd.grouped_allreduce_async([x()], **given),
    "grouped_allreduce_async_": lambda **given: hvd.grouped_allreduce_async_([x()], **given),
    "reducescatter": lambda **given: hvd.reducescatter(x(), **given),
    "reducescatter_async": lambda **given: hvd.reducescatter_async(x(), **given),
    "grouped_reducescatter": lambda **given: hvd.grouped_reducescatter([x()], **given),
    "grouped_reducescatter_async": lambda **given: hvd.grouped_reducescatter_async([x()], **given),
}
ROOTED: dict[str, Callable[..., Any]] = {
    "broadcast": lambda root_rank=0, **given: hvd.broadcast(x(), root_rank, **given),
    "broadcast_": lambda root_rank=0, **given: hvd.broadcast_(x(), root_rank, **given),
    "broadcast_async": lambda root_rank=0, **given: hvd.broadcast_async(x(), root_rank, **given),
    "broadcast_async_": lambda root_rank=0, **given: hvd.broadcast_async_(x(), root_rank, **given),
    "broadcast_object": lambda **given: hvd.broadcast_object(1, **given),
    "broadcast_object_fn": lambda **given: hvd.broadcast_object_fn(**given)(1),
}
STATES: dict[str, Callable[..., Any]] = {
    "broadcast_parameters": lambda **given: hvd.broadcast_parameters([x()], **given),
    "broadcast_optimizer_state": lambda **given: hvd.broadcast_optimizer_state(sgd(), **given),
}
NAMED: dict[str, Callable[..., Any]] = {
    **REDUCING,
    **ROOTED,
    "allgather": lambda **given: hvd.allgather(x(), **given),
    "allgather_async": lambda **given: hvd.allgather_async(x(), **given),
    "grouped_allgather": lambda **given: hvd.grouped_allgather([x()], **given),
    "grouped_allgather_async": lambda **given: hvd.grouped_allgather_async([x()], **given),
    "alltoall": lambda **given: hvd.alltoall(x(), **given),
    "alltoall_async": lambda **given: hvd.alltoall_async(x(), **given),
    "allgather_object": lambda **given: hvd.allgather_object(1, **given),
    "sparse_allreduce_async": lambda name="s", op=hvd.Sum, **given: hvd.sparse_allreduce_async(
        x().to_sparse(), name, op, **given
    ),
}
GROUPED: dict[str, Callable[[Any], Any]] = {
    "grouped_allreduce": hvd.grouped_allreduce,
    "grouped_allreduce_async": hvd.grouped_allreduce_async,
    "grouped_allreduce_": lambda tensors: hvd.grouped_allreduce_(tensors, name="a", op=hvd.Sum),
    "grouped_allgather": hvd.grouped_allgather,
    "grouped_allgather_async": hvd.grouped_allgather_async,
    "grouped_reducescatter": hvd.grouped_reducescatter,
    "grouped_reducescatter_async": hvd.grouped_reducescatter_async,
}

#: What is wrong, and what is said of it.
OPS = ["sum", 1.5, [1], True, torch.ones(2), hvd.Compression]
NAMES = [3, 0, b"x", ["x"]]
ROOTS = [None, "0", 1.0, [0], 2**40]
FACTORS = ["2", None, 1j, [1.0], np.ones(2), torch.ones(2)]
SETS = [None, 0, [0], "global"]
COMPRESSIONS = [None, "fp16", hvd.Compression, 16]


def wrong_arguments() -> Iterator[tuple[Callable[[], Any], str]]:
    """Calls with one wrong argument each, and what the error says."""

    def each(
        functions: dict[str, Callable[..., Any]], key: str, values: list[Any], text: str
    ) -> Iterator[tuple[Callable[[], Any], str]]:
        for function in functions.values():
            for value in values:
                yield lambda f=function, v=value: f(**{key: v}), text  # type: ignore[misc]

    compressing = {key: REDUCING[key] for key in REDUCING if not key.endswith(("_", "async"))}
    sparse = {"sparse_allreduce_async": NAMED["sparse_allreduce_async"]}
    yield from each({**REDUCING, **sparse}, "op", OPS, "op must be one of .*Average.*, got ")
    yield from each(REDUCING, "prescale_factor", FACTORS, ": prescale_factor must be a number, got")
    yield from each(REDUCING, "postscale_factor", FACTORS, "postscale_factor must be a number, got")
    yield from each(
        compressing, "compression", COMPRESSIONS, "compression must be a Compressor.*fp"
    )
    yield from each(NAMED, "name", NAMES, ": name must be a str or None, got ")
    yield from each(NAMED, "process_set", SETS, "process_set must be a ProcessSet, got ")
    yield from each({**ROOTED, **STATES}, "root_rank", ROOTS, ": root_rank must be .*rank, got ")
    for function in GROUPED.values():
        yield lambda f=function: f(None), "tensors must be a list .*, got NoneType"  # type: ignore[misc]
    for splits in (3, "11", [1.0, 1.0], [True, True]):
        yield lambda s=splits: hvd.alltoall(x(), s), "splits must be numbers of rows"  # type: ignore[misc]
    yield lambda: hvd.allreduce(x(), "gradient"), "average must be True.*'gradient'; a name.*name="
    for wait in (hvd.synchronize, hvd.poll):
        for handle in (None, "x", 1.0, x, torch.zeros(1)):
            yield lambda f=wait, h=handle: f(h), ": handle must be an int that .* returned, got "  # type: ignore[misc]
    yield lambda: hvd.barrier([0]), "process_set must be"  # type: ignore[arg-type]


def check_wrong_arguments() -> None:
    for call, text in wrong_arguments():
        with pytest.raises(ValueError, match=text):
            call()


def test_a_wrong_argument_is_named_with_what_it_must_be(double: Begin) -> None:
    core = double(2)
    check_wrong_arguments()
    hvd.allreduce(x())
    assert core.names() == ["allreduce.noname.0"]  # nothing was sent, and no number was used


@on_ranks(1)
def test_a_wrong_argument_is_named_by_the_runtime_too() -> None:
    check_wrong_arguments()
    hvd.allreduce(x())


def test_numbers_of_other_packages_are_numbers(double: Begin) -> None:
    core = double(2)
    for two in (2, np.float32(2), np.int64(2), torch.tensor(2.0), True + 1):
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, prescale_factor=two) == 4
        hvd.allreduce_(torch.ones(1), name="a", op=np.int64(1), postscale_factor=two)
        assert core.log[-1].op == hvd.Sum and core.log[-1].postscale == 2.0
    assert hvd.broadcast(torch.ones(1), np.int32(0)) == 1
    assert len(hvd.alltoall(x(), np.array([1, 1]))) == 2


def test_a_group_may_come_from_a_generator(double: Begin) -> None:
    double(2)
    for function in GROUPED.values():
        found = function(tensor for tensor in (x(), x()))
        assert len(hvd.synchronize(found) if isinstance(found, int) else found) == 2


@pytest.mark.parametrize(
    ("mistake", "remedy"),
    [
        (lambda: sgd().state_dict(), r"broadcast_optimizer_state\(optimizer, root_rank\)"),
        (sgd, r"broadcast_optimizer_state\(optimizer, root_rank\)"),
        (make_model, r"state_dict\(\)"),
        (lambda: torch.nn.ModuleList([make_model()]), r"state_dict\(\)"),
        (lambda: {"model": make_model().state_dict(), "epoch": 3}, "broadcast_object.*nested"),
        (lambda: torch.optim.lr_scheduler.StepLR(sgd(), 1).state_dict(), "broadcast_object"),
        (lambda: [("epoch", 3)], "none among the entries"),
        (lambda: 3, "got int"),
    ],
)
def test_broadcast_parameters_refuses_what_it_would_not_send(
    double: Begin, mistake: Callable[[], Any], remedy: str
) -> None:
    core = double(2)
    with pytest.raises(ValueError, match=f"^params must .*{remedy}"):
        hvd.broadcast_parameters(mistake(), root_rank=0)
    assert core.names() == []


@pytest.mark.parametrize(
    "mistake", [None, 3, torch.optim.SGD, make_model(), list(make_model().parameters())]
)
def test_only_an_optimizer_can_be_wrapped_and_have_its_state_sent(
    double: Begin, mistake: Any
) -> None:
    double(2)
    with pytest.raises(ValueError, match=r"optimizer must be .*SGD.*, got "):
        hvd.DistributedOptimizer(mistake)
    if not isinstance(mistake, type):
        with pytest.raises(ValueError, match=r"optimizer must be .*Optimizer, got "):
            hvd.broadcast_optimizer_state(mistake, 0)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        *(("op", op, "op must be one of") for op in OPS),
        *(("compression", each, "compression must be a Compressor") for each in COMPRESSIONS),
        *(("process_set", each, "process_set must be a ProcessSet") for each in SETS),
        *(("gradient_predivide_factor", each, "must be a number") for each in FACTORS),
        *(("gradient_predivide_factor", each, "must not be") for each in (0, float("inf"))),
        *(("backward_passes_per_step", each, "positive int") for each in (None, "2", 1.0, True)),
        ("named_parameters", 3, "named_parameters must be"),
        ("named_parameters", make_model(), "named_parameters must be"),
        (
            "named_parameters",
            make_model().state_dict(),
            "named_parameters must be .*has '0.weight'",
        ),
    ],
)
def test_an_option_of_the_optimizer_is_named_with_what_it_must_be(
    double: Begin, option: str, value: Any, text: str
) -> None:
    core = double(2)
    with pytest.raises(ValueError, match=text):
        wrapped(make_model(), **{option: value})
    assert core.names() == []


def test_no_op_is_average_for_the_optimizer_too(double: Begin) -> None:
    core = double(2)
    model = make_model()
    optimizer = wrapped(model, op=None)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert optimizer.op == hvd.Average and {each.op for each in core.log} == {hvd.Average}


def test_an_object_can_be_broadcast_by_a_function_that_knows_how(double: Begin) -> None:
    core = double(2)
    assert hvd.broadcast_object_fn(root_rank=0, name="o")({"a": 1}) == {"a": 1}
    assert core.names() == ["broadcast.o.sz", "broadcast.o.t"]
    with pytest.raises(ImportError, match=r"nothing\..*HOROVOD_WITH_X=1"):
        hvd.check_extension("x", "HOROVOD_WITH_X", __file__, "nothing")

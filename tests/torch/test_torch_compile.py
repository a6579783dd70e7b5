"""torch.compile keeps operations in its graphs, where torch can be told of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from core_double import Double
from rank_jobs import watch
from ranks import on_ranks
from reference import EVERYWHERE, same
from torch_versions import has_torch, needs_torch

import horovod.torch as hvd
from horovod.torch import _library

Begin = Callable[[int], Double]
needs_operators = needs_torch("2.4", "torch.library.custom_op")


def function(x: torch.Tensor) -> torch.Tensor:
    reduced = hvd.allreduce(x * 2, op=hvd.Sum, name="one")
    several = hvd.grouped_allreduce([reduced, x + 1], name="two")
    sent = hvd.broadcast(several[0], 0, name="three")
    return reduced * several[1] + sent + hvd.allreduce(x)


class Recorder:
    """A backend that keeps the graphs, of the forward and of the backward pass."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self.graphs = 0

    def __call__(self, module: Any, inputs: Any) -> Any:
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd

        def keep(graph: Any, _: Any) -> Any:
            self.graphs += 1
            self.targets += [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
            return make_boxed_func(graph.forward)

        return aot_autograd(fw_compiler=keep, bw_compiler=keep)(module, inputs)

    def has(self, name: str) -> int:
        return sum(name in target for target in self.targets)


@pytest.fixture
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@needs_operators
def test_compiled_functions_keep_operations_and_their_gradients(double: Begin, fresh: None) -> None:
    double(3)
    recorder = Recorder()
    x = torch.arange(3.0, requires_grad=True)
    torch.compile(function, fullgraph=True, backend=recorder)(x).sum().backward()
    assert recorder.graphs == 2
    assert recorder.has("horovod.allreduce") == 2 + 2
    assert recorder.has("horovod.grouped_allreduce") == 2
    assert recorder.has("horovod.broadcast") == 1 + 1
    assert recorder.has("horovod.broadcast_gradient") == 1
    y = torch.arange(3.0, requires_grad=True)
    function(y).sum().backward()
    assert x.grad is not None and y.grad is not None
    assert torch.equal(x.grad, y.grad)


@needs_operators
def test_a_compiled_operation_without_a_name_counts_when_it_runs(
    double: Begin, fresh: None
) -> None:
    core = double(2)
    compiled = torch.compile(lambda x: hvd.allreduce(x) + 1, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        compiled(torch.ones(2))
    hvd.allreduce(torch.ones(2))
    assert core.names() == [f"allreduce.noname.{n}" for n in range(4)]


@needs_operators
def test_compiled_code_checks_what_it_is_given(double: Begin, fresh: None) -> None:
    double(3)
    compiled = torch.compile(
        lambda x: hvd.allreduce(x, op=hvd.Adasum), fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(NotImplementedError, match="power of two"):
        compiled(torch.ones(2))


@needs_operators
def test_operators_obey_the_rules_of_torch_library(double: Begin) -> None:
    double(2)
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    one = (x, "n", hvd.Sum, 0.5, 1.0, 0)
    torch.library.opcheck(_library.operators().allreduce.default, one)
    torch.library.opcheck(_library.operators().grouped_allreduce.default, ([x, x], *one[1:]))
    torch.library.opcheck(_library.operators().broadcast.default, (x, 0, None, 0))
    torch.library.opcheck(_library.operators().broadcast_gradient.default, (x, 0, None, 0))


def check_compiled(backend: str, **options: Any) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, **options)
    for length in (3, 3, 5):
        x, y = ((torch.arange(length) + hvd.rank() * 1.0).requires_grad_() for _ in range(2))
        found, wanted = compiled(x), function(y)
        same(found, wanted)
        found.sum().backward()
        wanted.sum().backward()
        assert x.grad is not None and y.grad is not None
        same(x.grad, y.grad)


@on_ranks(*EVERYWHERE)
def test_compiled_functions_compute_the_same_on_all_ranks() -> None:
    check_compiled("aot_eager", fullgraph=has_torch("2.4"))


@needs_operators
@pytest.mark.slow
@on_ranks(2)
def test_compiled_to_machine_code_they_compute_the_same() -> None:
    """All ranks share a cache of compiled graphs; the second time they find each other's there."""
    if not shutil.which(os.environ.get("CXX", "g++")):
        return
    watch(300)
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    for _ in range(2):
        check_compiled("inductor", fullgraph=True)
        hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)


@on_ranks(1, 2)
def test_other_operations_cut_a_compiled_function_and_work() -> None:
    def scattered(x: torch.Tensor) -> torch.Tensor:
        rows = hvd.reducescatter(x * 2, op=hvd.Sum)
        return hvd.allgather(rows + 1) * 2

    torch._dynamo.reset()
    compiled = torch.compile(scattered, backend="aot_eager")
    for _ in range(2):
        same(compiled(torch.ones(3)), torch.full((3,), 4.0 * hvd.size() + 2))

"""Measures the gradients of a step from torch: ResNet-50, BERT-large, 21 layers, 1000 tensors.

    ./dev bench step [--np 2 4] [--networks ResNet-50 "BERT-large"] [--rounds 9] [--json FILE]

`gradients`: all tensors are available; the time from the first call to the last result. Ours:
allreduce_async_ and synchronize, and one grouped call. Gloo of torch.distributed: one by one, and
in buckets of 25 MB like DistributedDataParallel, with and without the copies into them.
`backward`: a backward pass that does nothing except write gradients, until they are averaged. Ours:
DistributedOptimizer, also with `groups`, and DistributedDataParallel on the backend "hvd" of
torch.distributed. Peer: DistributedDataParallel on Gloo.
All run by turns in the same processes. Contestants that do not fit into memory are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from harness import options, together
from harness.results import BOUND, OURS_UNDER_DDP, Work, is_peer
from harness.shapes import NETWORKS, Shape, float_bytes
from harness.together import Bench, Ranks, Task

BUCKET_BYTES = 25 << 20
FIRST_BUCKET_BYTES = 1 << 20  # as in DistributedDataParallel, so that the first one starts early
#: The contestants, and the copies of a network that each adds per rank, as gradients or in buckets.
#: If memory is short, the last ones are omitted. Without a backward pass, all reduce the same
#: gradients. With one, they share the parameters, which do not change.
GRADIENTS = {
    "ours": 1,
    "Gloo one by one": 0,
    "ours, in one group": 0,
    "Gloo in buckets": 1,
    "Gloo in buckets, no copies": 0,
}
BACKWARD = {
    "ours": 1,
    "DDP, views": 1,
    OURS_UNDER_DDP: 1,
    "DDP": 2,
    "ours, under DDP": 2,
    "ours, in 8 groups": 1,
    BOUND: 1,
}
GROUPS = 8
SMALL = 1 << 14  #: in elements
SHARE_OF_MEMORY = 0.85  #: of the free memory, that contestants may use


def gradients(ranks: Ranks, work: Work, shapes: list[Shape]) -> Task:
    """Returns the task in which all gradients are available, in the order of backward. It has as
    many contestants as fit into memory."""
    import torch

    import horovod.torch as hvd

    name = work.type
    labels = with_memory(ranks, work, shapes, GRADIENTS, 0)
    kept = reversed(shapes if labels else [])
    tensors = [torch.full(shape, float(ranks.rank + 1)) for shape in kept]
    buckets = Buckets(tensors if any("buckets" in label for label in labels) else [])

    def ours() -> None:
        handles = [
            hvd.allreduce_async_(tensor, name=f"{name}.{index}", op=hvd.Sum)
            for index, tensor in enumerate(tensors)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    def in_one_group() -> None:
        group = hvd.grouped_allreduce_async_(tensors, name=f"{name}.group", op=hvd.Sum)
        hvd.synchronize(group)

    all_contestants = {
        "ours": ours,
        "ours, in one group": in_one_group,
        "Gloo one by one": lambda: one_by_one(tensors),
        "Gloo in buckets": buckets.reduce_with_copies,
        "Gloo in buckets, no copies": buckets.reduce,
    }
    contestants = {label: all_contestants[label] for label in labels}
    reset = Reset(tensors, buckets.flat, ranks)
    return Task(work, float_bytes(shapes), contestants, reset.check(contestants))


class Reset:
    """Sets all tensors to zero after the check of the first call. Otherwise repeated sums would
    overflow."""

    def __init__(self, tensors: list[Any], flat: list[Any], ranks: Ranks) -> None:
        self.tensors, self.flat, self.ranks = tensors, flat, ranks

    def fill(self, value: float) -> None:
        for tensor in [*self.tensors, *self.flat]:
            tensor.fill_(value)

    def check(self, contestants: dict[str, Callable[[], None]]) -> Callable[[str], bool]:
        total = self.ranks.size * (self.ranks.size + 1) / 2

        def is_correct(name: str) -> bool:
            self.fill(self.ranks.rank + 1)
            contestants[name]()
            looked_at = self.flat if name.endswith("no copies") else self.tensors
            correct = all(bool((tensor == total).all()) for tensor in looked_at)
            self.fill(0)
            return correct

        return is_correct


def one_by_one(tensors: list[Any]) -> None:
    import torch.distributed as gloo

    works = [gloo.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()


class Buckets:
    """The buckets of DistributedDataParallel, without its bookkeeping."""

    def __init__(self, tensors: list[Any]) -> None:
        import torch

        self.buckets: list[list[Any]] = [[]]
        held, limit = 0, FIRST_BUCKET_BYTES
        for tensor in tensors:
            if held >= limit:
                self.buckets.append([])
                held, limit = 0, BUCKET_BYTES
            self.buckets[-1].append(tensor)
            held += tensor.numel() * 4
        self.flat = [torch.zeros(sum(t.numel() for t in bucket)) for bucket in self.buckets]
        self.views = [
            [
                view.view_as(tensor)
                for view, tensor in zip(
                    flat.split([t.numel() for t in bucket]), bucket, strict=True
                )
            ]
            for flat, bucket in zip(self.flat, self.buckets, strict=True)
        ]

    def reduce(self) -> None:
        one_by_one(self.flat)

    def reduce_with_copies(self) -> None:
        import torch
        import torch.distributed as gloo

        works = []
        for flat, views, bucket in zip(self.flat, self.views, self.buckets, strict=True):
            torch._foreach_copy_(views, bucket)
            works.append(gloo.all_reduce(flat, async_op=True))
        for work, views, bucket in zip(works, self.views, self.buckets, strict=True):
            work.wait()
            torch._foreach_copy_(bucket, views)


def backward(ranks: Ranks, work: Work, shapes: list[Shape]) -> Task:
    """Returns the task that averages the gradients of a backward pass. It has as many contestants
    as fit into memory."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    labels = with_memory(ranks, work, shapes, BACKWARD, 1)  # one copy: the parameters
    parameters = [torch.zeros(shape) for shape in (shapes if labels else [])]
    models = {label: model_of(parameters) for label in labels}
    wrapped: dict[str, Any] = dict(models)
    for label in labels:
        if "DDP" in label:
            wrapped[label] = DistributedDataParallel(
                models[label],
                process_group=None if is_peer(label) else ranks.group_of_ours(),
                gradient_as_bucket_view=label.endswith("views"),
            )
    optimizers = {label: optimizer_of(model) for label, model in models.items()}
    for label, groups in (("ours", None), ("ours, in 8 groups", GROUPS)):
        if label in labels:
            optimizers[label] = distributed(optimizers[label], models[label], groups)

    def step(label: str) -> None:
        optimizers[label].zero_grad()
        (wrapped[label]() * (ranks.rank + 1)).backward()
        optimizers[label].step()  # does nothing

    def is_correct(label: str) -> bool:
        average = (ranks.rank + 1) if label == BOUND else (ranks.size + 1) / 2
        return all(bool((p.grad == average).all()) for p in models[label].parameters())

    def contestant(label: str) -> Callable[[], None]:
        return lambda: step(label)

    return Task(
        work, float_bytes(shapes), {label: contestant(label) for label in models}, is_correct
    )


def model_of(parameters: list[Any]) -> Any:
    """A module whose backward pass does little except write ones as gradients."""
    import torch

    class Touch(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, parameter: Any) -> Any:
            context.shape = parameter.shape
            return parameter.new_zeros(())

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient.expand(context.shape)

    def touch(weight: Any) -> Any:
        """Reading a small tensor is faster than a Python call in the backward pass."""
        return weight.sum() if weight.numel() <= SMALL else Touch.apply(weight)

    class Touched(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = [torch.nn.Parameter(parameter) for parameter in parameters]
            self.weights = torch.nn.ParameterList(made)

        def forward(self) -> Any:
            return torch.stack([touch(weight) for weight in self.weights]).sum()

    return Touched()


def optimizer_of(model: Any) -> Any:
    import torch

    class Still(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            pass

    return Still(model.parameters(), 1.0)


def distributed(optimizer: Any, model: Any, groups: int | None) -> Any:
    import horovod.torch as hvd

    prefix = f"{groups}_groups" if groups else "each"
    named = [(f"{prefix}.{name}", parameter) for name, parameter in model.named_parameters()]
    return hvd.DistributedOptimizer(optimizer, named_parameters=named, groups=groups)


def with_memory(
    ranks: Ranks, work: Work, shapes: list[Shape], copies: dict[str, int], shared: int
) -> list[str]:
    """Returns the selected contestants that fit into memory beside `shared` copies. Reports the
    others as missing."""
    entering = [label for label in copies if ranks.has(label)]
    labels, held = [], shared
    for label in entering:
        held += copies[label]
        if fits(ranks, shapes, held):
            labels.append(label)
    together.leave_out(ranks, work, set(entering) - set(labels), "not enough memory")
    return labels


def fits(ranks: Ranks, shapes: list[Shape], copies: int) -> bool:
    """Returns whether this number of copies per rank is well below the free memory."""
    with open("/proc/meminfo") as meminfo:
        free = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable"))
    enough = float_bytes(shapes) * copies * ranks.size < SHARE_OF_MEMORY * free * 1024
    return ranks.greatest([not enough])[0] == 0


KINDS = {"gradients": gradients, "backward": backward}


def works(np: int, networks: list[str]) -> list[Work]:
    return [Work("torch", kind, name, np) for name in networks for kind in KINDS]


def work(arguments: Any) -> None:
    ranks = Ranks(arguments.worker, arguments.peers)
    for work in works(ranks.size, arguments.networks):
        task = KINDS[work.kind](ranks, work, NETWORKS[work.type]())
        together.compete(ranks, task, arguments.rounds, arguments.seconds)
        del task  # frees its memory before the next task reads how much is free
    ranks.end()


def main() -> int:
    parser = options.parser(__doc__, [2, 4], None, ["gloo", "ddp"])
    parser.add_argument(
        "--networks", **options.listed(options.one_of(NETWORKS)), default=list(NETWORKS)
    )
    arguments = together.parse_worker(parser)
    if arguments.worker:
        work(arguments)
        return 0
    bench = Bench(
        "step",
        together.script_path(__file__),
        lambda np: works(np, arguments.networks),
        ["--networks", *arguments.networks],
    )
    return together.main(bench, arguments)


if __name__ == "__main__":
    sys.exit(main())

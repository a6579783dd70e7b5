"""The sections of the benchmark report, ordered by their relevance to a training script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.results import Document

TRAINING, BLOCKING, LAUNCHER = "training", "blocking", "launcher"


@dataclass(frozen=True)
class Section:
    path: str  #: the path that the figures measure, see the report
    title: str
    text: str  #: explanation above the tables


SECTIONS = {
    "step": Section(
        TRAINING,
        "Gradients of a step, from torch",
        "`gradients`: tensors that already exist, from the first call to the last result. "
        "`backward`: a backward pass that only writes gradients, with `DistributedOptimizer`, "
        "compared with `DistributedDataParallel` on Gloo, and on the backend `hvd`. The bound is "
        "this pass without any reduction.",
    ),
    "train": Section(
        TRAINING,
        "Training to the same loss",
        "A small network on Fashion-MNIST; all contestants take the same steps.",
    ),
    "distributed": Section(
        TRAINING,
        "Collectives of torch.distributed",
        "The same functions by the backend `hvd` and by Gloo, blocking and with `async_op`. The "
        "size is the larger buffer of a rank.",
    ),
    "trainers": Section(
        TRAINING,
        "Trainers of PyTorch",
        "A step of 21 layers by Lightning, Accelerate and Transformers over the backend `hvd` and "
        'over Gloo, and by Lightning\'s `strategy="horovod"`. A round is a job.',
    ),
    "with_jax": Section(
        TRAINING,
        "Allreduce in compiled programs of JAX",
        "A call of a program compiled by `jax.jit` that sums an array over all ranks, up to its "
        "result, compared with mpi4jax on Open MPI and with JAX's own processes on Gloo.",
    ),
    "overhead": Section(
        TRAINING,
        "Overhead",
        "np 1: a step of a very small network (16 layers, 34 tensors), with and without our "
        "optimizer around the user's. np 2: one allreduce of 4 bytes from torch, and only the call "
        "of its asynchronous form. TensorFlow: an allreduce of 16 floats as an op, compared with "
        "`tf.numpy_function`, which calls Python and sends nothing. Memory is the memory of a rank "
        "without the user's tensors and torch. It is compared only with its target.",
    ),
    "allreduce": Section(
        BLOCKING,
        "Allreduce, float32",
        "The sum, in place, by a blocking call from C++ on a group: `hvd_group_run`, "
        "`MPI_Allreduce` and the like.",
    ),
    "half": Section(
        BLOCKING,
        "Allreduce, float16 and bfloat16",
        "Like float32. Peers that do not support the type have no line. `ours, float32` moves the "
        "same number of bytes as float32.",
    ),
    "collectives": Section(
        BLOCKING,
        "Allgather, broadcast, alltoall, reducescatter",
        "The size is the larger buffer of a rank. The ranks take turns as the root of a broadcast.",
    ),
    "net": Section(
        BLOCKING,
        "Between hosts",
        "Network namespaces, each connected to a switch at the given rate in both directions. The "
        "bound is the time of one plain connection over the same link: at most 95.6 % of the rate, "
        "because a packet of 1514 bytes carries 1448 bytes.",
    ),
    "encrypt": Section(
        BLOCKING,
        "Encrypted connections",
        "An allreduce over TCP on loopback, with `--encrypt` and without, where ciphers share the "
        "cores with everything else.",
    ),
    "start": Section(
        LAUNCHER,
        "Start-up",
        "From the start of the command to its end. Several hosts are network namespaces, which all "
        "launchers enter by the same replacement for ssh. torchrun is started on all of them at "
        "once. Memory is the peak resident memory while ranks write faster than it is read.",
    ),
    "faults": Section(
        LAUNCHER,
        "Faults",
        "From a fault of a rank to the error on the slowest of the others, all of which name it; "
        "in an elastic job, to the next commit of the slowest survivor; np 4. A round is one "
        "trial. Silent ranks are given up after `HOROVOD_HEARTBEAT_SECONDS`. Two hosts are network "
        "namespaces. A thread that holds Python's lock is no fault, since progress needs no "
        "Python: the others wait.",
    ),
    "recovery": Section(
        LAUNCHER,
        "Elastic jobs",
        "A small network in torch, with a commit after each step. The first time is that of the "
        "slowest survivor. The start of the replacement includes its imports, which compete with "
        "the survivors for the cores. Two hosts are network namespaces. A round is one trial. A "
        "step of 50 ms is mostly sleep: a stall is compared with it, and jobs that run in turn "
        "show the cost of being elastic while nothing fails. A state of 256 MiB in torch is sent "
        "to a rank that replaces a killed one, and copied there; the bound is one plain connection "
        "over the same link.",
    ),
}

#: Keys of the goals in the README.
HEADLINES = (
    "step-backward-ResNet-50-best",
    "step-backward-BERT-large-best",
    "step-backward-1000-x-1-KiB-best",
    "train",
    "4-bytes-result",
    "allreduce-mean",
    "tcp-allreduce-mean",
    "collectives-mean",
)

#: Benches whose tables are in the report, since the overview omits them: they have no peer.
WHOLE = ("encrypt", "faults", "recovery")

#: The pictures of the report: bench, first transport of the picture, kind and type.
SHOWN = frozenset(
    {
        ("step", "torch", "backward", "BERT-large"),
        ("allreduce", "shm", "allreduce", "float32"),
        ("allreduce", "tcp", "allreduce", "float32"),
    }
)


def of_bench(bench: str, found: Sequence[Document]) -> list[Document]:
    return [document for document in found if document.bench == bench]

"""Measures the memory of a rank beyond the user's tensors: beside_tensors.py shm|tcp|gloo ROUND

core: the increase by importing and starting the library, in a process that has imported torch.
staging: the further increase by a few allreduces of 64 MiB, including the rank's share of the
memory that ranks map in common. The result is the maximum over all ranks.
"""

import json
import sys

import torch

ALLREDUCED_BYTES = 64 << 20
ALLREDUCES = 5


def resident() -> int:
    """Returns the bytes of private pages of the process, including tensors."""
    with open("/proc/self/status") as status:
        words = [line.split() for line in status]
    return sum(int(word[1]) * 1024 for word in words if word[0] in ("RssAnon:", "RssFile:"))


def in_common() -> int:
    """Returns the bytes of shared memory that are mapped, by the address ranges in `maps`."""
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[0].split("-") for line in maps if "memfd:" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)


def main() -> None:
    how, number = sys.argv[1], int(sys.argv[2])
    tensor = torch.zeros(ALLREDUCED_BYTES // 4)
    most = torch.zeros(2, dtype=torch.float64)
    before = resident()
    if how == "gloo":
        import torch.distributed as library

        library.init_process_group("gloo")
        rank, size = library.get_rank(), library.get_world_size()
    else:
        import horovod.torch as hvd

        hvd.init()
        rank, size = hvd.rank(), hvd.size()

    def allreduce(which: torch.Tensor, largest: bool) -> None:
        if how == "gloo":
            library.all_reduce(which, library.ReduceOp.MAX if largest else library.ReduceOp.SUM)
        else:
            hvd.allreduce_(which, op=hvd.Max if largest else hvd.Sum, name=f"{largest}")

    started = resident()
    for _ in range(ALLREDUCES):
        allreduce(tensor, largest=False)
    most[0] = started - before
    most[1] = resident() - started + in_common() // size
    allreduce(most, largest=True)
    for what, used in zip(("core", "staging"), most.tolist(), strict=True):
        row = {"peer": "Gloo" if how == "gloo" else "ours", "round": number, "bytes": 0}
        row |= {"transport": "tcp" if how == "gloo" else how, "kind": "memory", "type": what}
        row |= {"np": size, "median_us": used, "min_us": used}
        if rank == 0:
            print(json.dumps(row), flush=True)
    if how == "gloo":
        library.destroy_process_group()
    else:
        hvd.shutdown()


if __name__ == "__main__":
    main()

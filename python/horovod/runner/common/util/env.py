"""Reads the rank of a process from its environment."""

from __future__ import annotations

import os

_BY_LAUNCHER = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """Returns this process's rank and the number of ranks, as its launcher set them; else (0,
    1)."""
    for rank, size in _BY_LAUNCHER:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1

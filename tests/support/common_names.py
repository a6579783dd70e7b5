"""The names that the packages of all frameworks offer, with their signatures."""

from __future__ import annotations

NUMBERS = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}
FUNCTIONS = {
    "init": "comm=None, process_sets=None",
    "start_timeline": "file_path, mark_cycles=False",
    **dict.fromkeys(
        (
            "shutdown",
            "is_initialized",
            "stop_timeline",
            "size",
            "local_size",
            "cross_size",
            "rank",
            "local_rank",
            "cross_rank",
            "is_homogeneous",
            "mpi_threads_supported",
            "mpi_enabled",
            "mpi_built",
            "gloo_enabled",
            "gloo_built",
            "nccl_built",
            "ddl_built",
            "ccl_built",
            "cuda_built",
            "rocm_built",
        ),
        "",
    ),
    "ProcessSet": "ranks_or_comm",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}
NAMES = {*NUMBERS, *FUNCTIONS, "global_process_set"}

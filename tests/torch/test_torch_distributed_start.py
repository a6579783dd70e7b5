"""How scripts of torch.distributed start and end with the backend "hvd", without importing it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import needs_job, on_ranks, run_job, tell
from torch.distributed import distributed_c10d
from torch_versions import has_torch, needs_torch

#: torch finds the backend without an import from then on.
FINDS_BACKENDS = "2.5"
LONG = timedelta(minutes=30)


def unchanged_script() -> None:
    import_of_ours = "horovod.torch" in sys.modules
    if not has_torch(FINDS_BACKENDS):
        import horovod.torch  # noqa: F401
    dist.init_process_group("hvd")
    rank = dist.get_rank()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    tell([import_of_ours, *(os.environ[name] for name in names)])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    for _ in range(2):  # in the second step, DDP builds its buckets again
        model(torch.ones(1, 2)).sum().backward()
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="monitored_barrier: rank 1 has not called"):
            dist.group.WORLD.monitored_barrier(timedelta(seconds=0.01))
    dist.barrier()
    if rank == 1:
        time.sleep(0.3)
        os._exit(3)
    try:
        dist.recv(torch.ones(1), 1)
    except dist.DistBackendError as error:
        tell(str(error))
    lose_rank_one(model)


def lose_rank_one(model: torch.nn.Module) -> None:
    loss = model(torch.ones(1, 2)).sum()
    try:
        loss.backward()
    except RuntimeError as error:
        tell([type(error).__name__, str(error)])
    try:
        dist.all_reduce(torch.ones(2))
    except dist.DistBackendError as error:
        tell([type(error).__name__, str(error)])


@needs_job
def test_an_unchanged_script_runs_and_names_a_lost_rank() -> None:
    job = run_job(2, unchanged_script)
    (first, by_meeting, by_ddp, by_call), (second,) = job.told
    port = first.pop()
    assert port.isdigit() and second.pop() == port
    assert first == [False, "0", "2", "0", "2", "127.0.0.1"]
    assert second == [False, "1", "2", "1", "2", "127.0.0.1"]
    assert "rank 1 is lost" in by_meeting
    assert "rank 1 is lost" in by_ddp[1], by_ddp
    assert by_call[0] == "DistributedError"
    assert "rank 1 is lost" in by_call[1]


@pytest.mark.parametrize(
    ("of_rank", "of_size"),
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ],
)
def test_a_launcher_counts_if_its_ranks_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, of_rank: str, of_size: str
) -> None:
    from horovod.torch.distributed import _launch

    for name in ("HOROVOD_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert _launch.launcher(1, 2) is None
    monkeypatch.setenv(of_rank, "1")
    monkeypatch.setenv(of_size, "2")
    assert _launch.launcher(1, 2) == of_rank
    assert _launch.launcher(0, 2) is None and _launch.launcher(1, 4) is None


def test_ranks_use_a_launcher_only_if_all_of_them_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod.torch.distributed import _launch

    store = dist.HashStore()  # of several jobs, one after the other
    for seen, outcome in (
        (["PMI_RANK", None, "PMI_RANK"], None),
        (["PMI_RANK", "PMI_RANK", "PMI_RANK"], "PMI_RANK"),
        (["HOROVOD_RANK", "PMI_RANK", "PMI_RANK"], None),
        ([None, None, None], None),
    ):
        monkeypatch.setattr(_launch, "launcher", lambda rank, size, seen=seen: seen[rank])
        with ThreadPoolExecutor(3) as threads:
            outcomes = threads.map(
                lambda rank: _launch.launcher_of_all(store, rank, 3, LONG), range(3)
            )
            assert list(outcomes) == [outcome] * 3


def test_a_rank_that_does_not_start_is_named() -> None:
    from horovod.torch.distributed import _launch

    store = dist.HashStore()
    said = "ranks 1, 2 have not called init_process_group within "
    with pytest.raises(dist.DistBackendError, match=f"rank 0: {said}0.2 s, its timeout"):
        _launch.launcher_of_all(store, 0, 3, timedelta(seconds=0.2))
    with pytest.raises(dist.DistBackendError, match=f"rank 1: {said}"):  # it comes too late
        _launch.launcher_of_all(store, 1, 3, LONG)


def test_time_in_which_the_process_was_suspended_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from horovod.torch.distributed._deadline import Deadline

    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadline = Deadline(30)
    for now, is_over in ((109.0, False), (3709.0, False), (3718.0, False), (3730.0, True)):
        assert deadline.is_over() == is_over, now


def spawned(rank: int, store: str) -> None:
    if not has_torch(FINDS_BACKENDS):
        import horovod.torch  # noqa: F401
    if rank == 0:  # it alone seems to have been started by a launcher, with this rank
        os.environ.update(SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2")
    dist.init_process_group("hvd", init_method=f"file://{store}", rank=rank, world_size=2)
    tensor = torch.tensor([float(rank + 1)])
    dist.all_reduce(tensor)
    assert tensor.item() == 3.0
    dist.destroy_process_group()
    import horovod.torch as hvd

    assert not hvd.is_initialized()
    begin_again_with_the_same_store(rank, dist.FileStore(f"{store}.kept", 2))


def begin_again_with_the_same_store(rank: int, store: dist.Store) -> None:
    world = begun(rank, store)
    world.monitored_barrier()
    sent = dist.isend(torch.ones(2), 1 - rank)
    dist.irecv(torch.empty(2), 1 - rank).get_future().wait()
    sent.wait()
    dist.destroy_process_group()
    deadline = time.monotonic() + 60
    while any(each.name.startswith("horovod-") for each in threading.enumerate()):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
    world = begun(rank, store)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match=r"rank 1 has not called it after 0\.2 s"):
            world.monitored_barrier(timedelta(seconds=0.2))
    dist.barrier()
    if rank == 1:
        with pytest.raises(dist.DistBackendError, match="has given up: rank 1 has not called"):
            world.monitored_barrier()
    world.monitored_barrier()
    dist.destroy_process_group()
    end_by_a_timeout(rank, store)


def end_by_a_timeout(rank: int, store: dist.Store) -> None:
    """Of the world, set after its creation as scripts do it; the other rank calls nothing. Long
    enough for the call that both make."""
    from horovod.common._extension import core
    from horovod.common.exceptions import HorovodInternalError

    world = begun(rank, store)
    if has_torch("2.14"):
        with pytest.warns(FutureWarning, match="deprecated"):
            distributed_c10d._set_pg_timeout(timedelta(seconds=4), world)
    elif has_torch("2.3"):
        with pytest.warns(UserWarning, match="only supported for either nccl or gloo"):
            distributed_c10d._set_pg_timeout(timedelta(seconds=4), world)
    else:
        world.set_timeout(timedelta(seconds=4))
    late = torch.ones(1)
    dist.all_reduce(late)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match=r"(?s)4 s, its timeout.*not by rank 1"):
            dist.all_reduce(late)
    else:
        with pytest.raises(HorovodInternalError, match="rank 1 did not submit"):
            while True:
                core.check_running()
                time.sleep(0.01)
    with pytest.raises(dist.DistBackendError, match="rank 1 did not submit"):
        dist.all_reduce(late)


def begun(rank: int, store: dist.Store) -> Any:
    dist.init_process_group("hvd", store=store, rank=rank, world_size=2)
    return dist.group.WORLD


@needs_job
def test_processes_that_a_script_starts_find_each_other_by_the_store(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(spawned, args=(str(tmp_path / "store"),), nprocs=2)


@on_ranks(2, fresh=True)
def test_abort_ends_the_job_on_all_ranks() -> None:
    dist.init_process_group("hvd")
    dist.barrier()
    if dist.get_rank() == 0:
        dist.group.WORLD.abort()
    said = "this rank has ended the job" if dist.get_rank() == 0 else "rank 0"
    with pytest.raises(dist.DistBackendError, match=said):
        while True:
            dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


REGISTERED = """
import torch.distributed as dist
print("hvd" in dist.Backend.backend_list)
import horovod.torch
print("hvd" in dist.Backend.backend_list)
"""


@needs_job
def test_torch_can_be_told_not_to_load_the_backend() -> None:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", REGISTERED],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["False", "True"]


UNUSED = """
import sys, torch
import torch.distributed as dist
print(dist.is_backend_available("hvd"), "horovod" in sys.modules, bool(dist.Backend._plugins))
print(dist.Backend("hvd"), [*dist.Backend._plugins])
"""


@needs_torch(FINDS_BACKENDS, "a backend by its entry point")
@needs_job
def test_a_backend_that_is_not_used_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("raise RuntimeError('not this one')")
    ran = subprocess.run(
        [sys.executable, "-c", UNUSED], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.stdout.splitlines() == ["True False False", "hvd ['HVD']"], ran.stderr


REPLACED = """
import os, sys, tempfile
from datetime import timedelta
import torch
if "import" in sys.argv:
    import horovod.torch
from torch.distributed import get_backend, group, init_process_group, destroy_process_group
unnamed = () if "none" in sys.argv else ("Gloo",)
for names in (("gloo",), ("GLOO",), ("cpu:gloo",), unnamed, ("fake",)):
    with tempfile.TemporaryDirectory() as folder:
        place = {"init_method": f"file://{folder}/store", "rank": 0, "world_size": 1}
        if names == ("fake",):
            import torch.testing._internal.distributed.fake_pg
            del place["init_method"]
            place["store"] = torch.testing._internal.distributed.fake_pg.FakeStore()
        init_process_group(*names, timeout=timedelta(seconds=50), **place)
        print(get_backend(), type(group.WORLD).__name__)
        destroy_process_group()
"""


@needs_job
@pytest.mark.parametrize("value", ["1", "0", ""])
def test_a_variable_replaces_gloo_in_scripts_that_are_not_changed(value: str) -> None:
    imported = [] if has_torch(FINDS_BACKENDS) else ["import"]
    # Older torch, without a name, looks for GPUs even where there are none.
    unnamed = ["none"] if has_torch("2.6") or value == "1" else []
    ran = subprocess.run(
        [sys.executable, "-c", REPLACED, *imported, *unnamed],
        env={**os.environ, "HOROVOD_REPLACE_GLOO": value},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    *asked, other = ran.stdout.splitlines()
    ours = ["hvd ProcessGroupHorovod"] * 4
    assert other.startswith("fake ")
    assert (asked == ours) if value == "1" else not {*asked} & {*ours}

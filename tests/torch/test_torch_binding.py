"""What the binding does by itself: names, handles, gradients. Against the double."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core_double import Double
from requirements_met import unmet

import horovod.torch as hvd
from horovod.common import _gpus, basics, exceptions, process_sets, util
from horovod.torch import _submission, mpi_ops

Begin = Callable[[int], Double]


def test_importing_horovod_imports_no_framework() -> None:
    program = (
        "import sys, horovod, horovod.common.util, horovod.common.exceptions;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'tensorflow', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_package_asks_for_nothing_that_does_not_fit_beside_this_torch() -> None:
    assert unmet() == []


def test_without_torch_the_import_error_says_what_to_do() -> None:
    program = (
        "import sys, types; sys.modules['torch'] = None\n"
        "try:\n import horovod.torch\nexcept ImportError as error:\n print(error)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install torch" in told.stdout


def test_s1_everything_raises_before_init_except_asking_for_it(double: Begin) -> None:
    double(1)
    hvd.shutdown()
    assert hvd.is_initialized() is False
    hvd.shutdown()  # nothing to do
    tensor = torch.ones(2)
    for call in (
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.local_size,
        hvd.cross_rank,
        hvd.cross_size,
        hvd.is_homogeneous,
        hvd.mpi_threads_supported,
        hvd.barrier,
        hvd.global_process_set.size,
        lambda: hvd.allreduce(tensor),
        lambda: hvd.allreduce_async_(tensor),
        lambda: hvd.allgather(tensor),
        lambda: hvd.broadcast(tensor, 0),
        lambda: hvd.grouped_allgather([tensor]),
        lambda: hvd.alltoall(tensor),
        lambda: hvd.reducescatter(tensor),
        lambda: hvd.grouped_reducescatter([tensor]),
        lambda: hvd.sparse_allreduce_async(tensor.to_sparse(), "s", hvd.Sum),
        hvd.join,
        lambda: hvd.broadcast_object(1),
        lambda: hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(tensor)], lr=1)),
    ):
        with pytest.raises(ValueError, match=r"hvd\.init\(\)"):
            call()


def test_s3_names_are_built_by_the_rule(double: Begin) -> None:
    core = double(2)
    tensor = torch.ones(2)
    hvd.allreduce(tensor, name="a")
    hvd.allreduce(tensor)
    hvd.grouped_allreduce([tensor, tensor], name="g")
    hvd.allgather(tensor, name="b")
    hvd.broadcast(tensor, 0)
    hvd.grouped_allgather([tensor], name="g")
    hvd.alltoall(tensor, name="a")
    hvd.reducescatter(tensor)
    hvd.grouped_reducescatter([tensor], name="g")
    hvd.sparse_allreduce_async(tensor.to_sparse(), "s", hvd.Sum)()
    hvd.barrier()
    hvd.join()
    assert core.names() == [
        "allreduce.a",
        "allreduce.noname.0",
        "grouped_allreduce.g",
        "allgather.b",
        "broadcast.noname.1",
        "grouped_allgather.g",
        "alltoall.a",
        "reducescatter.noname.2",
        "grouped_reducescatter.g",
        "allgather.s.values",
        "allgather.s.indices",
        "barrier.noname",
        "join.noname",
    ]


def test_s3_unnamed_operations_count_from_0_in_every_job_and_handles_go_on(double: Begin) -> None:
    core = double(2)
    first = hvd.allreduce_async(torch.ones(1))
    hvd.shutdown()
    hvd.init()
    second = hvd.allreduce_async(torch.ones(1))
    assert core.names() == ["allreduce.noname.0", "allreduce.noname.0"]
    assert second > first
    assert hvd.synchronize(first) is None
    assert hvd.synchronize(second) is not None


def test_s3_unnamed_operations_count_from_0_in_a_job_that_another_framework_has_begun(
    double: Begin,
) -> None:
    core = double(2)
    keras = basics.HorovodBasics(__file__)
    hvd.allreduce_async(torch.ones(1))
    keras.shutdown()
    keras.init()
    hvd.allreduce_async(torch.ones(1))
    assert core.names() == ["allreduce.noname.0"] * 2


def test_a_handle_is_an_int_that_can_be_used_once(double: Begin) -> None:
    double(2)
    handle = hvd.allreduce_async(torch.ones(1), op=hvd.Sum)
    assert isinstance(handle, int)
    assert hvd.poll(handle) is False
    assert hvd.synchronize(handle) == torch.tensor([2.0])
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(10**9) is None
    assert hvd.poll(handle) is True


def test_a_dropped_handle_frees_what_it_held(double: Begin) -> None:
    core = double(2)
    tensor = torch.ones(1)
    hvd.allreduce_async(tensor)
    gc.collect()
    assert not core.pending
    assert not _submission._pending


def test_the_runtime_is_given_what_keeps_the_memory_alive(double: Begin) -> None:
    core = double(2)
    tensor = torch.ones(3)
    alive = weakref.ref(tensor)
    hvd.allreduce_async_(tensor)
    del tensor
    gc.collect()
    assert alive() is not None
    core.log.clear()
    gc.collect()
    assert alive() is None


def test_s2_a_failed_operation_raises_once_and_is_forgotten(double: Begin) -> None:
    core = double(2)
    core.error = exceptions.HorovodMismatchError("ranks disagree")
    handle = hvd.allreduce_async(torch.ones(1), name="x")
    with pytest.raises(ValueError, match="disagree") as caught:
        hvd.synchronize(handle)
    assert isinstance(caught.value, hvd.HorovodInternalError)
    assert hvd.synchronize(handle) is None
    core.error = None
    assert hvd.allreduce(torch.ones(1), name="x") == 1


def test_autograd_learns_that_a_tensor_was_changed_in_place(double: Begin) -> None:
    double(2)
    x = torch.ones(2, requires_grad=True)
    y = x * 1
    z = y * y
    hvd.allreduce_(y.detach(), op=hvd.Sum)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with torch.inference_mode():
        assert hvd.allreduce_(torch.ones(1), op=hvd.Sum) == 2


def test_s6_factors_reach_the_runtime(double: Begin) -> None:
    core = double(2)
    hvd.allreduce(torch.ones(1), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    operation = core.log[-1]
    assert (operation.op, operation.prescale, operation.postscale) == (hvd.Sum, 0.5, 3.0)


def test_s6_gradients_follow_the_operations(double: Begin) -> None:
    core = double(3)

    def gradient(operation: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        operation(x).sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    assert gradient(lambda x: hvd.allreduce(x, op=hvd.Sum)) == [3.0, 3.0]
    assert gradient(lambda x: hvd.allreduce(x, op=hvd.Average)) == [1.0, 1.0]
    assert gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5)) == [1.5, 1.5]
    assert gradient(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)[1]) == [6.0, 6.0]
    assert gradient(lambda x: 5 * hvd.allgather(x)) == [5.0, 5.0]
    assert gradient(lambda x: hvd.broadcast(x, 0)) == [1.0, 1.0]
    assert gradient(lambda x: hvd.broadcast(x, 1)) == [0.0, 0.0]
    core.names()
    gradient(lambda x: hvd.allreduce(x, name="loss"))
    assert core.names() == ["allreduce.loss", "allreduce.loss.gradient"]


def test_s6_the_gradient_of_reducescatter_is_gathered(double: Begin) -> None:
    core = double(2)
    x = torch.ones(2, requires_grad=True)
    hvd.reducescatter(x, name="r", op=hvd.Sum).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
    assert core.names() == ["reducescatter.r", "grouped_allgather.r.gradient"]


def test_s3_a_refused_operation_without_a_name_does_not_count(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = double(2)
    hvd.allreduce(torch.ones(1))
    accepted = core.submit_tensors

    def refuse(*arguments: Any) -> int:
        raise ValueError("the splits do not fit")

    for turn in range(2):
        monkeypatch.setattr(basics.core, "submit_tensors", refuse)
        for x in (torch.ones(2), torch.ones(2, requires_grad=True)):
            with pytest.raises(ValueError, match="splits"):
                hvd.alltoall(x, [9, 9])
        monkeypatch.setattr(basics.core, "submit_tensors", accepted)
        hvd.allreduce(torch.ones(1))
        assert core.names()[-1] == f"allreduce.noname.{turn + 1}"


def test_s3_operations_without_a_name_go_on_from_elsewhere_after_a_join(double: Begin) -> None:
    core = double(2)
    hvd.allreduce(torch.ones(1))
    hvd.join()
    hvd.allreduce(torch.ones(1))
    hvd.allreduce(torch.ones(1))
    before, _, first, second = core.names()
    numbers = [int(name.rpartition(".")[2]) for name in (before, first, second)]
    assert numbers[0] == 0 and numbers[1] > 2**31 and numbers[2] == numbers[1] + 1


def test_s6_objects_travel_as_a_size_and_a_payload(double: Begin) -> None:
    core = double(2)
    for thing in (None, "", {"a": [1, 2.5]}, lambda x: x + 1):
        assert hvd.broadcast_object(thing, 0, name="o") is thing
    assert core.names()[:2] == ["broadcast.o.sz", "broadcast.o.t"]
    assert hvd.allgather_object({"a": None}, name="o") == [{"a": None}, {"a": None}]
    assert sorted(core.names()) == ["allgather.o.sz", "allgather.o.t"]


def test_s1_a_runtime_that_cannot_start_is_a_value_error(
    double: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    double(2)
    hvd.shutdown()

    def fail(*job: object) -> None:
        raise hvd.HorovodInternalError("rank 1 did not come")

    monkeypatch.setattr(basics.core, "init", fail)
    with pytest.raises(ValueError, match=r"could not be initialised: rank 1 did not come.*log"):
        hvd.init()


def test_what_was_built_is_told(double: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    double(1)
    for code in (22703, 0):
        monkeypatch.setattr(_gpus, "ask_once", lambda code=code: _gpus.GpuReport(nccl_code=code))
        assert hvd.nccl_built() == code
    assert hvd.gloo_built() and hvd.gloo_enabled()
    for answer in (hvd.mpi_enabled, hvd.ddl_built, hvd.ccl_built):
        assert answer() is False
    assert hvd.mpi_built() in (False, True)  # as it was installed
    assert hvd.cuda_built() is True and hvd.rocm_built() is False
    assert mpi_ops.is_homogeneous() is True
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()


def test_the_global_process_set_is_everyone(double: Begin) -> None:
    double(3)
    everyone = hvd.global_process_set
    assert (everyone.process_set_id, everyone.ranks) == (0, [0, 1, 2])
    assert (everyone.size(), everyone.rank(), everyone.included()) == (3, 0, True)
    assert repr(everyone) == "ProcessSet(process_set_id=0, ranks=[0, 1, 2], mpi_comm=None)"
    assert hvd.remove_process_set(everyone) is False


def test_an_mpi_communicator_is_recognised_by_its_package() -> None:
    comm = type("Intracomm", (), {"__module__": "mpi4py.MPI"})()
    assert process_sets.ProcessSet(comm).mpi_comm is comm


def test_exceptions_carry_what_their_handlers_need() -> None:
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True
    error = exceptions.HorovodVersionMismatchError("torch", "2.1", "1.0")
    assert (error.name, error.version, error.installed_version) == ("torch", "2.1", "1.0")
    assert isinstance(error, ImportError)
    for word in ("torch", "2.1", "1.0", "reinstall"):
        assert word in str(error)


def test_small_helpers() -> None:
    assert [util.num_rank_is_power_2(n) for n in (0, 1, 2, 3, 4, 6, 8)] == [
        *(False, True, True, False, True, False, True)
    ]
    assert util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]]
    assert util.is_iterable([]) and not util.is_iterable(3)
    assert util.is_version_greater_equal_than("2.10.0+cpu", "2.9.1")
    assert util.is_version_greater_equal_than("2.1", "2.1.0")
    assert not util.is_version_greater_equal_than("2.0.9", "2.1.0")
    for version, target in ((2, "2.1.0"), ("2.1.0", "2.1"), ("2.1.0", None)):
        with pytest.raises(ValueError, match=r"string|x\.y\.z"):
            util.is_version_greater_equal_than(version, target)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match=r"nothing\..*HOROVOD_WITH_X=1"):
        util.check_extension("x", "HOROVOD_WITH_X", __file__, "nothing")
    usual = ("horovod.torch", "HOROVOD_WITH_PYTORCH", hvd.__file__)
    for name in ("mpi_lib", "mpi_lib_v2"):
        util.check_extension(*usual, name)
    for where, name in ((hvd.__file__, "nothing"), (__file__, "mpi_lib_v2")):
        with pytest.raises(ImportError, match=name):
            util.check_extension(*usual[:2], where, name)
    with pytest.warns(UserWarning, match="installed"):
        util.check_installed_version("torch", "0.1")
    with pytest.raises(exceptions.HorovodVersionMismatchError):
        util.check_installed_version("torch", "0.1", ImportError("symbol not found"))
    util.check_installed_version("torch", torch.__version__)


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("HVD_TEST_A", "before")
    monkeypatch.delenv("HVD_TEST_B", raising=False)
    with pytest.raises(KeyError), util.env(HVD_TEST_A=None, HVD_TEST_B="x"):
        assert "HVD_TEST_A" not in os.environ and os.environ["HVD_TEST_B"] == "x"
        raise KeyError
    assert os.environ["HVD_TEST_A"] == "before" and "HVD_TEST_B" not in os.environ

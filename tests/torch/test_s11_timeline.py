"""The timeline (S11): a trace a rank, valid while it is written, of what each tensor waits for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import needs_job, run_alone, tell

import horovod.torch as hvd
from horovod import _core

pytestmark = needs_job

Trace = list[dict[str, Any]]


def folder() -> Path:
    """On a rank: where the test wants the traces."""
    return Path(os.environ["TRACES"])


def own(name: str) -> Path:
    """On a rank: the file that it writes when the script says `name`."""
    return folder() / (name if hvd.rank() == 0 else f"{name}.rank{hvd.rank()}")


def read(path: Path) -> Trace:
    """The trace in a file to which a job may be writing."""
    try:
        return json.loads(path.read_bytes())
    except json.JSONDecodeError:  # the reads met a write: not one moment, but two
        return json.loads(path.read_bytes())


def names(trace: Trace) -> dict[int, str]:
    """What the processes of a trace are called."""
    announced = [event for event in trace if event["name"] == "process_name" and event["pid"] > 0]
    return {event["pid"]: event["args"]["name"] for event in announced}


def story(trace: Trace, name: str) -> list[str]:
    """What happened to a tensor, as "B QUEUE"; checks the order of times."""
    pids = [pid for pid, found in names(trace).items() if found == name]
    assert len(pids) == 1, f"{name} is announced as {pids}"
    events = [event for event in trace if event.get("pid") == pids[0] and event["ph"] != "M"]
    times = [event["ts"] for event in events]
    assert times == sorted(times) and all(isinstance(time, int) for time in times)
    return [f"{event['ph']} {event['name']}" for event in events]


def operation(rank: int, kind: str, *activities: str) -> list[str]:
    """The story of one operation."""
    inner = [f"{phase} {activity}" for activity in ("QUEUE", *activities) for phase in "BE"]
    agreement = [f"B NEGOTIATE_{kind}", f"X {rank}", f"E NEGOTIATE_{kind}"]
    return [*agreement, f"B {kind}", *inner, f"E {kind}"]


def ends(trace: Trace, kind: str) -> Iterator[dict[str, str]]:
    """What the ends of operations of a kind say."""
    for event in trace:
        if event["ph"] == "E" and event["name"] == kind:
            yield event["args"]


def cycles(trace: Trace) -> Trace:
    return [event for event in trace if event["name"] == "CYCLE_START"]


def one_of_each() -> None:
    hvd.init()
    rank = hvd.rank()
    hvd.allreduce(torch.ones(4, 2), name="sum")
    hvd.allgather(torch.ones(rank + 1, 2, dtype=torch.int64), name="rows")
    hvd.broadcast(torch.ones(3), root_rank=0, name="root")
    hvd.grouped_allreduce([torch.ones(2), torch.ones(5)], name="pair")
    hvd.alltoall(torch.ones(3), splits=[1, 2], name="parts")
    hvd.reducescatter(torch.ones(4), name="share")
    hvd.allreduce(torch.ones(3), op=hvd.Adasum, name="delta")
    hvd.send(torch.ones(3), 1) if rank == 0 else hvd.recv(torch.ones(3), 0)
    hvd.join()
    hvd.shutdown()
    tell(sorted(path.name for path in folder().iterdir()))


def test_s11_every_rank_writes_a_trace_of_its_own(tmp_path: Path) -> None:
    """A name with the rank; processes, spans in order, shapes at the end; no cycle marks."""
    path = tmp_path / "trace.json"
    job = run_alone(2, one_of_each, TRACES=str(tmp_path), HOROVOD_TIMELINE=str(path))
    assert job.returncode == 0, job.output
    for rank, file in enumerate([path, tmp_path / "trace.rank1.json"]):
        assert file.read_text().startswith("[\n") and file.read_text().endswith("]")
        trace = json.loads(file.read_bytes())
        assert trace[0]["name"] == "process_name" and (trace[0]["ph"], trace[0]["pid"]) == ("M", 0)
        assert trace[0]["args"]["start_time_since_epoch_in_micros"] > 1.6e15
        assert sorted(names(trace)) == list(range(1, len(names(trace)) + 1))
        sorting = {event["pid"] for event in trace if event["name"] == "process_sort_index"}
        assert sorting == {0, *names(trace)}
        assert story(trace, "allreduce.sum") == operation(rank, "ALLREDUCE", "GLOO_ALLREDUCE")
        assert story(trace, "broadcast.root") == operation(rank, "BROADCAST", "GLOO_BCAST")
        gathering = ["WAIT_FOR_DATA", "ALLOCATE_OUTPUT", "GLOO_ALLGATHER"]
        assert story(trace, "allgather.rows") == operation(rank, "ALLGATHER", *gathering)
        moving = ["WAIT_FOR_DATA", "ALLOCATE_OUTPUT", "GLOO_ALLTOALL"]
        assert story(trace, "alltoall.parts") == operation(rank, "ALLTOALL", *moving)
        scattered = operation(rank, "REDUCESCATTER", "GLOO_REDUCESCATTER")
        assert story(trace, "reducescatter.share") == scattered
        combined = operation(rank, "ADASUM", "GLOO_ADASUM_ALLREDUCE")
        assert story(trace, "allreduce.delta") == combined
        sent = operation(rank, "MESSAGE", "GLOO_MESSAGE")
        assert story(trace, "message.0-1.0") == sent
        assert story(trace, "join")[:2] == ["B NEGOTIATE_JOIN", f"X {rank}"]
        assert list(ends(trace, "ALLGATHER")) == [{"dtype": "int64", "shape": f"[{rank + 1}, 2]"}]
        reduced = [{"dtype": "float32", "shape": shape} for shape in ("[4, 2]", "[2], [5]")]
        assert list(ends(trace, "ALLREDUCE")) == reduced
        assert not cycles(trace)
    assert sorted(os.listdir(tmp_path)) == ["trace.json", "trace.rank1.json"]


def read_while_working() -> None:
    hvd.init()
    for i in range(100):
        hvd.allreduce(torch.ones(10), name=f"tensor {i}")
        read(own("t"))
    while "allreduce.tensor 99" not in names(read(own("t"))).values():
        pass  # the watchdog ends what never comes
    tell("seen")
    hvd.shutdown()


def test_s11_the_trace_is_valid_and_current_while_the_job_runs(tmp_path: Path) -> None:
    timeline = str(tmp_path / "t")
    job = run_alone(2, read_while_working, TRACES=str(tmp_path), HOROVOD_TIMELINE=timeline)
    assert job.told == [["seen"], ["seen"]], job.output


def reduce_once() -> None:
    hvd.init()
    hvd.allreduce(torch.ones(10), name="x")
    hvd.shutdown()
    tell("done")


def test_s11_cycles_are_marked_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    job = run_alone(1, reduce_once, HOROVOD_TIMELINE=str(path), HOROVOD_TIMELINE_MARK_CYCLES="1")
    assert job.returncode == 0, job.output
    marks = cycles(json.loads(path.read_bytes()))
    assert marks and all(set(mark) == {"ph", "name", "ts", "s"} for mark in marks)
    assert all((mark["ph"], mark["s"]) == ("i", "g") for mark in marks)


def test_s11_a_trace_that_cannot_be_written_is_told_of_and_the_job_goes_on(tmp_path: Path) -> None:
    job = run_alone(1, reduce_once, HOROVOD_TIMELINE=str(tmp_path / "none" / "t.json"))
    assert job.told == [["done"]] and job.returncode == 0, job.output
    assert "none/t.json" in job.output and "No such file or directory" in job.output


def start_and_stop() -> None:
    with pytest.raises(ValueError, match=r"init"):
        hvd.start_timeline("x")
    with pytest.raises(ValueError, match=r"init"):
        hvd.stop_timeline()
    hvd.init()
    hvd.stop_timeline()  # there is none: does nothing
    hvd.allreduce(torch.ones(1), name="before")
    assert not list(folder().iterdir())
    hvd.barrier()  # everybody has looked

    hvd.start_timeline(str(folder() / "one"))
    hvd.allreduce(torch.ones(1), name="first")
    with pytest.raises(ValueError, match=r"none/two.*: No such file or directory"):
        hvd.start_timeline(folder() / "none/two")
    hvd.start_timeline(folder() / "two", mark_cycles=True)
    hvd.allreduce(torch.ones(1), name="second")
    hvd.stop_timeline()
    hvd.allreduce(torch.ones(1), name="after")
    hvd.stop_timeline()

    one, two = (json.loads(own(name).read_bytes()) for name in ("one", "two"))
    assert set(names(one).values()) == {"allreduce.first"} and not cycles(one)
    assert set(names(two).values()) == {"allreduce.second"} and cycles(two)
    hvd.start_timeline(folder() / "one")  # anew
    assert not names(read(own("one")))
    hvd.shutdown()
    tell("done")


def test_s11_a_script_may_start_stop_and_start_again_with_another_file(tmp_path: Path) -> None:
    job = run_alone(2, start_and_stop, TRACES=str(tmp_path), HOROVOD_TIMELINE="DYNAMIC")
    assert job.told == [["done"], ["done"]], job.output


def start_without_asking() -> None:
    hvd.init()
    with pytest.raises(ValueError, match=r"HOROVOD_TIMELINE was set at init, to DYNAMIC"):
        hvd.start_timeline("never.json")
    hvd.stop_timeline()
    tell(os.path.exists("never.json"))
    hvd.shutdown()


def test_s11_a_job_without_a_timeline_cannot_start_one() -> None:
    job = run_alone(1, start_without_asking)
    assert job.told == [[False]], job.output


def disagree() -> None:
    hvd.init()
    with pytest.raises(ValueError, match=r"shape"):
        hvd.allreduce(torch.ones(2 + hvd.rank()), name="x")
    hvd.allreduce(torch.ones(3), name="y")
    tell(_core.counters())
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"init"):
        _core.counters()


def test_s11_an_operation_that_fails_ends_with_its_agreement(tmp_path: Path) -> None:
    """The counters distinguish it from other operations. All are listed in docs/counters.md."""
    path = tmp_path / "trace.json"
    job = run_alone(2, disagree, HOROVOD_TIMELINE=str(path))
    assert job.returncode == 0, job.output
    listed = (Path(__file__).parents[2] / "docs" / "counters.md").read_text()
    for [counted] in job.told:
        assert counted["failed_operations"] == 1
        assert counted["operations.allreduce"] == 1 and counted["bytes.allreduce"] == 12
        assert {name for name in counted if f"`{name.split('.')[0]}" not in listed} == set()
    told = story(json.loads(path.read_bytes()), "allreduce.x")
    assert told == ["B NEGOTIATE_ALLREDUCE", "X 0", "E NEGOTIATE_ALLREDUCE"]


def die() -> None:
    hvd.init()
    hvd.allreduce(torch.ones(2), name="x")
    if hvd.rank() == 1:
        mine = folder() / "trace.rank1.json"
        while not list(ends(read(mine), "ALLREDUCE")):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(2), name="never")


def test_s11_the_trace_of_a_rank_that_is_killed_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    run_alone(2, die, TRACES=str(tmp_path), HOROVOD_TIMELINE=str(path))
    for rank, file in enumerate([path, tmp_path / "trace.rank1.json"]):
        trace = json.loads(file.read_bytes())
        assert story(trace, "allreduce.x") == operation(rank, "ALLREDUCE", "GLOO_ALLREDUCE")


def fork_while_tracing() -> None:
    hvd.init()
    hvd.allreduce(torch.ones(1), name="before")
    child = os.fork()
    if child == 0:
        try:
            hvd.start_timeline(folder() / "child.json")
        except ValueError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    hvd.allreduce(torch.ones(1), name="after")
    hvd.shutdown()
    tell("done")


def test_s11_a_forked_child_leaves_the_trace_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    job = run_alone(1, fork_while_tracing, TRACES=str(tmp_path), HOROVOD_TIMELINE=str(path))
    assert job.told == [["done"]], job.output
    found = names(json.loads(path.read_bytes())).values()
    assert list(found) == ["allreduce.before", "allreduce.after"]
    assert os.listdir(tmp_path) == ["trace.json"]

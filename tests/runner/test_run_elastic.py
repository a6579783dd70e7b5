"""Elastic jobs of horovod.run: what is left after a loss returns the results."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("horovod._core")

import horovod
from horovod.runner import RankFailed
from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript


def train(victim: int, least: int) -> tuple[int, int]:
    """Ends when there are `least` ranks that have waited for each other. Returns rank and size."""
    import signal

    from horovod import _core
    from horovod.common import elastic_job
    from horovod.common.exceptions import HorovodInternalError

    def wait_for_all() -> None:
        operation = _core.Operation(_core.BARRIER)
        _core.wait(_core.submit_tensors(operation, "all", [], None, None))

    def restart() -> None:
        _core.shutdown()
        elastic_job.next_generation()
        _core.init()

    _core.init()
    elastic_job.adopt_place()
    if (elastic_job.generation(), _core.world().rank) == (0, victim):
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        try:
            while _core.world().size < least:
                time.sleep(0.01)
                if elastic_job.pending_update() is not None:
                    restart()
            wait_for_all()
            return _core.world().rank, _core.world().size
        except HorovodInternalError:
            restart()


@pytest.mark.parametrize("victim", [0, 1])
def test_the_ranks_that_are_left_return_their_results(victim: int) -> None:
    found = horovod.run(train, (victim, 2), num_proc=3, min_num_proc=2, reset_limit=1)
    assert found == [(0, 2), (1, 2)]


def test_a_job_starts_with_its_least_number_of_processes() -> None:
    assert horovod.run(train, (-1, 2), min_num_proc=2) == [(0, 2), (1, 2)]


def test_hosts_of_a_discovery_object_are_used_when_they_appear() -> None:
    class Growing(HostDiscovery):
        calls = 0

        def find_available_hosts_and_slots(self) -> dict[str, int]:
            self.calls += 1
            return {"localhost": 1 if self.calls == 1 else 2}

    discovery = Growing()
    found = horovod.run(
        train, (-1, 2), num_proc=1, min_num_proc=1, max_num_proc=2, host_discovery_script=discovery
    )
    assert found == [(0, 2)]
    assert discovery.calls > 1


@pytest.mark.parametrize(("printed", "slots"), [("localhost", 2), ("localhost:2", 1)])
def test_slots_are_of_hosts_that_a_script_prints_without_a_number(
    tmp_path: Path, printed: str, slots: int
) -> None:
    script = tmp_path / "hosts.sh"
    script.write_text(f"#!/bin/sh\necho {printed}\n")
    script.chmod(0o755)
    found = horovod.run(
        train, (-1, 1), num_proc=2, min_num_proc=1, slots=slots, host_discovery_script=str(script)
    )
    assert found == [(0, 2)]


def test_a_host_is_used_again_after_the_pause_of_the_cooldown_range(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its random part is cut off by the second number."""

    def noted() -> tuple[int, int]:
        (tmp_path / str(os.getpid())).write_text(str(time.monotonic()))
        return train(1, 2)

    flags = {"num_proc": 2, "min_num_proc": 1, "cooldown_range": (1, 1)}
    assert horovod.run(noted, **flags) == [(0, 2)]
    began = sorted(float(path.read_text()) for path in tmp_path.iterdir())
    assert len(began) == 3 and began[2] - began[1] >= 1
    dropped = "no more workers are started on localhost for 1 s: 1 worker failed or left there"
    assert f"horovodrun: {dropped}" in capfd.readouterr().err.splitlines()


def test_an_exception_that_ends_the_job_keeps_its_type() -> None:
    def fail() -> None:
        if os.environ.get("HOROVOD_RANK") != "0":
            raise KeyError("not there")
        time.sleep(60)

    with pytest.raises(RankFailed, match="KeyError: 'not there'") as caught:
        horovod.run(fail, num_proc=2, min_num_proc=2)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_discovery_object_that_fails_at_the_start_is_an_error() -> None:
    class Broken(HostDiscovery):
        def find_available_hosts_and_slots(self) -> dict[str, int]:
            raise OSError("no cluster")

    with pytest.raises(OSError, match="no cluster"):
        horovod.run(train, (-1, 1), host_discovery_script=Broken())


@pytest.mark.parametrize("error", [OSError("no cluster"), SystemExit(3)])
def test_a_discovery_object_that_fails_later_is_warned_of(error: BaseException) -> None:
    class Failing(HostDiscovery):
        calls = 0

        def find_available_hosts_and_slots(self) -> dict[str, int]:
            self.calls += 1
            if self.calls > 1:
                raise error
            return {"localhost": 1}

    said = f"the hosts stay as they are: {type(error).__name__}"
    with pytest.warns(RuntimeWarning, match=said):
        assert horovod.run(lambda: time.sleep(3), host_discovery_script=Failing()) == [None]


@pytest.mark.parametrize("found", [["node1"], {"node1": "2"}, {1: 2}, {"node1": -1}])
def test_what_is_not_a_dict_of_slots_is_refused(found: Any) -> None:
    class Odd(HostDiscovery):
        def find_available_hosts_and_slots(self) -> Any:
            return found

    with pytest.raises((TypeError, ValueError), match="find_available_hosts_and_slots"):
        horovod.run(train, (-1, 1), host_discovery_script=Odd())


def test_fixed_hosts_can_be_replaced() -> None:
    hosts = FixedHosts({"node1": 2})
    hosts.set({"node2": 4})
    assert hosts.find_available_hosts_and_slots() == {"node2": 4}


def test_a_script_prints_hosts_with_and_without_slots(tmp_path: Path) -> None:
    script = tmp_path / "hosts.sh"
    script.write_text("#!/bin/sh\nprintf 'node1:2\\n\\n node2\\n[fd00::1]:3\\n'\n")
    script.chmod(0o755)
    found = HostDiscoveryScript(str(script), 4).find_available_hosts_and_slots()
    assert found == {"node1": 2, "node2": 4, "[fd00::1]": 3}
    script.write_text("#!/bin/sh\necho node1:two\n")
    with pytest.raises(ValueError, match="printed 'node1:two'"):
        HostDiscoveryScript(str(script)).find_available_hosts_and_slots()
    script.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    with pytest.raises(RuntimeError, match="exited with code 3: broken"):
        HostDiscoveryScript(str(script)).find_available_hosts_and_slots()

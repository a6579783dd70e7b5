"""An elastic job of horovod.run on two hosts, of which the caller's HostDiscovery removes one."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from cluster import Cluster, address
from launcher import ended

pytest.importorskip("horovod._core")

COUNT = 2  #: hosts
AFTER = 20  #: steps of the ranks that are left

# Ranks commit each step. When rank 0 has committed some, the discovery does not list a host any
# more. `steps`: of this process, `state.step`: of the job.
CALLER = """
import json, sys, time
from pathlib import Path

import horovod
from horovod.runner.elastic.discovery import HostDiscovery

listed, rest, after = map(json.loads, sys.argv[1:])
going = Path("going")

class Shrinking(HostDiscovery):
    def find_available_hosts_and_slots(self):
        return rest if going.exists() else listed

def train():
    from horovod.common._elastic_loop import run
    from horovod.common._objects import broadcast_object
    from horovod.common.elastic import ObjectState
    from horovod.common.exceptions import HorovodInternalError, HorovodShutdownError
    from horovod.common.front import init, rank, size

    steps, sizes = 0, []

    @run
    def rounds(state):
        nonlocal steps
        sizes.append(size())
        until = state.step + after
        while size() > 2 or state.step < until:
            state.step += 1
            steps += 1
            time.sleep(0.01)
            try:
                state.commit()
            except HorovodInternalError as error:
                print(f"lost: {error}", flush=True)
                raise
            if rank() == 0 and steps == 10:
                going.touch()

    init()
    first = rank()
    state = ObjectState(broadcast_object, rank, step=0)
    try:
        rounds(state)
    except HorovodShutdownError as error:
        print(f"left with {steps} of {state.step} steps: {error}", flush=True)
        raise
    return first, rank(), sizes, steps, state.step

found = horovod.run(train, num_proc=4, min_num_proc=2, host_discovery_script=Shrinking())
print("returned", json.dumps(found))
"""
LEFT = (
    r"left with (\d+) of (\d+) steps: this process leaves the job: its host or slot was removed "
    "from the job"
)


@pytest.mark.parametrize("removed", [1, 2])
def test_ranks_of_a_removed_host_leave_at_a_commit(
    cluster: Cluster, tmp_path: Path, removed: int
) -> None:
    """Host 1 has rank 0, and the caller. The others keep all steps."""
    listed = {address(host): 2 for host in cluster.hosts}
    rest = {host: slots for host, slots in listed.items() if host != address(removed)}
    (tmp_path / "caller.py").write_text(CALLER)
    words = ["caller.py", *map(json.dumps, (listed, rest, AFTER))]
    result = ended(cluster.start(*words, cwd=tmp_path, program=sys.executable))
    output = result.out + result.err
    assert result.code == 0, output
    left = {int(rank): steps for rank, *steps in re.findall(rf"\[(\d)\]<stdout>:{LEFT}", output)}
    gone, stayed = ([0, 1], [2, 3]) if removed == 1 else ([2, 3], [0, 1])
    assert sorted(left) == gone, output
    (total,) = {int(steps) for two in left.values() for steps in two}
    assert total >= 10
    _, _, returned = result.out.partition("returned ")
    expected = [
        [first, rank, [4, 2], total + AFTER, total + AFTER] for rank, first in enumerate(stayed)
    ]
    assert json.loads(returned) == expected
    assert "lost" not in output and "the job goes on without" not in output

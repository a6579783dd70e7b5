"""A stand-in for jsrun: `jsrun.py --erf_input FILE COMMAND...` starts the ranks of a rank file on
this machine, with the variables that jsrun sets and without PMIx. Refuses a file that jsrun would.
Ends with the first status that is not 0; who has not ended a while after that is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from start_all import wait_for

SETTINGS = {
    "overlapping_rs": {"allow", "warn", "error"},
    "cpu_index_using": {"logical", "physical"},
}
RANK = re.compile(
    r"rank: (\d+): \{ hostname: ([\w.-]+); cpu: \{(\d+)(?:-(\d+))?\} ; gpu: \* ; mem: \* \}"
)


@dataclass(frozen=True)
class ResourceSet:
    rank: int
    host: str
    cpus: range


def parse(text: str) -> list[ResourceSet]:
    """Parses settings, then one line per rank in order. Raises ValueError on other text."""
    found: list[ResourceSet] = []
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name in SETTINGS and not found:
            if value not in SETTINGS[name]:
                raise ValueError(f"{name} cannot be {value}")
            continue
        told = RANK.fullmatch(line)
        if told is None or int(told[1]) != len(found):
            raise ValueError(f"this is no line for rank {len(found)}: {line}")
        first, last = int(told[3]), int(told[4] or told[3])
        if last < first:
            raise ValueError(f"no CPU: {line}")
        found.append(ResourceSet(len(found), told[2], range(first, last + 1)))
    if not found:
        raise ValueError("no ranks")
    return found


def start(
    one: ResourceSet, ranks: list[ResourceSet], command: list[str]
) -> subprocess.Popen[bytes]:
    """Bound, as far as this machine has those CPUs."""
    beside = [other.rank for other in ranks if other.host == one.host]
    place = {
        "JSM_NAMESPACE_ID": "1",
        "JSM_NAMESPACE_RANK": str(one.rank),
        "JSM_NAMESPACE_SIZE": str(len(ranks)),
        "JSM_NAMESPACE_LOCAL_RANK": str(beside.index(one.rank)),
        "JSM_NAMESPACE_LOCAL_SIZE": str(len(beside)),
    }
    here = sorted(os.sched_getaffinity(0))
    cpus = [here[cpu] for cpu in one.cpus if cpu < len(here)]
    bound = ["taskset", "--cpu-list", ",".join(map(str, cpus))] if cpus else []
    return subprocess.Popen([*bound, *command], env={**os.environ, **place})


def main() -> int:
    if sys.argv[1] != "--erf_input":
        print(f"jsrun: unknown option {sys.argv[1]}", file=sys.stderr)
        return 1
    ranks = parse(Path(sys.argv[2]).read_text())
    return wait_for([start(one, ranks, sys.argv[3:]) for one in ranks])


if __name__ == "__main__":
    sys.exit(main())

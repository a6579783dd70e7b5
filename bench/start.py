"""How long a job takes that has nothing to do: horovodrun beside mpirun and torchrun.

    ./dev bench start [--np 2 8 32 64] [--hosts 1 3] [--rounds 9] [--json FILE]

From the command to its end: of `true`; of a program in C++ that starts its library and makes one
allreduce of 8 bytes; and of a Python script with torch that does so. With several hosts these are
network namespaces (needs root), which every launcher enters by the same stand-in for ssh, so that
what ssh itself takes is not in the numbers; torchrun, which has no launcher for hosts, is started
on all of them at once. Numbers of ranks that cannot be spread evenly are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness import hosted, namespaces, options, ours, peers, pictures, results
from harness.jobs import Ended, Launch, Missing, run
from harness.places import PEERS, PROGRAMS
from harness.results import Document, Row, Work
from harness.rounds import Contestant, run_rounds, tell
from harness.tables import report

LIMIT_S = 60
FIRST_CALL = ["--kind", "allreduce", "--sizes", "8", "--seconds", "0"]
TORCH = {"OMP_NUM_THREADS": "1"}
KINDS = ("true", "first allreduce", "first allreduce, torch")
RATE = "10gbit"
#: Processes that import torch at once: each takes seconds of a core and 300 MB.
MOST_OF_TORCH = 8
WITHOUT_MPI = ("oneccl", "gloo", "torch")


def entered(build: Path, hosts: int) -> list[peers.Peer]:
    """Us and the launchers of programs."""
    if hosts == 1:
        mine, others = peers.ours(build, "ours", "shm"), list(peers.SHARED_MEMORY)
    else:
        mine, others = over_hosts(build, hosts), hosted.all_peers(hosts)
    return [mine, *[peer for peer in others if peer.short not in WITHOUT_MPI]]


def over_hosts(build: Path, hosts: int) -> peers.Peer:
    """Us by horovodrun on the first host."""
    found = hosted.ours(build, "ours", hosts)

    def launcher(np: int) -> list[str]:
        slots = ",".join(f"{namespaces.address(host)}:{np // hosts}" for host in range(hosts))
        command = [ours.horovodrun(build), "-np", str(np), "-H", slots]
        return namespaces.inside(namespaces.name(0), command)

    def environment(np: int) -> dict[str, str]:
        return {"PATH": f"{stand_in_for_ssh()}:{os.environ['PATH']}"}

    return replace(found, launcher=launcher, env=environment)


def stand_in_for_ssh() -> Path:
    """A folder in which `ssh` enters a namespace."""
    link = PEERS / "entering" / "ssh"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(hosted.ENTER)
    return link.parent


def torchrun(np: int, hosts: int, command: Sequence[str]) -> Launch:
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(np // hosts)]
    if hosts == 1:
        return Launch([*words, *command], TORCH)
    of_node = "PET_NODE_RANK=$RANK PET_MASTER_ADDR=$MASTER_ADDR PET_MASTER_PORT=$MASTER_PORT"
    on_each = ["sh", "-c", f'{of_node} exec "$@"', "sh", *words, "--nnodes", str(hosts), *command]
    return Launch([*hosted.spawned(hosts)(hosts), *on_each], TORCH)


def jobs(build: Path, what: str, np: int, hosts: int) -> Mapping[str, Launch]:
    """By contestant."""
    if what == "first allreduce, torch":
        script = str(PROGRAMS / "first_allreduce.py")
        mine = ours.python_job(build, np, script, ["ours"])
        return {
            "ours": replace(mine, env={**mine.env, **TORCH}),
            "torchrun, Gloo": torchrun(np, hosts, [script, "gloo"]),
        }
    found = {}
    for peer in entered(build, hosts):
        command = ["true"] if what == "true" else [str(peer.prepare()), *FIRST_CALL]
        found[peer.name] = Launch([*peer.launcher(np), *command], peer.env(np))
    if what == "true":
        found["torchrun"] = torchrun(np, hosts, ["--no-python", "true"])
    return found


def works(np: Sequence[int], hosts: int) -> list[Work]:
    place = "one host" if hosts == 1 else f"{hosts} hosts"
    even = [ranks for ranks in np if ranks % hosts == 0]
    return [
        Work(place, "start", what, ranks)
        for ranks in even
        for what in KINDS
        if "torch" not in what or (hosts == 1 and ranks <= MOST_OF_TORCH)
    ]


def timed(launch: Launch, work: Work) -> Ended:
    """One job as one row: the time of the whole of it."""
    ended = run(launch, LIMIT_S)
    if ended.code != 0:
        return replace(ended, rows=[])
    us = ended.seconds * 1e6
    row: Row = {**vars(work), "bytes": 0, "median_us": us, "min_us": us}
    return replace(ended, rows=[row])


def contestant(name: str, launch: Launch, work: Work) -> Contestant:
    return Contestant(name, lambda sizes: timed(launch, work), name == results.OURS)


def measure(work: Work, hosts: int, arguments: argparse.Namespace, found: Document) -> None:
    tell(str(work))
    contest = jobs(arguments.ours.resolve(), work.type, work.np, hosts)
    entered = [contestant(name, launch, work) for name, launch in contest.items()]
    outcome = run_rounds(entered, arguments.rounds)
    missing = [{**vars(work), "peer": name, "why": why} for name, why in outcome.missing.items()]
    rows = results.collapse(outcome)
    rows += results.of_before(options.document_before(arguments), rows)
    found.replace([work], rows, missing)
    if arguments.json:
        found.save(arguments.json)


def main() -> int:
    parser = options.parser(__doc__, [2, 8, 32, 64], None)
    parser.add_argument("--hosts", **options.listed(int), default=[1])
    arguments = options.parse(parser)
    found = results.document("start", arguments)
    measured = []
    for hosts in arguments.hosts:
        wired = namespaces.hosts(hosts, RATE) if hosts > 1 else contextlib.nullcontext()
        try:
            with wired:
                for work in works(arguments.np, hosts):
                    measure(work, hosts, arguments, found)
                    measured.append(work)
        except Missing as reason:
            print(f"missing: {hosts} hosts: {reason}")
    if arguments.plot:
        pictures.draw(found, measured, arguments.plot)
    print(report(found, measured))
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())

"""Compares the start-up time of horovodrun, mpirun and torchrun.

    ./dev bench start [--hosts 1 3] [--np 2 8 32 64] [--rounds 9] [--json FILE]

Measures the time from the start of the command to its end. Without --np: 2, 8, 32 and 64 ranks on
one host, 12 over three hosts.
`true`: a program that does nothing. `first allreduce`: a C++ program that starts its library and
runs one allreduce of 8 bytes. `first allreduce, torch`: a Python script that does this with torch.
Ranks that do not fit into memory are reported as missing, and above 8 ranks there are three rounds.
`memory`: the peak of horovodrun and of an agent while ranks write faster than their output is read.

Several hosts are network namespaces (needs root). All launchers enter them by the same replacement
of ssh, so the time of ssh itself is not included. torchrun cannot start remote processes, so it is
started on all hosts at the same time. Ranks that cannot be divided evenly are omitted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from harness import footprint, hosted, namespaces, options, ours, peers, pictures, results
from harness.jobs import Ended, Launch, Missing, run
from harness.places import PEERS, PROGRAMS, cores
from harness.results import MEMORY, TARGET, Document, Row, Work, limit
from harness.rounds import Contestant, run_rounds, tell
from harness.tables import report

NP = {1: [2, 8, 32, 64], 3: [12]}  #: default numbers of ranks, by number of hosts
EACH = 4  #: default number of ranks per host, for other numbers of hosts
LIMIT_S = 60
TORCH_LIMIT_S = 5  #: added per rank and core: twice the time of the import
FIRST_CALL = ["--kind", "allreduce", "--sizes", "8", "--seconds", "0"]
TORCH = {"OMP_NUM_THREADS": "1"}
KINDS = ("true", "first allreduce", "first allreduce, torch")
RATE = "10gbit"
MIB = 1 << 20
#: Private memory of a process that has imported torch.
TORCH_BYTES = 220 * MIB
#: With more ranks, the import of torch takes minutes, and rounds differ little.
FEW_OF_TORCH, ROUNDS_OF_MANY = 8, 3
MEMORY_ROUNDS = 3
MOST_BYTES = 20 * MIB  #: limit for a launcher or an agent
WITHOUT_MPI = ("oneccl", "gloo", "torch")
TORCHRUN = "torchrun"
NAMES = [*(name for name in peers.names("tcp") if name not in WITHOUT_MPI), TORCHRUN]


def entered(build: Path, hosts: int, asked: Collection[str] | None) -> list[peers.Peer]:
    """Returns ours and the launchers of the selected peers."""
    if hosts == 1:
        mine, others = peers.ours(build, "ours", "shm"), list(peers.SHARED_MEMORY)
    else:
        mine, others = over_hosts(build, hosts), hosted.all_peers(hosts)
    with_mpi = [peer for peer in others if peer.short not in WITHOUT_MPI]
    return [mine, *[peer for peer in with_mpi if options.is_asked_for(peer.short, asked)]]


def over_hosts(build: Path, hosts: int) -> peers.Peer:
    """Returns ours, started by horovodrun on the first host."""
    found = hosted.ours(build, "ours", hosts)

    def launcher(np: int) -> list[str]:
        slots = ",".join(f"{namespaces.address(host)}:{np // hosts}" for host in range(hosts))
        command = [ours.horovodrun(build), "-np", str(np), "-H", slots]
        return namespaces.inside(namespaces.name(0), command)

    def environment(np: int) -> dict[str, str]:
        return {"PATH": f"{stand_in_for_ssh()}:{os.environ['PATH']}"}

    return replace(found, launcher=launcher, env=environment)


def stand_in_for_ssh() -> Path:
    """Makes a folder in which `ssh` enters a namespace."""
    link = PEERS / "entering" / "ssh"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink() or os.readlink(link) != hosted.ENTER:  # jobs may be starting by it
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


Contest = tuple[dict[str, Launch], dict[str, str]]  #: by contestant; and reasons of missing ones


def jobs(build: Path, work: Work, hosts: int, asked: Collection[str] | None) -> Contest:
    if with_torch(work):
        found, absent = jobs_with_torch(build, work, hosts)
    else:
        found, absent = jobs_without(build, work, hosts, asked)
    if not options.is_asked_for(TORCHRUN, asked):
        found = {name: launch for name, launch in found.items() if not name.startswith(TORCHRUN)}
    return found, absent


def jobs_with_torch(build: Path, work: Work, hosts: int) -> Contest:
    script = str(PROGRAMS / "first_allreduce.py")
    mine = ours.python_job(build, work.np, script, ["ours"])
    if hosts > 1:
        over = over_hosts(build, hosts)
        command = [*over.launcher(work.np), sys.executable, script, "ours"]
        mine = Launch(command, {**mine.env, **over.env(work.np)})
    mine = replace(mine, env={**mine.env, **TORCH})
    return {"ours": mine, "torchrun, Gloo": torchrun(work.np, hosts, [script, "gloo"])}, {}


def jobs_without(build: Path, work: Work, hosts: int, asked: Collection[str] | None) -> Contest:
    found, absent = {}, {}
    for peer in entered(build, hosts, asked):
        try:
            program = str(peer.prepare())
        except Missing as why:
            absent[peer.name] = str(why)
            continue
        command = ["true"] if work.type == "true" else [program, *FIRST_CALL]
        found[peer.name] = Launch([*peer.launcher(work.np), *command], peer.env(work.np))
    if work.type == "true":
        found["torchrun"] = torchrun(work.np, hosts, ["--no-python", "true"])
    return found, absent


def place_of(hosts: int) -> str:
    return "one host" if hosts == 1 else f"{hosts} hosts"


def works(np: Sequence[int], hosts: int) -> list[Work]:
    even = [ranks for ranks in np if ranks % hosts == 0]
    return [Work(place_of(hosts), "start", what, ranks) for what in KINDS for ranks in even]


def with_torch(work: Work) -> bool:
    return work.type.endswith("torch")


def timed(launch: Launch, work: Work) -> Ended:
    """Runs one job. Returns one row with its total time."""
    longer = TORCH_LIMIT_S * work.np / cores() if with_torch(work) else 0
    ended = run(launch, LIMIT_S + longer)
    if ended.code != 0:
        return replace(ended, rows=[])
    us = ended.seconds * 1e6
    row: Row = {**vars(work), "bytes": 0, "median_us": us, "min_us": us}
    return replace(ended, rows=[row])


def contestant(name: str, launch: Launch, work: Work) -> Contestant:
    return Contestant(name, lambda sizes: timed(launch, work), name == results.OURS)


def lacks_memory(work: Work) -> str | None:
    """Returns the reason if the ranks of `work` do not fit into memory."""
    needed = work.np * TORCH_BYTES if with_torch(work) else 0
    lines = Path("/proc/meminfo").read_text().splitlines()
    (free_kib,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    if needed <= free_kib * 1024:
        return None
    return f"left out: {needed / 2**30:.0f} GiB are needed, {free_kib / MIB:.0f} are free"


def compete(work: Work, hosts: int, arguments: argparse.Namespace) -> tuple[list[Row], list[Row]]:
    """Returns the rows of all contestants, and the missing ones."""
    contest, absent = jobs(arguments.ours.resolve(), work, hosts, arguments.peers)
    if why := lacks_memory(work):
        return [], [{**vars(work), "peer": name, "why": why} for name in contest]
    many = with_torch(work) and work.np > FEW_OF_TORCH
    rounds = min(arguments.rounds, ROUNDS_OF_MANY) if many else arguments.rounds
    entered = [contestant(name, launch, work) for name, launch in contest.items()]
    outcome = run_rounds(entered, rounds)
    outcome.missing.update(absent)
    missing = [{**vars(work), "peer": name, "why": why} for name, why in outcome.missing.items()]
    rows = results.collapse(outcome)
    return rows + results.of_before(options.document_before(arguments), rows), missing


def memory(
    np: int, hosts: int, arguments: argparse.Namespace
) -> tuple[list[Work], list[Row], list[Row]]:
    """Measures the memory of horovodrun and an agent. Returns works, rows, and missing ones."""
    roles = [footprint.LAUNCHER] + ([footprint.AGENT] if hosts > 1 else [])
    found = {role: Work(place_of(hosts), MEMORY, role, np) for role in roles}
    mine = entered(arguments.ours.resolve(), hosts, arguments.peers)[0]
    launch = Launch([*mine.launcher(np), *footprint.writing(np)], mine.env(np))
    rounds = range(1, min(arguments.rounds, MEMORY_ROUNDS) + 1)
    try:
        held = {number: footprint.most_bytes(launch, LIMIT_S) for number in rounds}
    except Missing as why:
        lost = [{**vars(work), "peer": results.OURS, "why": str(why)} for work in found.values()]
        return list(found.values()), [], lost
    rows = []
    for role, work in found.items():
        each = {str(number): held[number].get(role, 0) for number in rounds}
        typical = {"median_us": statistics.median(each.values()), "min_us": min(each.values())}
        rows.append({"peer": results.OURS, **vars(work), "bytes": 0, **typical, "rounds": each})
        rows.append(limit(TARGET, work, 0, MOST_BYTES))
    return list(found.values()), rows, []


def in_order(row: Row) -> tuple[bool, int, str, int]:
    """Returns a sort key: one host before several, then by kind and by number of ranks."""
    place = row["transport"]
    kind = KINDS.index(row["type"]) if row["type"] in KINDS else len(KINDS)
    return place != "one host", kind, row["type"], row["np"]


def measure_on(hosts: int, arguments: argparse.Namespace, found: Document) -> list[Work]:
    """Measures everything that was requested for a number of hosts. Stores after each work."""
    np = arguments.np or NP.get(hosts, [EACH * hosts])

    def store(works: list[Work], rows: list[Row], missing: list[Row]) -> list[Work]:
        found.replace(works, rows, missing)
        found.rows.sort(key=in_order)
        if arguments.json:
            found.save(arguments.json)
        return works

    measured: list[Work] = []
    for work in works(np, hosts):
        tell(str(work))
        measured += store([work], *compete(work, hosts, arguments))
    for ranks in (ranks for ranks in np if ranks % hosts == 0):
        tell(f"memory, np {ranks}")
        measured += store(*memory(ranks, hosts, arguments))
    return measured


def main() -> int:
    parser = options.parser(__doc__, [], None, NAMES)
    parser.add_argument("--hosts", **options.listed(int), default=[1, 3])
    arguments = options.parse(parser)
    found = results.document("start", arguments)
    measured: list[Work] = []
    for hosts in arguments.hosts:
        wired = namespaces.hosts(hosts, RATE) if hosts > 1 else contextlib.nullcontext()
        try:
            with wired:
                measured += measure_on(hosts, arguments, found)
        except Missing as reason:
            print(f"missing: {hosts} hosts: {reason}")
    if arguments.plot:
        pictures.draw(found, [work for work in measured if work.kind != MEMORY], arguments.plot)
    print(report(found, measured))
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())

"""How long a job takes that has nothing to do: horovodrun beside mpirun and torchrun.

    ./dev bench start [--np 2 8] [--rounds 9] [--json FILE]

From the command to its end: of `true`; of a program in C++ that starts its library and makes one
allreduce of 8 bytes; and of a Python script with torch that does so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness import options, ours, peers, pictures, results
from harness.jobs import Ended, Launch, run
from harness.places import PROGRAMS
from harness.results import Row, Work
from harness.rounds import Contestant, run_rounds, tell
from harness.tables import report

LIMIT_S = 60
FIRST_CALL = ["--kind", "allreduce", "--sizes", "8", "--seconds", "0"]
TORCH = {"OMP_NUM_THREADS": "1"}


def launchers(build: Path, np: int) -> dict[str, tuple[peers.Peer, Sequence[str]]]:
    """Those of programs, each with what it is asked to start."""
    entered = [peers.ours(build, "ours", "shm"), *peers.SHARED_MEMORY]
    return {peer.name: (peer, peer.launcher(np)) for peer in entered if peer.short != "oneccl"}


def jobs(build: Path, what: str, np: int) -> Mapping[str, Launch]:
    """By contestant."""
    if what == "first allreduce, torch":
        script = str(PROGRAMS / "first_allreduce.py")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(np)]
        mine = ours.python_job(build, np, script, ["ours"])
        return {
            "ours": replace(mine, env={**mine.env, **TORCH}),
            "torchrun, Gloo": Launch([*torchrun, script, "gloo"], TORCH),
        }
    found = {}
    for name, (peer, launcher) in launchers(build, np).items():
        command = ["true"] if what == "true" else [str(peer.prepare()), *FIRST_CALL]
        found[name] = Launch([*launcher, *command], peer.env(np))
    if what == "true":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(np)]
        found["torchrun"] = Launch([*torchrun, "--no-python", "true"], TORCH)
    return found


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


def main() -> int:
    arguments = options.parse(options.parser(__doc__, [2, 8], None))
    build = arguments.ours.resolve()
    found = results.document("start", arguments)
    measured = []
    for np in arguments.np:
        for what in ("true", "first allreduce", "first allreduce, torch"):
            work = Work("one host", "start", what, np)
            tell(str(work))
            entered = [contestant(n, launch, work) for n, launch in jobs(build, what, np).items()]
            outcome = run_rounds(entered, arguments.rounds)
            missing = [{**vars(work), "peer": n, "why": why} for n, why in outcome.missing.items()]
            rows = results.collapse(outcome)
            rows += results.of_before(options.document_before(arguments), rows)
            found.replace([work], rows, missing)
            measured.append(work)
            if arguments.json:
                found.save(arguments.json)
    if arguments.plot:
        pictures.draw(found, measured, arguments.plot)
    print(report(found, measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())

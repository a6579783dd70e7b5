"""Blocking calls in C++: rounds of one program per peer, for each kind, type and number of
ranks."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

from harness import bounds, options, peers, pictures, placement, results
from harness.jobs import Ended, Missing, run
from harness.peers import Peer
from harness.results import OURS_FLOAT32, Row, Work
from harness.rounds import Contestant, Sizes, run_rounds, tell
from harness.tables import report


def contestants(arguments: argparse.Namespace, transport: str) -> list[Peer]:
    """Returns ours first, then the selected peers."""
    chosen = [
        peer
        for peer in peers.all_peers(transport)
        if options.is_asked_for(peer.short, arguments.peers)
    ]
    found = [peers.ours(arguments.ours.resolve(), results.OURS, transport), *chosen]
    if before := options.build_before(arguments):
        found.append(peers.ours(before, results.BEFORE, transport))
    return found


def measure(
    work: Work,
    entered: Sequence[Peer],
    bound: Callable[[], Contestant],
    arguments: argparse.Namespace,
) -> tuple[list[Row], list[Row]]:
    """Runs all rounds of one kind of work. Returns its rows and its gaps."""
    ready, absent = [], {}
    for peer in entered:
        try:
            tell(f"preparing {peer.name}")
            peer.prepare()
        except Missing as reason:
            absent[peer.name] = str(reason)
        else:
            always = not results.is_peer(peer.name)
            ready.append(Contestant(peer.name, job(peer, work, arguments), always))
            if peer.name == results.OURS and work.type != "float32":
                as_float32 = dataclasses.replace(work, type="float32")
                ready.append(Contestant(OURS_FLOAT32, job(peer, as_float32, arguments), True))
    try:
        ready.append(bound())
    except Missing as reason:
        absent[results.BOUND] = str(reason)
    cores = placement.here()
    outcome = run_rounds([cores.held(contestant) for contestant in ready], arguments.rounds)
    outcome.missing.update(absent)
    for row in outcome.rows:
        row |= {"transport": work.transport, "type": work.type}
    rows = results.collapse(outcome)
    return rows, [{**vars(work), "peer": peer, "why": why} for peer, why in outcome.missing.items()]


def job(peer: Peer, work: Work, arguments: argparse.Namespace) -> Callable[[Sizes | None], Ended]:
    def once(only: Sizes | None) -> Ended:
        sizes = [str(size) for size in arguments.sizes if only is None or size in only]
        words = ["--kind", work.kind, "--type", work.type, "--sizes", ",".join(sizes)]
        words += ["--seconds", str(arguments.seconds)]
        return run(peer.launch(work.np, words), arguments.limit)

    return once


def main(bench: str, works: Sequence[Work], arguments: argparse.Namespace) -> int:
    """Measures, prints, and writes the requested files; returns the exit code."""
    found = results.document(bench, arguments)
    gaps: list[Row] = []
    shown: list[Work] = []
    for work in works:
        bound = functools.partial(bounds.in_machine, work, arguments.sizes)
        named = work.on(arguments.machine)
        rows, missing = measure(named, contestants(arguments, work.transport), bound, arguments)
        rows += results.of_before(options.document_before(arguments), rows)
        found.replace([named], rows, missing, arguments.sizes)
        shown.append(named)
        gaps += missing
        if arguments.json:  # after every kind of work, so an interrupted run keeps its results
            found.save(arguments.json)
    if arguments.plot:
        pictures.draw(found, shown, arguments.plot)
    print(report(found, shown))
    return exit_code(gaps)


def exit_code(missing: Iterable[Row]) -> int:
    """Returns 1 if ours failed anywhere."""
    return int(any(row["peer"] == results.OURS for row in missing))

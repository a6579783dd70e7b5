"""docs/performance.md: a section a bench, with its tables, its gaps and its pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import goals, pictures, provenance, reasons, results
from harness.goals import Goal, Judged
from harness.places import ROOT
from harness.results import (
    MEMORY,
    OURS,
    Document,
    Row,
    Work,
    cell_text,
    is_peer,
    last_line,
    size_text,
    time_text,
    variants,
    verdicts,
)
from harness.tables import aligned, tables, works
from harness.verdict import BELOW, Verdict, digits, geometric_mean

SHORTFALLS = 40  #: that are listed one by one

#: Sections in their order: the bench, its title, and what is to be known before reading it.
SECTIONS = {
    "allreduce": (
        "Allreduce, float32",
        "In place, the sum, by a blocking call in C++ on a group: `hvd_group_run`, `MPI_Allreduce` "
        "and the like.",
    ),
    "half": (
        "Allreduce, float16 and bfloat16",
        "The same; peers without the type have no line. `ours, float32` is as many bytes of that.",
    ),
    "collectives": (
        "Allgather, broadcast, alltoall, reducescatter",
        "The size is that of the larger buffer of a rank. The ranks take turns as the root of a "
        "broadcast.",
    ),
    "net": (
        "Between hosts",
        "Network namespaces, each with a wire to a switch of the rate that is named, in both "
        "directions. The bound is what one plain connection does over the same wire: 95.6 % of the "
        "rate at most, since a packet of 1514 bytes carries 1448.",
    ),
    "step": (
        "The gradients of a step, from torch",
        "`gradients`: tensors that are there, from the first call to the last result. `backward`: "
        "a backward pass that only writes gradients, with `DistributedOptimizer`, beside "
        "`DistributedDataParallel`; the bound is this pass without any reduction.",
    ),
    "train": (
        "A training to the same loss",
        "A small network on Fashion-MNIST; both do the same steps.",
    ),
    "overhead": (
        "Overhead",
        "np 1: a step of a very small network with our optimizer around the user's, and without "
        "(16 layers, 34 tensors). np 2: one allreduce of 4 bytes from torch, and the call of its "
        "asynchronous form alone. TensorFlow: an allreduce of 16 floats as an op, beside "
        "`tf.numpy_function`, which calls Python and sends nothing. Memory is that of a rank "
        "beside the user's tensors and torch; it is compared with its target alone.",
    ),
    "start": (
        "Start-up",
        "From the command to its end. Several hosts are network namespaces, which all launchers "
        "enter by the same stand-in for ssh; torchrun is started on all of them at once. Memory is "
        "the most that was resident while ranks wrote more than was read.",
    ),
    "faults": (
        "Faults",
        "From `kill -9` of a rank in the middle of an allreduce to the error on the slowest "
        "survivor. A round is a trial.",
    ),
}

INTRODUCTION = """\
# Performance

Written by `./dev bench report` from the results of the benches; not edited by hand.

Every number is the median of calls whose time is that of the slowest rank. Peers run interleaved
with us: in each round every contestant runs once, in changing order; after three rounds only those
go on in a cell that are within 1.5 times the best peer there. The best peer of a cell
(bold) is chosen by the odd rounds; **best peer / ours** compares it with us by the even ones, and
is above 1 where we are faster. "-" is a gap: the peer cannot do this, or was not to be had; a gap
is never counted. **bound** is what the machine itself needs: in shared memory, a signal from one
core to another, and one read and one write of the buffer by its core, as a copy makes them; over
TCP, a message, and the bytes that a rank must send and receive whatever the algorithm, over one
plain connection. Ranks that share a core share its time. A look at what is possible, not a proof:
caches are kinder to some ([`bench/harness/bounds.py`](../bench/harness/bounds.py)).

How many cores the machines had stands [at the end](#where-and-how): on two, ranks of np 4 and 8
share them. Rows of `shm, 16 cores` are from a machine with a core for each rank, which was to be
had for minutes only: there are no other rows of it. Hosts are network namespaces of one machine.
Rows come from several days, some from different machines and from different revisions of this
project; at the head of each section stands which.

What runs on one host has a network of its own, where the benches run as root, in which no
connection is paced: the machines have BBR as their default, which holds peers up over loopback, and
Reno, which ours asks for there by itself, does not
([`bench/harness/loopback.py`](../bench/harness/loopback.py)). Rows without a revision are older
than that; of TCP on one host these are Gloo's of the start-up and the overhead alone. Gloo has no
shared memory, and is a peer over TCP alone.

A table says what a contestant takes by all of its rounds, and the ratio is of the even ones alone:
where rounds differ, it is not quite that of the two numbers above it. The best of several ways of
using ours is chosen as a peer is, too. What is measured again, since code has changed or with more
rounds where these differ, replaces what stood there, whatever comes out.

Ranks are bound to cores (but for Gloo's). Where there is one for each they spin as they can; where
ranks outnumber cores, those that follow each other share one, and peers yield by their own settings
([`bench/harness/peers.py`](../bench/harness/peers.py)), but for MPICH 4: as Debian builds it, it
has nothing to yield by, so that its ranks wait until the kernel takes turns, 8 to 40 ms for 8 B.
In rows from torch, and in those without a revision, ranks that outnumber cores were free; in the
others they are not, since that flatters ours: Intel MPI takes 6.2 us for 8 B in shared memory at np
4 then, and 3.4 to 5.9 bound.

The host of a virtual machine may move its cores. A run of blocking calls begins when a signal from
core to core takes less than 2.5 times as long as the quickest seen, and is repeated when it does
not at its end, within limits ([`bench/harness/placement.py`](../bench/harness/placement.py)).
"""


def documents(folder: Path) -> list[Document]:
    """In the order of the sections; those of one bench by their names."""
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stem)
    order = list(SECTIONS)
    return sorted(map(results.load, paths), key=lambda document: order.index(document.bench))


def write(found: Sequence[Document], path: Path) -> None:
    """The page, and its pictures in a folder beside it."""
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    parts = [INTRODUCTION, goals_table(found, path), overview(found)]
    parts += [shortfalls(found), reasons.shown(reasons.read())]
    parts += [section(bench, found, folder) for bench in SECTIONS]
    parts += [provenance.how(found, path)]
    path.write_text("\n".join(part for part in parts if part))


def of_bench(bench: str, found: Sequence[Document]) -> list[Document]:
    return [document for document in found if document.bench == bench]


def section(bench: str, found: Sequence[Document], folder: Path) -> str:
    mine = of_bench(bench, found)
    if not mine:
        return ""
    title, text = SECTIONS[bench]
    when = provenance.of_section(mine, provenance.places(found))
    parts = [f"## {title}\n", f"{text}\n", when]
    for document in mine:
        for group in grouped(works(document.rows)):
            parts += [made + "\n" for made in tables(document.rows, group)]
            parts += picture(bench, document, group, folder)
        parts += missing(document)
        parts += [f"{last_line(verdicts(document.rows))}.\n"]
    return "\n".join(parts)


def grouped(found: Sequence[Work]) -> list[list[Work]]:
    """What belongs into one picture: one transport, kind and type."""
    groups: dict[tuple[str, ...], list[Work]] = {}
    for work in found:
        groups.setdefault((work.transport, work.kind, work.type), []).append(work)
    several = any(len(group) > 1 for group in groups.values())
    return list(groups.values()) if several else [list(found)]


def picture(bench: str, document: Document, group: Sequence[Work], folder: Path) -> list[str]:
    """Curves over size, or bars where several have times at one."""
    group = [work for work in group if work.kind != MEMORY]
    if not any(is_peer(row["peer"]) for row in document.rows if Work.of(row) in group):
        return []
    first, where = group[0], " to ".join(ends([work.transport for work in group]))
    name = "-".join([bench, where, first.kind, first.type])
    file = folder / ("".join(c if c.isalnum() else "-" for c in name).replace("--", "-") + ".svg")
    pictures.draw(document, group, file)
    return [f"![{first.kind} {first.type}, {where}]({folder.name}/{file.name})\n"]


def ends(names: Sequence[str]) -> list[str]:
    """The first and the last of them, or the one that there is."""
    return list(dict.fromkeys([names[0], names[-1]]))


def missing(document: Document) -> list[str]:
    """One line for each reason of each peer."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in document.missing:
        where = f"{Work.of(row)}"
        reasons.setdefault((row["peer"], row["why"]), []).append(where)
    lines = [f"- {peer}: {why} ({'; '.join(at)})" for (peer, why), at in reasons.items()]
    return ["Missing:\n", *lines, ""] if lines else []


def overview(found: Sequence[Document]) -> str:
    """A line a work: how many cells, their mean, the worst; before them, one for all of a kind."""
    lines = [["what", "cells", "geometric mean", "worst", f"below {BELOW}"]]
    for bench in SECTIONS:
        rows = [row for document in of_bench(bench, found) for row in document.rows]
        for transport in dict.fromkeys(row["transport"] for row in rows):
            mine = [row for row in rows if row["transport"] == transport]
            where = "" if transport in ("torch", "one host") else f", {transport}"
            lines += lines_of(f"**{SECTIONS[bench][0]}**{where}", mine)
    return f"## Overview\n\nBest peer / ours.\n\n{aligned(lines)}\n"


def lines_of(title: str, rows: Sequence[Row]) -> list[list[str]]:
    everything = ratios_of(rows, OURS)
    several = len({work for work, _ in everything}) > 1
    lines = [[title, *summary(everything)]] if several else []
    for work in works(rows):
        mine = [row for row in rows if Work.of(row) == work]
        for ours in (OURS, *variants(mine)):
            if ratios := ratios_of(mine, ours):
                lines.append([f"{work}{ours.removeprefix(OURS)}", *summary(ratios)])
    return lines


def ratios_of(rows: Sequence[Row], ours: str) -> dict[tuple[Work, int], float]:
    judged = verdicts(rows, ours)
    return {cell: verdict.ratio for cell, verdict in judged.items() if verdict.ratio is not None}


def summary(ratios: Mapping[tuple[Work, int], float]) -> list[str]:
    worst = min(ratios, key=lambda cell: ratios[cell])
    several = len({work for work, _ in ratios}) > 1
    where = cell_text(*worst) if several else size_text(worst[1])
    where = f" ({where})" if len(ratios) > 1 else ""
    mean = f"{geometric_mean(ratios.values()):.2f}"
    below = sum(ratio < BELOW for ratio in ratios.values())
    shown = digits(ratios[worst])
    return [str(len(ratios)), mean, f"{shown}{where}", str(below) if below else ""]


def cells_below(found: Sequence[Document]) -> list[tuple[float, Work, int, Verdict]]:
    """The cells in which a peer is faster by more than a measurement can err, worst first."""
    cells = [
        (verdict.ratio, work, size, verdict)
        for document in found
        for (work, size), verdict in verdicts(document.rows).items()
        if verdict.ratio is not None and verdict.ratio < BELOW
    ]
    return sorted(cells, key=lambda cell: cell[0])


def shortfalls(found: Sequence[Document]) -> str:
    cells = cells_below(found)
    title = f"## Where a peer is ahead by more than 5 %\n\nCells below {BELOW}: {len(cells)}.\n"
    if not cells:
        return title
    lines = [["cell", "ours", "peer", "ratio"]]
    for ratio, work, size, verdict in cells[:SHORTFALLS]:
        best = f"{verdict.peer}, {time_text(verdict.best or 0)}"
        shown = digits(ratio)
        lines.append([cell_text(work, size), time_text(verdict.ours), best, shown])
    return f"{title}\n{aligned(lines)}\n"


def judged(found: Sequence[Document]) -> dict[Goal, Judged]:
    rows = {
        bench: [row for one in of_bench(bench, found) for row in one.rows] for bench in SECTIONS
    }
    return {goal: goals.judge(goal, rows) for goal in goals.GOALS}


def goals_table(found: Sequence[Document], page: Path) -> str:
    """All of them, those that no bench shows at the end."""
    known = judged(found)
    states = [one.state for one in known.values()]
    counts = [f"{states.count(state)} {state}" for state in goals.STATES if state in states]
    lines = [["what", "wanted", "is", ""]]
    lines += [[goal.what, one.wanted, one.shown, one.state] for goal, one in known.items()]
    folder = page.resolve().parent
    lines += [
        [what, "a test", f"[`{test}`]({os.path.relpath(ROOT / file, folder)})", "by a test"]
        for what, file, test in goals.TESTED
    ]
    how = "A goal is met when all that it names was measured and reaches it."
    text = f"{', '.join(counts)}. {how}"
    return f"## Goals\n\n{text}\n\n{aligned(lines)}\n"


def unexplained(found: Sequence[Document]) -> list[str]:
    """Missed goals and cells that fall short of which bench/reasons.md says nothing."""
    names = [goal.key for goal, one in judged(found).items() if one.state == goals.MISSED]
    names += [cell_text(work, size) for _, work, size, _ in cells_below(found)]
    return reasons.unexplained(reasons.read(), names)

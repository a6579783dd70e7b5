"""docs/performance.md: a section a bench, with its tables, its gaps and its pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import pictures, results
from harness.places import ROOT
from harness.results import (
    MEMORY,
    OURS,
    TARGET,
    Document,
    Row,
    Work,
    cell_text,
    is_peer,
    last_line,
    size_text,
    time_text,
    value_text,
    variants,
    verdicts,
)
from harness.tables import aligned, tables, works
from harness.verdict import geometric_mean

#: Written by hand: why cells fall short. Comes behind the list of these.
REASONS = ROOT / "bench" / "reasons.md"
BELOW = 0.95  #: a ratio below this is a cell that falls short
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
        "directions. The bound is what one plain connection does over the same wire.",
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
        "survivor.",
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

Where there is a core for each rank, ranks are bound to cores and spin; where ranks outnumber cores,
every peer yields, by its own settings ([`bench/harness/peers.py`](../bench/harness/peers.py)).
"""


def documents(folder: Path) -> list[Document]:
    """In the order of the sections; the newest where two are of one bench and one name."""
    found = [results.load(path) for path in sorted(folder.glob("*.json"))]
    order = list(SECTIONS)
    return sorted(found, key=lambda document: order.index(document.bench))


def write(found: Sequence[Document], path: Path) -> None:
    """The page, and its pictures in a folder beside it."""
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    sections = [section(bench, found, folder) for bench in SECTIONS]
    reasons = REASONS.read_text() if REASONS.is_file() else ""
    parts = [INTRODUCTION, overview(found), shortfalls(found), reasons, *sections, how(found)]
    path.write_text("\n".join(part for part in parts if part))


def of_bench(bench: str, found: Sequence[Document]) -> list[Document]:
    return [document for document in found if document.bench == bench]


def section(bench: str, found: Sequence[Document], folder: Path) -> str:
    mine = of_bench(bench, found)
    if not mine:
        return ""
    title, text = SECTIONS[bench]
    parts = [f"## {title}\n", f"{text}\n"]
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
    first = group[0]
    name = "-".join([bench, first.transport, first.kind, first.type])
    file = folder / ("".join(c if c.isalnum() else "-" for c in name).replace("--", "-") + ".svg")
    pictures.draw(document, group, file)
    return [f"![{first.kind} {first.type}, {first.transport}]({folder.name}/{file.name})\n"]


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
    return [str(len(ratios)), mean, f"{ratios[worst]:.2f}{where}", str(below) if below else ""]


def shortfalls(found: Sequence[Document]) -> str:
    """The cells in which a peer is faster by more than a measurement can err."""
    cells = [
        (verdict.ratio, work, size, verdict)
        for document in found
        for (work, size), verdict in verdicts(document.rows).items()
        if verdict.ratio is not None and verdict.ratio < BELOW
    ]
    title = f"## Where a peer is ahead\n\nCells below {BELOW}: {len(cells)}.\n"
    title += targets(found)
    if not cells:
        return title
    lines = [["cell", "ours", "peer", "ratio"]]
    for ratio, work, size, verdict in sorted(cells, key=lambda cell: cell[0])[:SHORTFALLS]:
        best = f"{verdict.peer}, {time_text(verdict.best or 0)}"
        lines.append([cell_text(work, size), time_text(verdict.ours), best, f"{ratio:.2f}"])
    return f"{title}\n{aligned(lines)}\n"


def targets(found: Sequence[Document]) -> str:
    """How we do where what is wanted is a number and not a peer's."""
    values: dict[tuple[Work, str], float] = {
        (Work.of(row), row["peer"]): row["median_us"] for document in found for row in document.rows
    }
    wanted = {work: value for (work, name), value in values.items() if name == TARGET}
    missed = [
        f"- {work}: {value_text(work, values[work, OURS])}, wanted {value_text(work, most)}"
        for work, most in wanted.items()
        if values.get((work, OURS), 0) > most
    ]
    text = f"\nTargets that are missed: {len(missed)} of {len(wanted)}.\n" if wanted else ""
    return text + ("\n" + "\n".join(missed) + "\n" if missed else "")


def how(found: Sequence[Document]) -> str:
    """Where and when, and the commands that measure it again."""
    machines: dict[str, list[str]] = {}
    for document in found:
        rounds = document.arguments.get("rounds")
        when = f"{document.bench} {document.date}" + (f", {rounds} rounds" if rounds else "")
        machines.setdefault(machine_text(document.machine), []).append(when)
    places = [f"{place}\n\n- " + "\n- ".join(when) for place, when in machines.items()]
    commands = [
        f"./dev bench {document.bench} {command}".strip()
        for document in found
        for command in document.arguments.get("commands", [""])
    ]
    listing = "\n".join([*dict.fromkeys(commands), "./dev bench report"])
    return "## Where and how\n\n" + "\n\n".join(places) + f"\n\n```\n{listing}\n```\n"


def machine_text(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    place = f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_GiB']} GiB"
    return f"{place}, Linux {facts['kernel']}; {versions}:"

"""Where and when the results were measured, and the commands that measure them again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from harness.places import RESULTS, ROOT
from harness.results import Document, Row, Work, size_text


def place_text(origin: Row) -> str:
    """Returns the machine without the list of installed software, which grows with each
    benchmark."""
    facts = origin["machine"]
    size = f"{facts['cores']} cores, {facts['memory_GiB']} GiB"
    return f"{facts['cpu']}, {size}, Linux {facts['kernel']}"


def origins(found: Sequence[Document]) -> list[Row]:
    return [origin for document in found for origin in document.origins]


def places(found: Sequence[Document]) -> list[str]:
    """Returns all machines, in the order of their numbers in the report."""
    return list(dict.fromkeys(place_text(origin) for origin in origins(found)))


def of_section(mine: Sequence[Document], machines: Sequence[str]) -> str:
    """Returns when the works of a section were measured: the most common run, and exceptions."""
    runs: dict[str, list[str]] = {}
    for document in mine:
        for origin in (one for one in document.origins if one["rounds"]):
            runs.setdefault(run_text(origin, machines), []).append(work_text(document, origin))
    if not runs:
        return ""
    usual, *others = sorted(runs, key=lambda run: -len(runs[run]))
    if not others:
        return f"Measured {usual}.\n"
    lines = [f"- {run}: {'; '.join(runs[run])}" for run in others]
    return f"Measured {usual}; but\n\n" + "\n".join(lines) + "\n"


def run_text(origin: Row, machines: Sequence[str]) -> str:
    count = origin["rounds"]
    rounds = f"{count} round{'s' if count > 1 else ''}"
    number = machines.index(place_text(origin)) + 1
    words = [origin["date"], rounds]
    words += [f"machine {number}"] if len(machines) > 1 else []
    words += [f"revision {origin['revision']}"] if origin.get("revision") else []
    return ", ".join(words)


def work_text(document: Document, origin: Row) -> str:
    """Returns the name of a work, with its sizes if other sizes were measured at another time."""
    work = Work.of(origin)
    if sum(Work.of(other) == work for other in document.origins) == 1:
        return str(work)
    return f"{work} ({', '.join(size_text(size) for size in origin['sizes'])})"


def where(found: Sequence[Document]) -> str:
    """Returns the list of machines, with their installed software and measurement dates."""
    lines = []
    for number, machine in enumerate(places(found), 1):
        mine = [
            (document.bench, origin)
            for document in found
            for origin in document.origins
            if place_text(origin) == machine and origin["rounds"]
        ]
        installed = f"Installed: {versions(found, machine)}."
        lines.append(f"- **Machine {number}**: {machine}. {measured_text(mine)} {installed}")
    return "\n".join(["## Where and when\n", *lines, ""])


def measured_text(mine: Sequence[tuple[str, Row]]) -> str:
    """Returns the benchmarks, dates, revisions and numbers of rounds of a machine."""
    if not mine:
        return "No figures."
    benches = ", ".join(dict.fromkeys(bench for bench, _ in mine))
    days = sorted({origin["date"].split()[0] for _, origin in mine})
    revisions = {origin["revision"] for _, origin in mine if origin.get("revision")}
    rounds = sorted({origin["rounds"] for _, origin in mine})
    words = [" to ".join(dict.fromkeys([days[0], days[-1]]))]
    words += ["revisions " + ", ".join(sorted(revisions))] if revisions else []
    words += [f"{' to '.join(dict.fromkeys(map(str, [rounds[0], rounds[-1]])))} rounds"]
    return f"Measured: {benches} ({'; '.join(words)})."


def how(found: Sequence[Document], tables: Path) -> str:
    """Returns the section with the machines and the commands that measure again."""
    again = "`./dev bench` measures everything again, on one machine. One by one, keeping the rest:"
    return "\n".join([where(found), again, "", "```", *commands(found, tables), "```\n"])


def versions(found: Sequence[Document], machine: str) -> str:
    seen: dict[str, dict[str, None]] = {}
    for origin in origins(found):
        if place_text(origin) == machine:
            for name, version in origin["machine"]["versions"].items():
                seen.setdefault(name, {})[version] = None
    return ", ".join(f"{name} {' and '.join(numbers)}" for name, numbers in seen.items())


def commands(found: Sequence[Document], tables: Path) -> list[str]:
    """Returns the commands that write the stored files. The last one writes the tables."""
    lines = [
        [f"./dev bench {document.bench}", origin["command"], f"--json {shell_text(document.path)}"]
        for document in found
        for origin in sorted(document.origins, key=lambda origin: origin["date"])
    ]
    folders = dict.fromkeys(document.path.parent.resolve() for document in found)
    report = ["./dev bench report", *(shell_text(one) for one in folders if one != RESULTS)]
    report += [f"--tables {shell_text(tables)}"]
    return list(dict.fromkeys(" ".join(filter(None, words)) for words in [*lines, report]))


def shell_text(path: Path) -> str:
    """Returns a path relative to the root of the checkout if it is below it."""
    whole = path.resolve()
    below = whole.is_relative_to(ROOT)
    return shlex.quote(str(whole.relative_to(ROOT) if below else whole))

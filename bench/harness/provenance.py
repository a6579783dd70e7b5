"""Where and when the numbers of the page were measured, and the commands that do it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from harness.places import PAGE, RESULTS, ROOT
from harness.results import Document, Row, Work, size_text


def place_text(origin: Row) -> str:
    """The machine, without what is installed on it, which grows from bench to bench."""
    facts = origin["machine"]
    size = f"{facts['cores']} cores, {facts['memory_GiB']} GiB"
    return f"{facts['cpu']}, {size}, Linux {facts['kernel']}"


def origins(found: Sequence[Document]) -> list[Row]:
    return [origin for document in found for origin in document.origins]


def places(found: Sequence[Document]) -> list[str]:
    """Every machine, in the order in which the page counts them."""
    return list(dict.fromkeys(place_text(origin) for origin in origins(found)))


def of_section(mine: Sequence[Document], machines: Sequence[str]) -> str:
    """When the works of a section that have numbers were measured: what most have in common, and
    the others."""
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
    """With its sizes, where others of it were measured at another time."""
    work = Work.of(origin)
    if sum(Work.of(other) == work for other in document.origins) == 1:
        return str(work)
    return f"{work} ({', '.join(size_text(size) for size in origin['sizes'])})"


def how(found: Sequence[Document], page: Path) -> str:
    """The machines with what was installed there, and what to type."""
    machines = places(found)
    numbers = [f"Machine {n}: " for n in range(1, len(machines) + 1)] if len(machines) > 1 else [""]
    lines = [
        f"{number}{machine}; {versions(found, machine)}.\n"
        for number, machine in zip(numbers, machines, strict=True)
    ]
    again = "`./dev bench` measures all of it again, but on one machine."
    lines += [f"{again} One by one, without losing the rest:\n"]
    return "\n".join(["## Where and how\n", *lines, "```", *commands(found, page), "```\n"])


def versions(found: Sequence[Document], machine: str) -> str:
    seen: dict[str, dict[str, None]] = {}
    for origin in origins(found):
        if place_text(origin) == machine:
            for name, version in origin["machine"]["versions"].items():
                seen.setdefault(name, {})[version] = None
    return ", ".join(f"{name} {' and '.join(numbers)}" for name, numbers in seen.items())


def commands(found: Sequence[Document], page: Path) -> list[str]:
    """Each writes the file that the page was made of, as it was written; the last one the page."""
    lines = [
        [f"./dev bench {document.bench}", origin["command"], f"--json {shell_text(document.path)}"]
        for document in found
        for origin in sorted(document.origins, key=lambda origin: origin["date"])
    ]
    folders = dict.fromkeys(document.path.parent.resolve() for document in found)
    report = ["./dev bench report", *(shell_text(one) for one in folders if one != RESULTS)]
    report += [f"--to {shell_text(page)}"] if page.resolve() != PAGE else []
    return list(dict.fromkeys(" ".join(filter(None, words)) for words in [*lines, report]))


def shell_text(path: Path) -> str:
    """From the root of the checkout, where it lies below."""
    whole = path.resolve()
    below = whole.is_relative_to(ROOT)
    return shlex.quote(str(whole.relative_to(ROOT) if below else whole))

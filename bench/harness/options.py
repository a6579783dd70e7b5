"""Command-line arguments that all benchmarks have."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from harness import peers, pictures

SIZES = [8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
NONE = "none"  #: the value of --peers for no peers
UNITS = {"K": 1 << 10, "M": 1 << 20}

ONE_BUILD = (
    "--before: only calls from C++ are measured with two builds side by side; give the JSON that "
    "this bench has written with the older one"
)


def size(text: str) -> int:
    """Parses 8, 16K, 64M."""
    unit = UNITS.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


class Flat(argparse.Action):
    """Flattens a list of lists of values."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, [item for value in values or () for item in value])


def listed(one: Callable[[str], Any]) -> dict[str, Any]:
    """Returns the arguments of add_argument() for an option that takes `2 4 8` or `2,4,8`."""

    def several(text: str) -> list[Any]:
        return [one(part) for part in text.split(",")]

    several.__name__ = one.__name__  # argparse shows it in its errors
    return {"type": several, "nargs": "+", "action": Flat}


def one_of(names: Collection[str]) -> Callable[[str], str]:
    def name(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
        return text

    return name


def picture(text: str) -> Path:
    """Parses a file name, whose suffix selects the format."""
    path = Path(text)
    if path.suffix not in pictures.SUFFIXES:
        raise argparse.ArgumentTypeError(
            f"{text!r} ends with none of {', '.join(pictures.SUFFIXES)}"
        )
    if path.suffix == ".png" and importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError(
            "a PNG is drawn by matplotlib, which is not here; use .svg"
        )
    return path


def parser(
    description: str, np: list[int], sizes: list[int] | None, known: Sequence[str]
) -> argparse.ArgumentParser:
    """Returns a parser. `known`: names of peers that can be selected."""
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    add = made.add_argument
    add("--np", **listed(int), default=np)
    if sizes is not None:
        add("--sizes", **listed(size), default=sizes, help="bytes; 16K, 64M")
        add("--seconds", type=float, help="duration of the calls of one size in one round")
        add("--limit", type=float, default=60, help="time limit of one job in seconds")
        add("--machine", help="name of this machine in the results")
    only = f"only these: {', '.join(known)}; '{NONE}' for us alone"
    add("--peers", **listed(one_of([*known, NONE])), metavar="PEER", help=only)
    add(
        "--plot",
        type=picture,
        metavar="FILE",
        help="an SVG or PNG: curves over size, or bars for a single size",
    )
    older = "an older JSON of this bench" + (", or another build of ours" if sizes else "")
    add("--before", type=Path, help=f"{older}, as one more line that is not judged")
    add("--rounds", type=int, default=9)
    add("--quick", action="store_true", help="3 short rounds: a smoke test, not a result")
    add("--json", type=Path, metavar="FILE", help="write results; other works in FILE are kept")
    help_text = "the build folder that is measured as ours"
    add("--ours", type=Path, metavar="BUILD", default=peers.default_build(), help=help_text)
    return made


def parse(made: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the arguments; checks --before and --peers before the measurements start."""
    arguments = made.parse_args()
    if arguments.before is not None:
        if not arguments.before.exists():
            made.error(f"--before: there is no {arguments.before}")
        if arguments.before.is_dir() and not hasattr(arguments, "sizes"):
            made.error(ONE_BUILD)
    if hasattr(arguments, "transport"):
        refuse_strangers(made, arguments.peers or [], arguments.transport)
    if arguments.quick:
        arguments.rounds = min(arguments.rounds, 3)
    if getattr(arguments, "seconds", 0) is None and hasattr(arguments, "sizes"):
        arguments.seconds = 0.03 if arguments.quick else 0.06
    return arguments


def refuse_strangers(made: argparse.ArgumentParser, asked: Collection[str], transport: str) -> None:
    """Rejects peers that do not support the transport."""
    known = [*peers.names(transport), NONE]
    strangers = [name for name in asked if name not in known]
    if strangers:
        made.error(
            f"--peers: {', '.join(strangers)}: over {transport} there are {', '.join(known)}"
        )


def is_asked_for(short: str, asked: Collection[str] | None) -> bool:
    """Returns whether --peers selects the peer of this name, even if it is not installed."""
    return asked is None or short in asked


def build_before(arguments: argparse.Namespace) -> Path | None:
    """Returns --before if it is a build, else None."""
    before = arguments.before
    return before.resolve() if before is not None and before.is_dir() else None


def document_before(arguments: argparse.Namespace) -> Path | None:
    before = arguments.before
    return before if before is not None and not before.is_dir() else None

"""The arguments that the benches share."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness import peers

SIZES = [8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
UNITS = {"K": 1 << 10, "M": 1 << 20}


def size(text: str) -> int:
    """8, 16K, 64M."""
    unit = UNITS.get(text[-1:].upper())
    return int(text[:-1]) * unit if unit else int(text)


def parser(description: str, np: list[int], sizes: list[int] | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    add = made.add_argument
    add("--np", type=int, nargs="+", default=np)
    if sizes is not None:
        add("--sizes", type=size, nargs="+", default=sizes, help="bytes; 16K, 64M")
        add("--seconds", type=float, help="for the calls of one size in one round")
        add("--limit", type=float, default=60, help="seconds that one job may take")
        add("--peers", nargs="+", metavar="PEER", help="only these; 'none' for us alone")
        add("--plot", type=Path, metavar="FILE", help="an SVG")
        add("--before", type=Path, metavar="BUILD", help="another build of ours, as one more peer")
    add("--rounds", type=int, default=9)
    add("--quick", action="store_true", help="3 short rounds: a first look, not a result")
    add("--json", type=Path, metavar="FILE", help="what is in FILE of other work stays there")
    help_text = "the build folder of what is measured as ours"
    add("--ours", type=Path, metavar="BUILD", default=peers.default_build(), help=help_text)
    return made


def settle(arguments: argparse.Namespace) -> argparse.Namespace:
    if arguments.quick:
        arguments.rounds = min(arguments.rounds, 3)
    if getattr(arguments, "seconds", 0) is None:
        arguments.seconds = 0.03 if arguments.quick else 0.08
    return arguments

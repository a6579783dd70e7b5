"""`horovodrun` seen from Python: its command line as an argparse namespace, and calling it.

The flags that set a knob come from the runtime's own table, so they are those of the program.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from horovod import __version__
from horovod.runner import _program

_BYTES = {"bytes": 1, "MiB": 1 << 20}


def run_commandline() -> NoReturn:
    """Becomes the program `horovodrun`, with the arguments of this process."""
    program = _program.find()
    os.execv(program, [program, *sys.argv[1:]])


def check_build(verbose: bool = False) -> str:
    """Returns the text of `horovodrun --check-build`: what this installation can do."""
    command = [_program.find(), "--check-build", *(["--verbose"] if verbose else [])]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_gloo_used(
    use_gloo: bool | None = None, use_mpi: bool | None = None, use_jsrun: bool | None = None
) -> bool:
    """Says whether the built-in launcher starts the job: always, unless another one is chosen, by
    a flag or, without one, by HOROVOD_CONTROLLER."""
    if use_gloo or use_mpi or use_jsrun:
        return bool(use_gloo)
    return os.environ.get("HOROVOD_CONTROLLER", "").lower() != "mpi"


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line of `horovodrun` (that of this process when `arguments` is None).

    A setting that is not given is None (False for plain switches); `command` is the list of what
    follows the flags. In a job of LSF -np may be left out: its allocation says how many. Raises:
    ValueError for a number out of range.
    """
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        description="Starts a program on several processes that train together.",
        allow_abbrev=False,
    )
    _add_own(parser)
    rows = _knob_rows()
    for row in rows:
        _add_knob(parser, row)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(arguments)
    if args.command[:1] == ["--"]:
        del args.command[0]
    needs_number = not (args.check_build or args.doctor or os.environ.get("LSB_JOBID"))
    if args.num_proc is None and needs_number:
        parser.error("-np is needed: the number of processes to start")
    for row in rows:
        _check_range(row, args)
    return args


def _knob_rows() -> list[dict[str, Any]]:
    from horovod import _core

    return [row for row in _core.knobs() if row["flags"]]


class _Interfaces(argparse.Action):
    """A comma list as a set; the singular spelling should not hold several."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string == "--network-interface" and "," in values:
            warnings.warn(
                "--network-interface with a comma is deprecated; use --network-interfaces",
                DeprecationWarning,
                stacklevel=2,
            )
        setattr(namespace, self.dest, {name for name in values.split(",") if name})


def _add_own(parser: argparse.ArgumentParser) -> None:
    """The flags that set no knob. The command line of the program has the same."""
    parser.add_argument("-v", "--version", action="version", version=__version__)
    parser.add_argument("-np", "--num-proc", "--np", dest="num_proc", type=int)
    parser.add_argument("-cb", "--check-build", action="store_true")
    parser.add_argument("--doctor", action="store_true")
    parser.add_argument("--disable-cache", action="store_true")
    parser.add_argument(
        "--network-interfaces", "--network-interface", dest="nics", action=_Interfaces
    )
    parser.add_argument("--output-filename")
    parser.add_argument(
        "-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true",
        dest="prefix_output_with_timestamp",
    )  # fmt: skip
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--config-file")
    parser.add_argument("-p", "--ssh-port", type=int)
    parser.add_argument("-i", "--ssh-identity-file")
    parser.add_argument("--min-np", "--min-num-proc", dest="min_num_proc", type=int)
    parser.add_argument("--max-np", "--max-num-proc", dest="max_num_proc", type=int)
    parser.add_argument("--slots-per-host", dest="slots", type=int)
    parser.add_argument("--reset-limit", type=int)
    parser.add_argument("--blacklist-cooldown-range", dest="cooldown_range", type=int, nargs=2)
    parser.add_argument("--mpi-args")
    parser.add_argument("--tcp", dest="tcp_flag", action="store_true")
    parser.add_argument("--binding-args")
    hosts = parser.add_mutually_exclusive_group()
    hosts.add_argument("-H", "--hosts")
    hosts.add_argument("-hostfile", "--hostfile")
    hosts.add_argument("--host-discovery-script")
    launcher = parser.add_mutually_exclusive_group()
    launcher.add_argument("--gloo", dest="use_gloo", action="store_true")
    launcher.add_argument("--mpi", dest="use_mpi", action="store_true")
    launcher.add_argument("--jsrun", dest="use_jsrun", action="store_true")


def _add_knob(parser: argparse.ArgumentParser, row: dict[str, Any]) -> None:
    opposite = row["dest"].startswith("!")
    dest = row["dest"].removeprefix("!")
    flags = row["flags"].split(",")
    if row["kind"] == "boolean":
        for names, given in ((flags, not opposite), (row["off_flags"].split(","), opposite)):
            if names != [""]:
                parser.add_argument(
                    *names, dest=dest, action="store_const", const=given, help=row["help"]
                )
        return
    kinds: dict[str, Any] = {"integer": int, "decimal": float, "cores": _cores}
    if row["kind"] != "choice":
        kind = kinds.get(row["kind"], str)
        parser.add_argument(*flags, dest=dest, type=kind, help=row["help"])
        return
    # Levels are written in capitals everywhere else.
    spell = str.upper if dest == "log_level" else str.lower
    choices = [spell(choice) for choice in row["choices"]]
    parser.add_argument(*flags, dest=dest, type=spell, choices=choices, help=row["help"])


def _cores(text: str) -> int | str:
    """One core is a number, several are the list as it was written."""
    if all(core.isdecimal() for core in text.split(",")):
        return text if "," in text else int(text)
    raise argparse.ArgumentTypeError(f"expected a comma list of core numbers, found {text!r}")


def _check_range(row: dict[str, Any], args: argparse.Namespace) -> None:
    value = getattr(args, row["dest"].removeprefix("!"))
    if row["kind"] not in ("integer", "decimal") or value is None:
        return
    scale = _BYTES.get(row["flag_unit"] or row["env_unit"], 1) / _BYTES.get(row["env_unit"], 1)
    low, high = row["min"] / scale, row["max"] / scale
    if not low <= value <= high:
        flag = row["flags"].split(",")[0]
        bound = f">= {low:g}" if value < low else f"<= {high:g}"
        raise ValueError(f"{flag}={value}: it must be {bound}")


if __name__ == "__main__":
    run_commandline()

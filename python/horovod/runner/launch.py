"""`horovodrun` from Python: its command line as an argparse namespace, and calls of it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from horovod.runner import _program


def run_commandline() -> NoReturn:
    """Replaces this process by the program `horovodrun`, with the same arguments."""
    program = _program.find()
    os.execv(program, [program, *sys.argv[1:]])


def check_build(verbose: bool = False) -> str:
    """Returns the text of `horovodrun --check-build`: the features of this installation."""
    command = [_program.find(), "--check-build", *(["--verbose"] if verbose else [])]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_gloo_used(
    use_gloo: bool | None = None, use_mpi: bool | None = None, use_jsrun: bool | None = None
) -> bool:
    """Returns whether the built-in launcher starts the job: always, unless a flag or, without one,
    HOROVOD_CONTROLLER chooses another one."""
    if use_gloo or use_mpi or use_jsrun:
        return bool(use_gloo)
    return os.environ.get("HOROVOD_CONTROLLER", "").lower() != "mpi"


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line of `horovodrun` (that of this process if `arguments` is None), with
    the settings of a `--config-file` that it names. Flags override the file.

    The program itself does the parsing. A setting that is not given is None (False for plain
    switches). `command` is the list of words after the flags, and may be empty. In an LSF job -np
    may be left out: the allocation sets it. `--help` and `--version` print and end the process, as
    does a wrong flag. Raises: ValueError for an invalid value of a flag or of a key of the file.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    asked = subprocess.run(
        [_program.find(), "--parse-args", *words], stdin=subprocess.DEVNULL, capture_output=True
    )
    if asked.returncode != 0:
        sys.stderr.write(asked.stderr.decode(errors="replace"))
        sys.exit(asked.returncode)
    answer: dict[str, Any] = json.loads(asked.stdout)
    if "print" in answer:
        sys.stdout.write(answer["print"])
        sys.exit(0)
    if "error" in answer:
        raise ValueError(answer["error"])
    for line in answer["warnings"]:
        category = DeprecationWarning if "deprecated" in line else UserWarning
        warnings.warn(line, category, stacklevel=2)
    return _namespace(answer["values"], words)


def _namespace(values: dict[str, Any], words: list[str]) -> argparse.Namespace:
    """`words` keep their bytes, even if these are not UTF-8."""
    args = argparse.Namespace(**values)
    args.command = words[len(words) - len(args.command) :]
    args.nics = None if args.nics is None else set(args.nics)
    return args


if __name__ == "__main__":
    run_commandline()

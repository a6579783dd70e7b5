"""Commands of tests that must end well."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

SECONDS = 600  #: generous: on a busy machine


def must(*command: str, env: Mapping[str, str] | None = None, seconds: float = SECONDS) -> str:
    """Returns the standard output of a command. Shows all of its output if it fails."""
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds)
    failure = f"`{' '.join(command)}` ended with {ended.returncode}"
    assert ended.returncode == 0, f"{failure}\n{ended.stdout}{ended.stderr}"
    return ended.stdout

"""Trainings in elastic jobs of horovodrun in which a rank is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rank_jobs import launcher


def told_by_elastic_job(
    source: str, words: list[Any], folder: Path, seconds: float, variables: Mapping[str, str] = {}
) -> Any:
    """Runs the program on 3 ranks, of which 2 are enough, in `folder`. It gets `words` and the path
    of a file, into which rank 0 writes JSON: what is returned."""
    (folder / "train.py").write_text(source)
    result = folder / "result.json"
    command = [sys.executable, "train.py", *map(str, words), str(result)]
    ended = subprocess.run(
        [str(launcher()), "-np", "3", "--min-np", "2", *command],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(result.read_text())

"""Trainings by horovodrun in which a rank is lost: in elastic jobs, and with a state folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rank_jobs import launcher


def told_by_elastic_job(
    source: str,
    words: list[Any],
    folder: Path,
    seconds: float,
    variables: Mapping[str, str] = {},
    starter: Sequence[str] = (),
) -> Any:
    """Runs the program on 3 ranks, of which 2 are enough, in `folder`. It gets `words` and the path
    of a file, into which rank 0 writes JSON: what is returned. `starter`: a command that starts
    another one."""
    (folder / "train.py").write_text(source)
    result = folder / "result.json"
    command = [*starter, sys.executable, "train.py", *map(str, words), str(result)]
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


def told_after_restarts(
    source: str,
    words: Sequence[Any],
    starts: Sequence[tuple[int, int]],
    folder: Path,
    seconds: float,
    variables: Mapping[str, str] = {},
) -> Any:
    """Runs the program with a state folder, once for each of `starts`: a number of ranks, and the
    rank that kills itself, and with it the job; -1 in the last one. The program gets `words`, the
    rank to kill, and the path of a file, into which rank 0 writes JSON: what is returned. It prints
    "begins at" and the number of committed steps."""
    (folder / "train.py").write_text(source)
    result = folder / "result.json"
    flags = ["--state-dir", "state", "--state-seconds", "0.001"]
    for number, (ranks, victim) in enumerate(starts):
        command = [sys.executable, "train.py", *map(str, [*words, victim, result])]
        ended = subprocess.run(
            [str(launcher()), "-np", str(ranks), *flags, *command],
            cwd=folder,
            env={**os.environ, "HOROVOD_GRACE_SECONDS": "0", **variables},
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        output = ended.stdout + ended.stderr
        assert ended.returncode == (0 if victim < 0 else 128 + 9), output
        assert ("begins at 0" in ended.stdout) == (number == 0), output
    return json.loads(result.read_text())


def expect_each_sample_once(
    used: Sequence[tuple[int, Sequence[int]]], samples: int, epochs: int, repeats: int
) -> None:
    """`used`: by committed step, its epoch and the samples of all ranks. `repeats`: the most that
    may fill up an epoch's last step."""
    for epoch in range(epochs):
        counts = Counter(index for number, batch in used if number == epoch for index in batch)
        assert set(counts) == set(range(samples))
        assert counts.total() - samples <= repeats

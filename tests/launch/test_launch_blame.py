"""The first failure, with real ranks: the rank that caused it is reported before the others."""

from __future__ import annotations

import sys

import pytest
from launcher import Jobs
from training import train

pytest.importorskip("horovod._core")


def test_all_ranks_end_well(jobs: Jobs) -> None:
    result = train(jobs, "pass")
    assert (result.code, result.err) == (0, "")
    assert sorted(result.out_lines) == [f"[{rank}]<stdout>:end" for rank in range(4)]


@pytest.mark.parametrize(
    ("deed", "code", "announced"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "was killed by signal 9 (SIGKILL)"),
        ("raise RuntimeError('bad luck')", 1, "exited with code 1"),
        ("sys.exit(5)", 5, "exited with code 5"),
        ("os._exit(6)", 6, "exited with code 6"),
    ],
)
def test_the_culprit_is_named_before_what_follows_from_it(
    jobs: Jobs, deed: str, code: int, announced: str
) -> None:
    result = train(jobs, deed)
    assert result.code == code
    assert result.said[0].startswith(f"rank 1 {announced}; ")
    consequences = [line for line in result.said if "as a consequence of rank 1" in line]
    assert len(consequences) == 3
    lines = result.err.splitlines()
    first_word_of_others = next(
        index
        for index, line in enumerate(lines)
        if line.startswith("[") and not line.startswith("[1]")
    )
    assert lines.index("horovodrun: " + result.said[0]) < first_word_of_others


def test_a_rank_that_leaves_early_and_well_is_named_by_the_others(jobs: Jobs) -> None:
    result = train(jobs, "os._exit(0)")
    assert result.code == 1
    assert "it reported rank 1 as the cause" in result.said[0]


#: Rank 1 ends well, but too early: before its first `init`, or before the second one of the others.
LEAVES = """
import os, sys
import horovod._core as core
for init in range(2):
    if (os.environ["HOROVOD_RANK"], init) == ("1", int(sys.argv[1])): sys.exit(0)
    try:
        core.init()
    except Exception as error:
        sys.exit(f"init: {error}")
    core.shutdown()
"""


@pytest.mark.parametrize("init", [0, 1])
@pytest.mark.parametrize("flags", [[], ["--min-np", "2"]], ids=["", "elastic"])
def test_a_rank_that_ends_well_before_the_others_init_is_named_at_once(
    jobs: Jobs, flags: list[str], init: int
) -> None:
    (jobs.folder / "train.py").write_text(LEAVES)
    flags = ["-np", "3", "--start-timeout", "1000", *flags]
    result = jobs.run(*flags, sys.executable, "train.py", str(init))
    assert result.code == 1
    errors = sorted(line for line in result.err.splitlines() if ">:init: " in line)
    assert [line[:3] for line in errors] == ["[0]", "[2]"]
    assert all("rank 1 " in line and "with exit code 0" in line for line in errors), errors

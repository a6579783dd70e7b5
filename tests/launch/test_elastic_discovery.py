"""Elastic jobs whose hosts a script prints, on one host."""

from __future__ import annotations

from pathlib import Path

import pytest
from elastic_training import entries, training
from launcher import Jobs

pytest.importorskip("horovod._core")


def listing(folder: Path, text: str, otherwise: str = "exit 1") -> None:
    """`hosts.sh` prints the file `listed`, which begins with `text`, while there is one."""
    (folder / "listed").write_text(text)
    script = folder / "hosts.sh"
    script.write_text(f"#!/bin/sh\n[ ! -e listed ] || exec cat listed\n{otherwise}\n")
    script.chmod(0o755)


def test_a_job_grows_to_its_maximum_and_no_further(jobs: Jobs) -> None:
    """At the start 4 slots are free. Then there are 8, by a line without a number."""
    listing(jobs.folder, "localhost:4\n")
    deed = """
if (generation, rank, step) == (0, 0, 10):
    open('new', 'w').write('localhost\\n')
    os.rename('new', 'listed')
if size == 6 and generation and not globals().get('grown'):
    grown = time.monotonic()
"""
    over = "size == 6 and time.monotonic() > grown + 2"  # the script runs every second
    limits = ["-np", "4", "--min-np", "2", "--max-np", "6"]
    hosts = ["--host-discovery-script", "./hosts.sh", "--slots-per-host", "8"]
    result = jobs.run(*limits, *hosts, *training(jobs.folder, deed, over))
    assert result.code == 0, result.err
    found = entries(result)
    assert [len(ranks) for _, ranks in sorted(found.items())] == [4, 6]
    pids = {entry.pid for ranks in found.values() for entry in ranks.values()}
    assert len(pids) == 6
    assert sum(line.endswith(":ended") for line in result.out_lines) == 6


def test_a_script_that_begins_to_fail_is_told_of_once_and_the_job_goes_on(jobs: Jobs) -> None:
    """When it prints hosts again, the job follows it again."""
    listing(jobs.folder, "localhost:1\n", "echo >> failed\necho 'no cluster' >&2\nexit 3")
    deed = """
if (rank, step) == (0, 10):
    os.remove('listed')
if rank == 0 and os.path.exists('failed') and len(open('failed').read()) == 2:
    open('new', 'w').write('localhost:2\\n')
    os.rename('new', 'listed')
"""
    command = training(jobs.folder, deed, "size == 2")
    hosts = ["--host-discovery-script", "./hosts.sh"]
    result = jobs.run("-np", "1", "--min-np", "1", "--max-np", "2", *hosts, *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert [len(ranks) for _, ranks in sorted(found.items())] == [1, 2]
    assert found[1][0].pid == found[0][0].pid
    warned = [line for line in result.said if "hosts.sh" in line]
    assert warned == [
        "./hosts.sh exited with code 3: no cluster; the hosts stay as they are",
    ]

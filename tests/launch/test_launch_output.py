"""What the ranks write, and what the user sees of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from launcher import Jobs, ended, pids_in, proc_number, wait_gone, without_sanitizer

MIB = 1 << 20

TIME = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-3][0-9] [0-9:]{8} [0-9]{4}"


def test_lines_begin_with_rank_and_stream(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", jobs.script("echo one; echo two >&2"))
    assert (result.code, result.out, result.err) == (0, "[0]<stdout>:one\n", "[0]<stderr>:two\n")


def test_lines_may_begin_with_the_time(jobs: Jobs) -> None:
    for flag in ("--prefix-output-with-timestamp", "-prefix-timestamp"):
        result = jobs.run("-np", "1", flag, "echo", "one")
        assert re.fullmatch(TIME + r"\[0\]<stdout>:one\n", result.out)


def test_long_lines_of_ranks_that_write_at_once_stay_whole(jobs: Jobs) -> None:
    result = jobs.run(
        "-np",
        "4",
        "awk",
        'BEGIN { r = ENVIRON["HOROVOD_RANK"]; s = r; while (length(s) < 20000) s = s s; '
        'for (i = 0; i < 50; i++) print i " " s }',
    )
    assert result.code == 0
    seen: dict[int, list[int]] = {rank: [] for rank in range(4)}
    for line in result.out_lines:
        match = re.fullmatch(r"\[(\d)\]<stdout>:(\d+) (\d)(\3+)", line)
        assert match is not None, line[:80]
        assert match[1] == match[3] and len(match[4]) >= 19999
        seen[int(match[1])].append(int(match[2]))
    assert all(numbers == list(range(50)) for numbers in seen.values())


def test_an_unfinished_last_line_is_written_and_ended(jobs: Jobs) -> None:
    result = jobs.run("-np", "2", "printf", "no newline")
    assert sorted(result.out_lines) == ["[0]<stdout>:no newline", "[1]<stdout>:no newline"]


def test_an_unfinished_line_is_shown_while_the_rank_waits(jobs: Jobs) -> None:
    process = jobs.start("-np", "1", jobs.script("printf 'name? '; cat > /dev/null"), stdin=-1)
    assert process.stdout is not None
    expected = b"[0]<stdout>:name? "
    assert os.read(process.stdout.fileno(), 100) == expected[: len(expected)]
    result = ended(process, b"")
    assert (result.code, result.out) == (0, "\n")


def test_carriage_returns_end_lines(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", "printf", r"1%%\r2%%\r\nend\n")
    assert result.out == "[0]<stdout>:1%\r[0]<stdout>:2%\r\n[0]<stdout>:end\n"


def test_characters_survive_being_written_in_pieces(jobs: Jobs) -> None:
    script = jobs.script(r"printf 'caf\303'; sleep 0.4; printf '\251\n'")
    result = jobs.run("-np", "1", script)
    assert result.out == "[0]<stdout>:café\n"


def test_standard_input_goes_to_rank_0_only(jobs: Jobs) -> None:
    result = jobs.run("-np", "3", "cat", data=b"hello\n")
    assert (result.code, result.out) == (0, "[0]<stdout>:hello\n")


@pytest.mark.parametrize(("processes", "names"), [(2, ["rank.0", "rank.1"]), (11, None)])
def test_each_rank_has_files_with_what_it_wrote(
    jobs: Jobs, tmp_path: Path, processes: int, names: list[str] | None
) -> None:
    folder = tmp_path / "new" / "logs"
    script = jobs.script("printf \"out $HOROVOD_RANK\\n\"; printf 'err' >&2")
    result = jobs.run("-np", str(processes), "--output-filename", str(folder), script)
    assert result.code == 0 and "[0]<stdout>:out 0" in result.out_lines
    names = names or [f"rank.{rank:02}" for rank in range(processes)]
    assert sorted(path.name for path in folder.iterdir()) == names
    for rank, name in enumerate(names):
        assert (folder / name / "stdout").read_bytes() == f"out {rank}\n".encode()
        assert (folder / name / "stderr").read_bytes() == b"err"


def test_a_folder_that_cannot_be_made_is_refused(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", "--output-filename", "/proc/nowhere", "touch", "started")
    assert result.code == 2 and "/proc/nowhere/rank.0" in result.said[0]
    assert not (jobs.folder / "started").exists()


def test_a_reader_that_goes_away_does_not_end_the_job(jobs: Jobs) -> None:
    process = jobs.start("-np", "1", jobs.script("seq 100000; echo done > finished"))
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 10)
    process.stdout.close()
    process.stdout = None
    assert ended(process).code == 0
    assert (jobs.folder / "finished").exists()


def test_a_reader_that_pauses_does_not_keep_the_job_from_ending(jobs: Jobs) -> None:
    process = jobs.start("-np", "2", jobs.script("echo $$ > $HOROVOD_RANK.pid; exec yes"))
    pids = pids_in(jobs.folder, 2)
    process.terminate()
    wait_gone(pids)
    assert ended(process).code == 128 + 15


@without_sanitizer
def test_many_ranks_that_write_at_once_take_little_of_the_launchers_memory(jobs: Jobs) -> None:
    """It reads as fast as they write, if a process reads from it."""
    ranks, written = 64, 2 * MIB
    script = jobs.script(f"yes $(printf %079d $HOROVOD_RANK) | head -c {written}\n")
    process = jobs.start("-np", str(ranks), script)
    assert process.stdout is not None
    peak, read, sampled = 0, 0, 0
    while got := os.read(process.stdout.fileno(), MIB):
        read += len(got)
        if read - sampled > MIB and read < ranks * written:  # it has not ended yet
            sampled = read
            peak = proc_number(process.pid, "status", "VmHWM") << 10
    assert ended(process).code == 0
    assert read > ranks * written and sampled > ranks * written / 2
    assert peak < 18 * MIB  # 22 when all pipes were read in one turn


def test_verbose_tells_what_is_done_and_never_the_key(jobs: Jobs) -> None:
    result = jobs.run("--verbose", "-np", "2", "--cycle-time-ms", "3.5", "env")
    told = "\n".join(result.said)
    for fact in ("2 processes on localhost", "command: env", "HOROVOD_CYCLE_TIME=3.5"):
        assert fact in told
    assert not re.search(r"[0-9a-f]{32}", told)

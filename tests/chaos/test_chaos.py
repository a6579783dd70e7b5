"""A short chaos run loses nothing, and its checks find what could be lost."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chaos_report
import chaos_run
import pytest
import torch
from chaos_checks import chain, indices_of, lost_commits, miscounted
from chaos_faults import CUT, KILL, STOP, Fault, Injector
from chaos_hosts import TwoHosts, is_below
from chaos_model import network, plain_optimizer, replayed, samples, values_of
from chaos_notes import BEGINNING, Process, Reader, next_state


def run_and_check(folder: Path, *words: str) -> None:
    torch.set_num_threads(1)
    result = chaos_run.run(chaos_run.parse_arguments(words), folder)
    assert result.problems == [], (folder / "output").read_text()
    assert len(result.faults) >= 6
    assert len({step.generation for step in result.steps}) >= 2
    assert "goodput" in chaos_report.table(result.processes, result.steps, result.faults)


def test_nothing_is_lost_in_a_job_under_random_faults(tmp_path: Path) -> None:
    """Steps between two commits are repeated."""
    words = ["--minutes", "1", "--least-faults", "6", "--every", "1.5", "--min-np", "2"]
    run_and_check(tmp_path, *words, "--commit-every", "3")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
def test_nothing_is_lost_in_longer_jobs(seed: int, tmp_path: Path) -> None:
    run_and_check(tmp_path, "--minutes", "1", "--least-faults", "6", "--seed", str(seed))


@pytest.mark.slow
@pytest.mark.skipif("os.geteuid() != 0", reason="network namespaces take root")
def test_nothing_is_lost_when_hosts_are_lost_and_links_are_cut(tmp_path: Path) -> None:
    run_and_check(tmp_path, "--minutes", "1", "--least-faults", "8", "--hosts", "2")


# ---- The checks -------------------------------------------------------------------------------
#
# Two ranks train one epoch of 7 samples in two steps. Rank 1 is lost in a third one, and rank 0
# makes the rest alone, as in a run.

FIRST = next_state(BEGINNING, 0)
SECOND = next_state(FIRST, 0)
THIRD = next_state(SECOND, 1)


def part(before: str, rank: int, indices: Sequence[int], size: int = 2, **other: Any) -> Any:
    note = {"kind": "step", "at": 1.0, "before": before, "rank": rank, "size": size, "epoch": 0}
    return {**note, "generation": 2 - size, "indices": list(indices), **other}


def commit(state: str, at: float) -> dict[str, Any]:
    return {"kind": "commit", "at": at, "state": state}


def notes_of_a_run() -> dict[int, list[dict[str, Any]]]:
    """By process."""
    survivor = [
        part(BEGINNING, 0, [3, 1]),
        commit(FIRST, 2.0),
        part(FIRST, 0, [0]),
        commit(SECOND, 3.0),
        part(SECOND, 0, [6]),
        part(SECOND, 0, [6, 4], size=1, at=5.0),
        commit(THIRD, 6.0),
        {"kind": "epoch", "at": 6.0, "state": THIRD, "epoch": 0, "repeated": 1},
        {"kind": "end", "at": 7.0, "state": THIRD},
    ]
    lost = [
        part(BEGINNING, 1, [5, 2]),
        commit(FIRST, 2.1),
        part(FIRST, 1, [4]),
        commit(SECOND, 3.1),
        part(SECOND, 1, [6]),
    ]
    return {10: survivor, 11: lost}


Notes = dict[int, list[dict[str, Any]]]


def problems_in(folder: Path, notes: Notes) -> list[str]:
    for pid, lines in notes.items():
        (folder / f"{pid}.0.notes").write_text("".join(json.dumps(line) + "\n" for line in lines))
    processes = Reader(folder).read()
    steps, problems = chain(processes)
    return problems + lost_commits(processes, steps) + miscounted(processes, steps, 7)


def without_repeats(notes: Notes) -> None:
    notes[10][5]["indices"] = [6]
    notes[10][7]["repeated"] = 0


def test_a_run_without_a_loss_has_no_problems(tmp_path: Path) -> None:
    notes = notes_of_a_run()
    without_repeats(notes)
    assert problems_in(tmp_path, notes) == []


def a_rank_without_a_note(notes: Notes) -> None:
    del notes[11][2]


def a_sample_that_counts_twice(notes: Notes) -> None:
    notes[11][2]["indices"] = [0]


def a_sample_that_is_left_out(notes: Notes) -> None:
    notes[10][0]["indices"] = [3]


def a_repeat_of_one_rank(notes: Notes) -> None:
    notes[10][5]["indices"] = [6, 4]
    notes[10][7]["repeated"] = 1


def a_repeat_that_is_not_reported(notes: Notes) -> None:
    notes[10][7]["repeated"] = 1


def a_commit_that_is_lost(notes: Notes) -> None:
    notes[10][5]["before"] = FIRST
    notes[10][5]["indices"] = [0, 4, 6]
    third = next_state(FIRST, 1)
    notes[10][6]["state"] = notes[10][7]["state"] = notes[10][8]["state"] = third


def ranks_that_begin_at_different_samples(notes: Notes) -> None:
    notes[11][2]["epoch"] = 1


def ranks_with_different_ends(notes: Notes) -> None:
    notes[11].append({"kind": "end", "at": 7.0, "state": SECOND})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (a_rank_without_a_note, "the step of 2 ranks has parts of the ranks [0]"),
        (a_sample_that_counts_twice, "samples [4] were not used"),
        (a_sample_that_is_left_out, "samples [1] were not used"),
        (a_repeat_of_one_rank, "1 repeats with 1 ranks"),
        (a_repeat_that_is_not_reported, "0 repeats, reported were {1}"),
        (a_commit_that_is_lost, f"process 11 has committed state {SECOND}, which was lost"),
        (ranks_that_begin_at_different_samples, "ranks disagree about the step"),
        (ranks_with_different_ends, "2 different states at the end"),
    ],
)
def test_a_loss_is_found(change: Callable[[Notes], None], problem: str, tmp_path: Path) -> None:
    notes = notes_of_a_run()
    without_repeats(notes)
    change(notes)
    assert any(problem in found for found in problems_in(tmp_path, notes))


def test_a_line_that_is_half_written_is_read_later(tmp_path: Path) -> None:
    line = json.dumps(part(BEGINNING, 0, [1])) + "\n"
    path = tmp_path / "10.0.notes"
    path.write_text(line + line[:20])
    reader = Reader(tmp_path)
    assert [len(process.parts) for process in reader.read()] == [1]
    path.write_text(line + line)
    assert [len(process.parts) for process in reader.read()] == [2]


def test_the_replay_of_one_rank_is_plain_training() -> None:
    model = network()
    optimizer = plain_optimizer(model)
    inputs, labels = samples()
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[:4]), labels[:4]).backward()
        optimizer.step()
    assert replayed([[(0, 1, 2, 3)]] * 3) == values_of(model, optimizer)
    assert replayed([[(0, 1, 2, 3)]] * 2) != values_of(model, optimizer)


def test_goodput_leaves_out_the_time_between_generations_and_stops(tmp_path: Path) -> None:
    notes = notes_of_a_run()
    problems_in(tmp_path, notes)
    steps, _ = chain(Reader(tmp_path).read())
    assert [step.ended for step in steps] == [2.0, 3.0, 6.0]
    assert chaos_report.goodput(steps, []) == pytest.approx(3 / 5)  # 4 s are between generations
    stop = Fault(STOP, 2.5, (11,), 0, 2.75)
    assert chaos_report.goodput(steps, [stop]) == pytest.approx(2.75 / 5)
    stranger = replace(stop, pids=(12,))
    assert chaos_report.goodput(steps, [stranger, stop, stop]) == pytest.approx(2.75 / 5)
    kill = Fault(KILL, 3.5, (11,), 0, 3.5)
    assert chaos_report.recoveries(steps, [kill], [KILL]) == [2.5]
    assert indices_of(steps)[0] == [(3, 1), (5, 2)]


def test_a_run_fails_below_the_least_goodput(tmp_path: Path) -> None:
    """It is 60 % in this one."""
    notes = notes_of_a_run()
    problems_in(tmp_path, notes)
    result = chaos_run.Result(Reader(tmp_path).read(), [])
    for least, fails in ((0, False), (59.9, False), (60.1, True)):
        options = chaos_run.parse_arguments(["--least-goodput", str(least)])
        result.problems.clear()
        chaos_run.check(result, tmp_path, options.least_goodput)
        assert ("goodput 60.00% is below the least, 60.1 %" in result.problems) == fails


def test_a_rank_that_commits_after_its_silence_was_not_given_up(tmp_path: Path) -> None:
    problems_in(tmp_path, notes_of_a_run())
    processes = Reader(tmp_path).read()
    steps, _ = chain(processes)
    short, long = Fault(STOP, 3.2, (11,), 0, 3.5), Fault(STOP, 3.2, (11,), 0, 4.5)
    assert (short.is_silence, long.is_silence) == (False, True)
    assert chaos_report.given_up(processes, long)
    assert not chaos_report.given_up(processes, replace(long, pids=(10,)))
    told = chaos_report.table(processes, steps, [short, long, replace(long, pids=(10,))])
    assert "longer than the heartbeat of 1 s | 2 |" in told
    assert "after which ranks were given up | 1 |" in told
    assert "SIGSTOP to the next committed step without the rank | 1 | 2800 ms" in told
    assert "SIGCONT, before the heartbeat, to the next committed step | 1 | 2500 ms" in told


class Far(TwoHosts):
    """Processes other than 1 are on the second host."""

    def __init__(self) -> None:
        pass

    def host_of(self, pid: int) -> int | None:
        return 1 if pid == 1 else self.SECOND

    def set_link(self, up: bool) -> None:
        pass


def test_ranks_that_are_cut_off_do_not_count_as_those_that_keep_the_state() -> None:
    processes = [Process(pid, commits={FIRST: 99.9}) for pid in (1, 2, 3)]
    reader: Any = SimpleNamespace(read=lambda: processes)
    signaled: list[int] = []
    handles: Any = SimpleNamespace(
        open=lambda pid: True, signal=lambda pid, number: signaled.append(pid)
    )
    injector = Injector(reader, handles, Far(), random.Random(1), 3.0, 3.0)
    assert injector._inject(CUT, 100.0)
    (cut,) = injector.faults
    assert cut.pids == (2, 3) and cut.until > 100.4
    for process in processes:  # of a step that had begun before
        process.commits[SECOND] = 100.1
    assert not injector._inject(KILL, 100.4)
    for process in processes:
        process.commits[THIRD] = cut.until + 0.1
    assert injector._inject(KILL, cut.until + 0.2) and len(signaled) == 1


def test_only_processes_of_the_job_are_signaled() -> None:

    assert is_below(os.getpid(), os.getppid())
    assert not is_below(os.getppid(), os.getpid())
    assert not is_below(1, os.getpid())

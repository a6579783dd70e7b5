"""What is said of a goal: met only by all of its cells, missed by one."""

from __future__ import annotations

import re

import faults
import pytest
from bench_rows import WORK, row
from harness import goals
from harness.goals import GOALS, MET, MISSED, NOT_MEASURED, TESTED, Cells, Goal, judge
from harness.options import SIZES
from harness.places import ROOT
from harness.readings import best_ratios, ratios
from harness.results import Row, Work, cell_of, limit, row_of
from harness.verdict import digits

BY_KEY = {goal.key: goal for goal in GOALS}
TWO = Cells("allreduce", ("shm",), ("allreduce",), ("float32",), (2,), (8, 64))
WORST = Goal("worst", "the worst of two", TWO, ratios, 0.95)
MEAN = Goal("mean", "the mean of two", TWO, ratios, 1.5, mean=True)


def pair(ratio: float, size: int = 8, **more: object) -> list[Row]:
    """We, and a peer that takes so many times as long."""
    return [row("ours", 2, size, **more), row("MPI", 2 * ratio, size, **more)]


def of(bench: str, rows: list[Row], key: str) -> goals.Judged:
    return judge(BY_KEY[key], {bench: rows})


def test_keys_are_names_of_one_goal_each() -> None:
    assert len(BY_KEY) == len(GOALS)
    assert all(re.fullmatch(r"[\w-]+", key) for key in BY_KEY)


def test_a_goal_is_met_by_all_of_its_cells_alone() -> None:
    rows = pair(1.2) + pair(0.96, 64)
    assert judge(WORST, {"allreduce": rows}).state == MET
    part = judge(WORST, {"allreduce": pair(1.2)})
    assert (part.state, part.shown) == (NOT_MEASURED, "1.20; 1 of 2 not measured")
    assert judge(WORST, {"collectives": rows}) == goals.Judged("at least 0.95", "-", NOT_MEASURED)
    assert judge(WORST, {"allreduce": pair(1.2, np=4) + pair(1.2, 512)}).shown == "-"


def test_one_cell_misses_a_goal_and_is_named() -> None:
    found = judge(WORST, {"allreduce": pair(3) + pair(0.5, 64)})
    assert (found.state, found.shown) == (MISSED, "0.50 (64 B, allreduce float32, np 2, shm)")
    assert judge(WORST, {"allreduce": pair(0.5)}).state == MISSED  # whatever the other one does


def test_a_mean_of_some_cells_says_nothing() -> None:
    assert judge(MEAN, {"allreduce": pair(1) + pair(4, 64)}).shown == "2.00 over 2 cells"
    assert judge(MEAN, {"allreduce": pair(1) + pair(2, 64)}).state == MISSED
    assert judge(MEAN, {"allreduce": pair(1)}).state == NOT_MEASURED


def test_a_cell_without_a_peer_is_not_measured_and_one_without_us_is_missed() -> None:
    assert judge(WORST, {"allreduce": [*pair(2), row("ours", 1, 64)]}).state == NOT_MEASURED
    found = judge(WORST, {"allreduce": [*pair(2), row("MPI", 1, 64)]})
    assert (found.state, found.shown) == (MISSED, "2.00; ours failed in 1")


def test_what_is_just_missed_does_not_look_as_if_it_were_met() -> None:
    assert digits(0.9496, 0.95) == "0.9496"
    assert digits(0.949, 0.95) == "0.949"
    assert digits(1.2, 0.95) == "1.20"


def test_every_transport_number_of_ranks_and_size_of_allreduce_is_wanted() -> None:
    assert len(BY_KEY["allreduce-worst"].cells.wanted()) == 3 * len(SIZES)
    assert len(BY_KEY["tcp-allreduce-worst"].cells.wanted()) == 2 * len(SIZES)
    assert len(BY_KEY["collectives-worst"].cells.wanted()) == 4 * 2 * 7
    assert len(BY_KEY["half-worst"].cells.wanted()) == 2 * 3 * len(SIZES)
    assert len(BY_KEY["tcp-half-worst"].cells.wanted()) == 2 * 2 * len(SIZES)


def test_the_bound_is_compared_at_64_mib() -> None:
    rows = [row("ours", 110, 64 << 20), limit("bound", WORK, 64 << 20, 100)]
    assert of("allreduce", rows, "allreduce-64-MiB").state == MET
    rows[0] = row("ours", 120, 64 << 20)
    assert of("allreduce", rows, "allreduce-64-MiB").state == MISSED


def test_between_hosts_the_smallest_call_is_compared_with_mpi_alone() -> None:
    rows = []
    for hosts in (2, 3, 4):
        place = {"transport": f"{hosts} hosts, 1gbit", "np": hosts}
        rows += [row("ours", 2, **place), row("MPICH 5", 3, **place), row("Gloo", 1, **place)]
    assert of("net", rows, "net-8-bytes").state == MET
    rows[-2]["rounds"] = dict.fromkeys(rows[-2]["rounds"], 1.9)
    found = of("net", rows, "net-8-bytes")
    assert found.state == MISSED and "4 hosts" in found.shown


def test_the_rate_of_the_wire_counts_from_4_mib_up() -> None:
    rows = []
    for hosts in (2, 3, 4):
        place = {"transport": f"{hosts} hosts, 1gbit", "np": hosts}
        for size, ours in ((1 << 20, 2.0), (4 << 20, 1.01), (16 << 20, 1.0), (64 << 20, 1.04)):
            work = Work(f"{hosts} hosts, 1gbit", "allreduce", "float32", hosts)
            rows += [row("ours", ours, size, **place), limit("bound", work, size, 1.0)]
    assert of("net", rows, "net-line-rate").state == MET
    assert of("net", rows[:-2], "net-line-rate").state == NOT_MEASURED
    rows[6] = row("ours", 1.2, 64 << 20, transport="2 hosts, 1gbit")
    assert of("net", rows, "net-line-rate").state == MISSED


def test_a_step_is_judged_in_our_best_way_and_one_by_one() -> None:
    rows = []
    for np in (2, 4):
        place = {"transport": "torch", "kind": "gradients", "type": "1000 x 1 KiB", "np": np}
        rows += [row("ours", 9, **place), row("ours, in one group", 1, **place)]
        rows += [row("DDP", 2, **place)]
    best = of("step", rows, "step-gradients-1000-x-1-KiB-best")
    assert (best.state, best.shown[:5]) == (MET, "2.00 ")
    assert of("step", rows[:3], "step-gradients-1000-x-1-KiB-best").state == NOT_MEASURED
    assert of("step", rows, "step-gradients-1000-x-1-KiB-each").state == MISSED
    assert of("step", rows, "step-backward-1000-x-1-KiB-each").state == NOT_MEASURED


def test_our_best_way_is_chosen_by_odd_rounds_and_judged_by_even_ones() -> None:
    place = {"transport": "torch", "kind": "gradients", "type": "ResNet-50"}
    lucky = row("ours, in one group", 4, **place)
    lucky["rounds"] = {number: 1 if int(number) % 2 == 0 else 4 for number in lucky["rounds"]}
    rows = [row("ours", 2, **place), lucky, row("DDP", 4, **place)]
    assert best_ratios(rows)[cell_of(rows[0])].value == 2


def test_times_and_bytes_are_compared_with_their_targets() -> None:
    what = "4 bytes, to the result"
    work = Work("torch", "overhead", what, 2)
    place = {"transport": "torch", "kind": "overhead", "type": what}
    rows = [row("ours", 12, 4, **place), limit("target", work, 4, 10.0)]
    found = of("overhead", rows, "4-bytes-result")
    assert (found.wanted, found.shown, found.state) == ("at most 10.0 us", "12.0 us", MISSED)
    held = []
    for transport, mib in (("shm", 6), ("tcp", 8)):
        of_memory = Work(transport, "memory", "core", 2)
        held += [limit("target", of_memory, 0, 10 << 20)]
        held += [row("ours", mib << 20, 0, transport=transport, kind="memory", type="core")]
    found = of("overhead", held, "memory-core")
    assert found.state == MET and found.shown == "8.0 MiB (memory core, np 2, tcp)"


def faults_of(kind: str, moment: str, goal: float, *us: float) -> list[Row]:
    """Trials of a fault, as bench/faults.py stores them."""
    work = Work("one host", kind, moment, 4)
    return [row_of("ours", work, 0, us), limit("target", work, 0, goal)]


def test_the_slowest_trial_of_a_fault_is_compared_with_the_goal_of_its_cell() -> None:
    rows: list[Row] = []
    for kind in goals.ENDS:
        rows += faults_of(kind, "negotiation", 200, 10, 20, 30)
    assert of("faults", rows, "faults-end").state == MET
    rows += faults_of("kill -9", "init", 200, 10, 20, 201)
    found = of("faults", rows, "faults-end")
    assert (found.wanted, found.state) == ("at most 200 us", MISSED)
    assert found.shown == "201 us (kill -9 init, np 4, one host)"
    assert of("faults", rows[2:-2], "faults-end").state == NOT_MEASURED


def test_the_next_step_of_an_elastic_job_has_a_goal_of_its_own() -> None:
    rows = faults_of("kill -9", goals.ELASTIC[0], 1000, 900, 990)
    rows += faults_of("SIGSTOP", goals.ELASTIC[1], 2000, 1900, 2100)
    found = of("faults", rows, "faults-elastic")
    assert found.state == MISSED and found.shown.startswith("2100 us (SIGSTOP training ")
    for kind in goals.ENDS:
        rows += faults_of(kind, "negotiation", 200, 10)
    assert of("faults", rows, "faults-end").shown.startswith("10.0 us (")


def test_every_fault_of_the_bench_has_a_goal() -> None:
    listed = [goal.cells for goal in GOALS if goal.cells.bench == "faults"]
    for cell in faults.CELLS:
        work = Work("", cell.fault, cell.when, 4)
        assert sum(cells.have((work, 0)) for cells in listed) == 1, cell.text()


def steps(**rounds: list[float]) -> list[Row]:
    """A training step at np 1: us of the first rounds, by contestant."""
    place = {"transport": "torch", "kind": "overhead", "type": "training step", "np": 1}
    names = {"again": "without us, again", "without": "without us"}
    return [
        row(names.get(name, name), 100, 0, **place)
        | {"rounds": {str(number): us for number, us in enumerate(times, 1)}}
        for name, times in rounds.items()
    ]


def test_our_optimizer_must_cost_no_more_than_what_two_runs_without_us_differ_by() -> None:
    without, again = [100.0, 110.0, 120.0], [104.0, 106.0, 124.0]  # 4 us apart in each round
    rows = steps(ours=[103.0, 111.0, 125.0], without=without, again=again)
    found = of("overhead", rows, "alone")
    assert found.state == MET and found.shown == "+3.00 us, on 108 us"
    rows = steps(ours=[108.0, 114.0, 129.0], without=without, again=again)
    assert of("overhead", rows, "alone").state == MISSED
    alone = of("overhead", steps(ours=without, without=again), "alone")
    assert (alone.wanted, alone.shown, alone.state) == ("-", "-", NOT_MEASURED)


@pytest.mark.parametrize(("what", "file", "test"), TESTED)
def test_what_no_bench_shows_is_shown_by_a_test_that_is_there(
    what: str, file: str, test: str
) -> None:
    assert re.search(rf"\b{test}\b", (ROOT / file).read_text()), what

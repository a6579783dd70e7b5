"""How the benches judge: nobody is chosen and judged by the same numbers, and a gap is no win."""

from __future__ import annotations

import itertools
import json
import math
import os
import platform
import sys
from pathlib import Path

import pytest
from bench_rows import WORK, document, row
from harness import bounds, curves, loopback, machine, options, shapes, spawn, svg
from harness.jobs import Ended, Launch, complaint_in, rows_in, run
from harness.namespaces import inside
from harness.results import (
    Work,
    collapse,
    last_line,
    of_before,
    verdicts,
)
from harness.rounds import Contestant, Outcome, Sizes, order, run_rounds
from harness.tables import gaps, tables, works
from harness.verdict import geometric_mean, judge

# ---- who is best, and by how much --------------------------------------------------------------


def test_the_best_peer_is_chosen_by_odd_rounds_and_judged_by_even_ones() -> None:
    ours = {1: 100.0, 2: 2.0, 3: 100.0, 4: 2.0}
    lucky = {1: 1.0, 2: 8.0, 3: 1.0, 4: 8.0}
    steady = {1: 4.0, 2: 4.0, 3: 4.0, 4: 4.0}
    verdict = judge(ours, {"lucky": lucky, "steady": steady})
    assert verdict is not None
    assert (verdict.peer, verdict.best, verdict.ours, verdict.ratio) == ("lucky", 8.0, 2.0, 4.0)


def test_a_peer_without_numbers_is_neither_chosen_nor_beaten() -> None:
    verdict = judge({1: 1.0, 2: 1.0}, {"absent": {}, "there": {1: 3.0, 2: 3.0}})
    assert verdict is not None and verdict.peer == "there"
    alone = judge({1: 1.0, 2: 1.0}, {"absent": {}})
    assert alone is not None and alone.peer is None and alone.ratio is None


def test_a_peer_needs_both_kinds_of_rounds() -> None:
    verdict = judge({1: 1.0, 2: 1.0}, {"once": {1: 0.1}, "twice": {1: 2.0, 2: 2.0}})
    assert verdict is not None and verdict.peer == "twice"


def test_a_peer_that_was_left_behind_is_not_judged_by_its_first_rounds() -> None:
    ours = dict.fromkeys(range(1, 10), 2.0)
    left = {1: 1.0, 2: 1.0, 3: 1.0}  # then the machine grew slower
    verdict = judge(ours, {"left": left, "stayed": dict.fromkeys(range(1, 10), 3.0)})
    assert verdict is not None and verdict.peer == "stayed"


def test_where_we_have_no_numbers_there_is_no_verdict() -> None:
    assert judge({}, {"peer": {1: 1.0, 2: 1.0}}) is None
    assert judge({1: 1.0}, {"peer": {1: 1.0, 2: 1.0}}) is None


def test_the_geometric_mean_of_a_half_and_a_double_is_one() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)
    assert math.isnan(geometric_mean([]))


def test_neither_the_bound_nor_another_build_of_ours_is_a_peer() -> None:
    rows = [row("ours", 2), row("bound", 1), row("before", 1), row("ours, float32", 1)]
    assert verdicts(rows)[(WORK, 8)].peer is None
    assert last_line(verdicts(rows)) == "no cell has both us and a peer"


def test_tables_are_in_order_of_ranks_whichever_were_measured_last() -> None:
    rows = [row("ours", 1, np=4, kind=kind) for kind in ("allgather", "broadcast")]
    rows += [row("ours", 1, np=2, kind="allgather"), row("ours", 1, np=8, kind="allgather")]
    found = [(work.kind, work.np) for work in works(rows)]
    assert found == [("allgather", 2), ("allgather", 4), ("allgather", 8), ("broadcast", 4)]
    rows = [row("ours", 1, transport=f"{hosts} hosts", np=hosts) for hosts in (3, 4, 2)]
    assert [work.np for work in works(rows)] == [2, 3, 4]


def test_lines_are_drawn_in_the_same_order_each_time_and_ours_last() -> None:
    names = ["ours", "bound", *"dacb"]
    lines = curves.lines_of([row(name, 1) for name in names], lambda row: 1.0)
    assert [line.name for line in lines] == [*"abcd", "bound", "ours"]


def test_other_ways_of_using_us_are_compared_on_a_line_of_their_own() -> None:
    rows = [row("ours", 2), row("ours, in one group", 1), row("MPI", 4)]
    assert verdicts(rows)[(WORK, 8)].ratio == 2
    (text,) = tables(rows, [WORK])
    lines = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in text.splitlines()}
    assert lines["best peer / ours"] == "2.00"
    assert lines["best peer / ours, in one group"] == "4.00"


def test_memory_is_not_a_time_and_has_no_ratio() -> None:
    used = {"kind": "memory", "type": "core", "bytes": 0}
    rows = [row("ours", 3 << 20, **used), row("Gloo", 1 << 20, **used)]
    assert verdicts(rows) == {}
    (text,) = tables(rows, [Work.of(rows[0])])
    assert "3.0 MiB" in text and "best peer" not in text


def test_an_older_document_gives_our_rows_in_the_cells_that_were_measured(tmp_path: Path) -> None:
    rows = [row("ours", 3), row("ours", 3, 64), row("MPI", 3)]
    document("allreduce", rows).save(tmp_path / "a.json")
    (older,) = of_before(tmp_path / "a.json", [row("ours", 2)])
    assert (older["peer"], older["bytes"], older["median_us"]) == ("before", 8, 3)
    assert of_before(None, rows) == []


def test_the_last_line_has_the_worst_cell_and_the_mean() -> None:
    rows = [row("ours", 2), row("MPI", 1), row("ours", 2, 1024), row("MPI", 8, 1024)]
    line = last_line(verdicts(rows))
    assert line.startswith("worst cell 0.50 (8 B, allreduce float32, np 2, shm, MPI)")
    assert line.endswith("geometric mean 1.41 over 2 cells")


# ---- rounds ------------------------------------------------------------------------------------


def test_everybody_runs_once_a_round_and_everybody_begins_some_round() -> None:
    orders = [order(4, number) for number in range(1, 10)]
    assert all(sorted(found) == [0, 1, 2, 3] for found in orders)
    assert {found[0] for found in orders} == {0, 1, 2, 3}


def test_who_follows_whom_changes() -> None:
    followers = [pair for number in range(1, 5) for pair in itertools.pairwise(order(4, number))]
    assert len(followers) == len(set(followers)) == 12  # every pair, once


def test_a_contestant_that_fails_twice_is_left_out_and_named() -> None:
    calls = {"good": 0, "bad": 0}

    def contestant(name: str, ended: Ended) -> Contestant:
        def once(sizes: Sizes | None) -> Ended:
            calls[name] += 1
            return ended

        return Contestant(name, once)

    good = Ended(0, [{"bytes": 8, "median_us": 1.0}], "", 0.1)
    outcome = run_rounds([contestant("good", good), contestant("bad", Ended(None, [], "", 1))], 5)
    assert calls == {"good": 5, "bad": 2}
    assert outcome.missing == {"bad": "ran over its time"}
    assert [found["round"] for found in outcome.rows] == [1, 2, 3, 4, 5]


def test_only_those_go_on_that_could_be_the_best_peer() -> None:
    asked: dict[str, list[Sizes | None]] = {}

    def contestant(name: str, times: dict[int, float]) -> Contestant:
        def once(sizes: Sizes | None) -> Ended:
            asked.setdefault(name, []).append(sizes)
            wanted = times if sizes is None else sizes
            return Ended(0, [{"bytes": n, "median_us": times[n]} for n in wanted], "", 0.1)

        return Contestant(name, once, always=name == "ours")

    entered = {
        "ours": {8: 9.0, 64: 0.1},  # Horovod itself is never the best peer
        "small": {8: 1.0, 64: 9.0},
        "large": {8: 1.4, 64: 2.0},
        "slow": {8: 1.6, 64: 3.1},
    }
    outcome = run_rounds([contestant(name, times) for name, times in entered.items()], 5)
    assert asked["ours"] == [None] * 5
    assert asked["small"] == [None] * 3 + [{8}] * 2
    assert asked["large"] == [None] * 3 + [{8, 64}] * 2
    assert asked["slow"] == [None] * 3
    assert not outcome.missing
    assert len([row for row in outcome.rows if row["peer"] == "slow"]) == 6


def test_a_wrong_result_is_no_result() -> None:
    times = {**vars(WORK), "bytes": 8, "median_us": 1.0, "min_us": 1.0, "round": 1}
    right = {"peer": "MPI", **times, "correct": True}
    outcome = Outcome([right, {**right, "round": 2, "correct": False}, {**right, "round": 3}])
    assert collapse(outcome) == []
    assert "wrong" in outcome.missing["MPI"]


# ---- jobs --------------------------------------------------------------------------------------


def python(code: str, limit_s: float = 30) -> Ended:
    return run(Launch([sys.executable, "-c", code], {}), limit_s)


def test_rows_are_found_behind_what_a_launcher_writes() -> None:
    assert rows_in('[0]<stdout>:{"a": 1}\nnoise {\n{"b": 2} end\n') == [{"a": 1}, {"b": 2}]


def test_a_job_that_hangs_is_ended_and_keeps_what_it_printed() -> None:
    ended = python("print('{\"a\": 1}', flush=True); import time; time.sleep(1000)", 1)
    assert ended.code is None and ended.rows == [{"a": 1}]
    assert ended.why == "ran over its time"


def test_a_job_without_rows_or_with_a_bad_end_has_a_reason() -> None:
    assert python("print('{\"a\": 1}')").why == ""
    assert python("pass").why
    assert "ended with 3" in python("raise SystemExit(3)").why
    said = python("import sys; print('missing: no such type', file=sys.stderr); sys.exit(77)")
    assert said.why == "no such type"


def test_the_most_telling_line_of_an_error_stream_is_kept() -> None:
    text = "warm up\nFatal error in MPI_Init: nothing works\n/lib/x.so(+0x1)\n----"
    assert complaint_in(text) == "Fatal error in MPI_Init: nothing works"
    assert complaint_in("one\ntwo\n\n") == "two"


@pytest.mark.skipif(os.geteuid() != 0, reason="a network can be made by root alone")
def test_nothing_paces_what_jobs_send_over_loopback_and_the_machine_keeps_its_network() -> None:
    code = """
import json, os, socket
one = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(one.getsockname()) as there:
    how = there.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
at = os.readlink("/proc/self/ns/net")
print(json.dumps({"control": how.rstrip(bytes(1)).decode(), "at": at}))
"""
    first, second = python(code).rows + python(code).rows
    assert first["control"] == loopback.WITHOUT_PACING
    assert first["at"] == second["at"] != os.readlink("/proc/thread-self/ns/net")


def test_ranks_that_are_spawned_know_their_place_and_end_together() -> None:
    code = "import os; e = os.environ; print({k: e[k] for k in ('RANK', 'WORLD_SIZE')})"
    command = [sys.executable, spawn.__file__, "-n", "2", "--", sys.executable, "-c", code]
    assert run(Launch(command, {}), 30).code == 0
    failing = "import os, time; os.environ['RANK'] == '1' and exit(5); time.sleep(1000)"
    command[-1] = failing
    assert run(Launch(command, {}), 30).code == 5


def test_a_host_is_called_by_its_address() -> None:
    assert "10.77.0.2" in inside("hvdbench-2", ["true"])


# ---- options -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["2", "4", "8"], ["2,4,8"], ["2,4", "8"]])
def test_lists_take_commas_and_spaces(words: list[str]) -> None:
    made = options.parser("about", [2], [8], ["mpich4"])
    assert made.parse_args(["--np", *words]).np == [2, 4, 8]
    assert made.parse_args(["--sizes", "16K,1M"]).sizes == [16 << 10, 1 << 20]
    assert made.parse_args([]).np == [2]


def test_two_builds_cannot_be_compared_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["step.py", "--before", str(tmp_path)])
    with pytest.raises(SystemExit):
        options.parse(options.parser("about", [2], None, []))
    assert "give the JSON" in capsys.readouterr().err


# ---- tables and pages --------------------------------------------------------------------------


def test_a_gap_is_shown_as_one() -> None:
    rows = [row("ours", 2), row("ours", 2, 1024), row("MPI", 1)]
    (text,) = tables(rows, [WORK])
    assert [cell.strip() for cell in text.splitlines()[3].split("|")][1:4] == [
        "MPI",
        "**1.00 us**",
        "-",
    ]
    assert text.splitlines()[-1].split("|")[3].strip() == "-"
    missing = [{**vars(WORK), "peer": "MPI", "why": "no such type"}]
    assert gaps(missing) == "missing: MPI, allreduce float32, np 2, shm: no such type"


def test_works_of_one_size_share_a_table() -> None:
    rows = [row(peer, us, type=name) for name in "ab" for peer, us in (("ours", 1), ("DDP", 2))]
    found = [Work("shm", "allreduce", name, 2) for name in "ab"]
    (text,) = tables(rows, found)
    assert "a, np 2" in text and "b, np 2" in text


def test_what_has_one_size_is_drawn_as_bars() -> None:
    rows = [row(peer, us) for peer, us in (("ours", 2), ("DDP", 4))]
    text = svg.bars(rows, [WORK])
    assert text.count("<rect") == 3 and "4.00 us" in text


def test_a_picture_has_a_line_a_peer_and_the_bound_dashed() -> None:
    rows = [row(p, us, s) for s in (8, 64) for p, us in (("ours", 2), ("MPI", 3), ("bound", 1))]
    text = svg.curves(rows, [WORK])
    assert text.count("<polyline") == 6 and text.count("stroke-dasharray") == 3
    assert json.dumps(text).isascii()


def test_a_line_has_a_gap_where_a_size_was_not_measured() -> None:
    rows = [row("ours", size, size) for size in (8, 64, 512, 4096)]
    rows += [row("MPI", size, size) for size in (8, 512, 4096)]
    panel, _ = curves.panels_of(WORK, rows)
    gaps = {line.name: len(panel.stretches(line)) for line in panel.lines}
    assert gaps == {"ours": 1, "MPI": 2}
    text = svg.curves(rows, [WORK])
    assert text.count("<polyline") == 2 * (1 + 2)
    assert text.count("<circle") == 2 * (4 + 3)  # a stretch of one point is a point


def test_a_cpu_is_told_by_name_and_generation() -> None:
    text = "processor : 0\ncpu family : 25\nmodel : 1\nmodel name : AMD EPYC\n\nflags :"
    assert machine.cpu(text) == "AMD EPYC (family 25, model 1)"
    assert machine.cpu("model name : X\n") == "X"
    assert machine.cpu("processor : 0\n") == platform.machine()


# ---- what is known without measuring -----------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "count", "parameters"),
    [
        ("ResNet-50", 161, 25_557_032),
        ("BERT-large", 391, 335_141_888),
        ("21 layers", 42, 5_253_633),
        ("1000 x 1 KiB", 1000, 256_000),
    ],
)
def test_networks_have_as_many_parameters_as_published(
    network: str, count: int, parameters: int
) -> None:
    made = shapes.NETWORKS[network]()
    assert len(made) == count
    assert shapes.float_bytes(made) == 4 * parameters


def test_nobody_sends_less_than_the_bound_says() -> None:
    assert bounds.traffic("allreduce", 2) == 1
    assert bounds.traffic("allreduce", 4) == 1.5
    assert bounds.traffic("allgather", 4) == 0.75
    assert bounds.traffic("broadcast", 4) == 1  # each rank but the root receives all of it

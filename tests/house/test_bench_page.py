"""What is stored and told of results: whence each is, how to repeat it, and what falls short."""

from __future__ import annotations

import argparse
import json
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import report
from bench_rows import WORK, document, gap, row, run_of
from harness import calls, details, goals, gpus, page, provenance, reasons, sections, together
from harness.jobs import Ended
from harness.places import PAGE, RESULTS, ROOT, TABLES
from harness.results import Document, Work, command_line, load

NP_4 = Work("shm", "allreduce", "float32", 4)
DAY = "2026-01-01 00:00"


def values(found: Document) -> list[tuple[str, int, float]]:
    return [(row["peer"], row["bytes"], row["median_us"]) for row in found.rows]


# ---- what is stored ----------------------------------------------------------------------------


def test_measuring_some_sizes_again_keeps_the_others() -> None:
    found = document("allreduce", [row("ours", 1), row("ours", 2, 1024)])
    found.replace([WORK], [row("ours", 3, 1024)], [], [1024])
    assert values(found) == [("ours", 8, 1), ("ours", 1024, 3)]


def test_figures_of_those_who_fail_now_are_dropped() -> None:
    found = document("allreduce", [row(p, 1, size) for p in ("ours", "MPI") for size in (8, 64)])
    found.replace([WORK], [row("ours", 2)], [gap("MPI")], [8])
    assert values(found) == [("ours", 64, 1), ("MPI", 64, 1), ("ours", 8, 2)]


def test_where_everybody_fails_no_older_figure_stays() -> None:
    found = document("start", [row("ours", 1, 0), row("ours", 1, 0, np=4)])
    found.replace([WORK], [], [gap("ours"), gap("MPI")])
    assert [row["np"] for row in found.rows] == [4]
    assert [row["peer"] for row in found.missing] == ["ours", "MPI"]
    found.replace([], [], [gap("ours", np=4)])  # what is told as missing was asked for
    assert found.rows == []


def test_each_work_keeps_the_day_the_machine_and_the_rounds_of_its_own(tmp_path: Path) -> None:
    found = document("allreduce", [row("ours", 1), row("ours", 1, np=4)])
    found.run = run_of("2026-02-02 00:00", "--np 4", cores=8)
    found.replace([NP_4], [row("ours", 1, np=4, rounds=3)], [], [8])
    found.save(tmp_path / "a.json")
    again = load(tmp_path / "a.json")
    assert again.origins == [
        {**vars(WORK), "sizes": [8], "rounds": 9, **run_of(DAY)},
        {**vars(NP_4), "sizes": [8], "rounds": 3, **run_of("2026-02-02 00:00", "--np 4", cores=8)},
    ]
    assert (again.path, again.run) == (tmp_path / "a.json", {})


def test_a_work_that_was_measured_in_parts_has_an_origin_of_each() -> None:
    found = document("allreduce", [row("ours", 1), row("ours", 1, 64)])
    found.run = run_of("2026-02-02 00:00")
    found.replace([WORK], [row("ours", 2, 64)], [], [64])
    assert [(one["sizes"], one["date"][:7]) for one in found.origins] == [
        ([8], "2026-01"),
        ([64], "2026-02"),
    ]
    text = provenance.of_section([found], provenance.places([found]))
    assert f"- 2026-02-02 00:00, 9 rounds: {WORK} (64 B)" in text


def arguments_of(json: Path) -> argparse.Namespace:
    given = {"ours": json.parent, "np": [2], "sizes": [8], "rounds": 1, "seconds": 1.0, "limit": 1}
    given |= {"plot": None, "before": None, "peers": None, "machine": None}
    return argparse.Namespace(json=json, **given)


def test_calls_of_which_none_ended_leave_no_older_figure_of_their_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "a.json"
    document("allreduce", [row("ours", 1), row("ours", 1, 64)]).save(stored)
    monkeypatch.setattr(calls, "contestants", lambda arguments, transport: [])
    monkeypatch.setattr(calls, "measure", lambda *given: ([], [gap("ours")]))
    assert calls.main("allreduce", [WORK], arguments_of(stored)) == 1
    assert values(load(stored)) == [("ours", 64, 1)]


def test_the_same_on_a_machine_with_a_name_stands_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "a.json"
    document("allreduce", [row("ours", 1)]).save(stored)
    asked: list[object] = []

    def measure(work: Work, entered: object, bound: Any, arguments: object) -> Any:
        asked.append(bound.args[0])
        return [{**row("ours", 2), **vars(work)}], []

    monkeypatch.setattr(calls, "contestants", lambda arguments, transport: asked.append(transport))
    monkeypatch.setattr(calls, "measure", measure)
    arguments = arguments_of(stored)
    arguments.machine = "16 cores"
    assert calls.main("allreduce", [WORK], arguments) == 0
    assert asked == ["shm", WORK]
    found = {row["transport"]: row["median_us"] for row in load(stored).rows}
    assert found == {"shm": 1, "shm, 16 cores": 2}
    assert [origin["transport"] for origin in load(stored).origins] == ["shm", "shm, 16 cores"]


def test_wrong_results_of_everybody_leave_no_older_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "a.json"
    document("step", [row("ours", 1)]).save(stored)
    wrong = {"peer": "ours", **vars(WORK), "bytes": 8, "round": 1, "median_us": 2, "min_us": 2}
    ended = Ended(0, [wrong | {"correct": False}], "", 1)
    monkeypatch.setattr(together, "python_job", lambda *given: None)
    monkeypatch.setattr(together, "run", lambda launch, limit: ended)
    bench = together.Bench("step", "", lambda np: [WORK])
    assert together.main(bench, arguments_of(stored)) == 1
    assert load(stored).rows == []
    assert [row["why"] for row in load(stored).missing] == ["a wrong result at 8 bytes"]


# ---- what is told of it ------------------------------------------------------------------------


def test_the_command_that_is_told_has_no_folders_of_ours() -> None:
    words = ["--np", "2", "--json", "x.json", "--ours", "b", "--quick", "--networks", "a b"]
    assert command_line(words) == "--np 2 --quick --networks 'a b'"
    assert command_line(["--json=x", "--limit", "20"]) == "--limit 20"


def test_commands_write_the_files_that_the_report_is_made_of() -> None:
    found = document("allreduce", [row("ours", 1), row("ours", 1, np=4)])
    found.origins[0]["command"] = "--np 2 --limit 20"
    found.path = RESULTS / "allreduce-tcp.json"
    assert provenance.commands([found], TABLES) == [
        "./dev bench allreduce --np 2 --limit 20 --json docs/performance/allreduce-tcp.json",
        "./dev bench allreduce --json docs/performance/allreduce-tcp.json",
        "./dev bench report --tables build/performance/tables.md",
    ]


def test_tables_elsewhere_are_repeated_elsewhere(tmp_path: Path) -> None:
    found = document("train", [row("ours", 1)])
    found.path = tmp_path / "train.json"
    assert provenance.commands([found], tmp_path / "tables.md") == [
        f"./dev bench train --json {tmp_path}/train.json",
        f"./dev bench report {tmp_path} --tables {tmp_path}/tables.md",
    ]


def test_commands_come_in_their_order_without_those_that_were_replaced() -> None:
    found = document("allreduce", [row("ours", 1), row("ours", 1, 64), row("ours", 1, np=4)])
    found.run = run_of("2026-02-02 00:00", "--np 4")
    found.replace([NP_4], [row("ours", 2, np=4)], [])
    found.run = run_of("2026-03-03 00:00", "--sizes 64")
    found.replace([WORK], [row("ours", 2, 64)], [], [64])
    options = [line.split()[3:5] for line in provenance.commands([found], TABLES)]
    assert options[1:3] == [["--np", "4"], ["--sizes", "64"]]
    found.replace([WORK], [row("ours", 2, 8)], [], [8])
    assert len(provenance.commands([found], TABLES)) == 3


def test_a_section_says_how_often_was_measured_and_where_that_differs() -> None:
    rows = [row("ours", 1, np=np, rounds=3 if np == 4 else 9) for np in (2, 4, 8)]
    found = document("start", rows)
    text = provenance.of_section([found], provenance.places([found]))
    assert text == f"Measured {DAY}, 9 rounds; but\n\n- {DAY}, 3 rounds: {NP_4}\n"
    alike = document("start", rows[:1], [gap("ours", np=64)])
    assert (
        provenance.of_section([alike], provenance.places([alike])) == f"Measured {DAY}, 9 rounds.\n"
    )


def test_several_machines_are_counted_and_what_was_installed_is_gathered() -> None:
    found = document("start", [row("ours", 1)])
    found.run = run_of(DAY, versions={"x": "2", "y": "3"})
    found.replace([], [row("ours", 1, np=4)], [])
    assert "Linux 6. Measured: start" in provenance.where([found])
    assert "Installed: x 1 and 2, y 3." in provenance.where([found])
    found.run = run_of(DAY, cores=8)
    found.replace([], [row("ours", 1, np=8)], [])
    assert "**Machine 2**: a, 8 cores" in provenance.where([found])
    assert "machine 2: allreduce" in provenance.of_section([found], provenance.places([found]))


# ---- the report and its tables -----------------------------------------------------------------


def test_the_report_has_its_goals_an_overview_and_what_falls_short(tmp_path: Path) -> None:
    rows = [row(peer, us, size) for size in (8, 64, 512) for peer, us in (("ours", 2), ("MPI", 1))]
    document("allreduce", rows, [gap("Gloo")]).save(tmp_path / "results" / "a.json")
    page.write(page.documents(tmp_path / "results"), tmp_path / "performance.md")
    text = (tmp_path / "performance.md").read_text()
    assert "Cells below 0.95: 3" in text
    assert "| blocking | Allreduce, float32, np 2, shm | 3     | 0.50 " in text
    (drawn,) = (tmp_path / "performance").glob("*.svg")
    assert f"(performance/{drawn.name})" in text
    counted = len(goals.GOALS)
    assert f"1 missed, {counted - 1} not measured." in text
    assert text.count("| by a test ") == 2


def test_the_overview_takes_the_fastest_way_of_using_ours(tmp_path: Path) -> None:
    rows = [row("ours", 4), row("ours, in one group", 1), row("MPI", 2)]
    line = page.overview([document("step", rows)]).splitlines()[-1]
    assert line.startswith("| training | Gradients of a step") and "| 2.00 " in line


def test_the_tables_have_every_bench_its_gaps_and_its_commands(tmp_path: Path) -> None:
    rows = [row(peer, us, size) for size in (8, 64, 512) for peer, us in (("ours", 2), ("MPI", 1))]
    document("half", rows, [gap("Gloo")]).save(tmp_path / "results" / "a.json")
    details.write(page.documents(tmp_path / "results"), tmp_path / "tables.md")
    text = (tmp_path / "tables.md").read_text()
    assert "Gloo: is not there" in text and f"Measured {DAY}, 9 rounds.\n" in text
    assert f"./dev bench half --json {tmp_path}/results/a.json" in text
    (drawn,) = (tmp_path / "tables").glob("*.svg")
    assert f"(tables/{drawn.name})" in text


def test_figures_of_gpus_are_shown_with_device_and_date(tmp_path: Path) -> None:
    assert "Not measured" in gpus.section(tmp_path / "gpu")
    rows = {"plain step, ms": 12.345}
    result = {"device": "H100", "torch": "2.11", "date": "2026-01-02", "rows": rows}
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "h100.json").write_text(json.dumps(result))
    text = gpus.section(tmp_path / "gpu")
    assert "H100, torch 2.11, 2026-01-02." in text
    assert "plain step, ms" in text and "12.3" in text and "Not measured" not in text


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"copy kernel, pieces of 1 MiB, GB/s": 85.0}, ""),
        (
            {"copy kernel, pieces of 1 MiB, GB/s": 86.0, "copy by the driver, GB/s": 100.0},
            "at least 85.00 (0.85 x copy by the driver): met",
        ),
        (
            {"copy kernel, pieces of 1 MiB, GB/s": 84.0, "copy by the driver, GB/s": 100.0},
            "at least 85.00 (0.85 x copy by the driver): missed",
        ),
        ({"bundle of 160 gradients, us per gradient": 0.9}, "at most 1.00: met"),
        ({"bundle of 160 gradients, us per gradient": 1.1}, "at most 1.00: missed"),
        (
            {
                "GPT: step with DistributedOptimizer, ms": 103.0,
                "GPT: plain step, ms": 100.0,
                "GPT: step with DistributedDataParallel, ms": 104.0,
            },
            "at most 102.00 (1.02 x GPT: plain step): missed; "
            "at most 104.00 (1 x GPT: step with DistributedDataParallel): met",
        ),
    ],
)
def test_figures_of_gpus_are_compared_with_their_goals(
    rows: dict[str, float], expected: str
) -> None:
    text = gpus.shown({"device": "H100", "torch": "2.11", "date": "2026-01-02", "rows": rows})
    (line,) = [one for one in text.splitlines() if one.startswith(f"| {next(iter(rows))}")]
    assert line.split("|")[3].strip() == expected


def test_the_committed_report_is_one_page_with_three_pictures() -> None:
    text = PAGE.read_text()
    assert len(text.splitlines()) <= 300
    shown = [line for line in text.splitlines() if line.startswith("![")]
    assert len(shown) == len(sections.SHOWN) == len(list(RESULTS.glob("*.svg")))


def test_the_committed_report_is_that_of_the_stored_results(tmp_path: Path) -> None:
    page.write(page.documents(RESULTS), tmp_path / "docs" / "performance.md")
    written = (tmp_path / "docs" / "performance.md").read_text()
    assert without_links(written) == without_links(PAGE.read_text())


def test_the_readme_shows_figures_of_the_report() -> None:
    assert page.headlines(page.documents(RESULTS)) in (ROOT / "README.md").read_text()


def without_links(text: str) -> list[str]:
    """Links to tests are relative to where the report lies."""
    return [" ".join(line.split()) for line in text.splitlines() if is_text(line)]


def is_text(line: str) -> bool:
    return "by a test" not in line and not line.startswith("|--")


def test_what_falls_just_short_is_not_rounded_to_the_limit(tmp_path: Path) -> None:
    rows = [row("ours", 1000), row("MPI", 948)]
    document("allreduce", rows).save(tmp_path / "results" / "a.json")
    page.write(page.documents(tmp_path / "results"), tmp_path / "performance.md")
    text = (tmp_path / "performance.md").read_text()
    assert text.count("0.948") == 3 and "| MPI, 948 us | 0.948 " in text


def test_reasons_are_on_the_page_without_what_they_are_found_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "FILE", tmp_path / "reasons.md")
    reasons.FILE.write_text("- **Slow.** Why.\n  <!-- explains: a; b -->\n- **More.**\n")
    document("allreduce", [row("ours", 2)]).save(tmp_path / "results" / "a.json")
    page.write(page.documents(tmp_path / "results"), tmp_path / "performance.md")
    text = (tmp_path / "performance.md").read_text()
    assert "- **Slow.** Why.\n- **More.**\n" in text and "explains" not in text


def test_what_falls_short_without_a_reason_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(peer, us, size) for size in (8, 64) for peer, us in (("ours", 2), ("MPI", 1))]
    document("allreduce", rows).save(tmp_path / "results" / "a.json")
    monkeypatch.setattr(reasons, "FILE", tmp_path / "reasons.md")
    arguments = ["report.py", str(tmp_path / "results"), "--to", str(tmp_path / "page.md")]
    monkeypatch.setattr(sys, "argv", arguments)
    reasons.FILE.write_text("- **It is small.**\n  <!-- explains: x;\n  8 B, *, np 2, shm -->\n")
    assert report.main() == 0
    told = capsys.readouterr().err.splitlines()
    assert [line.split(" for ")[1] for line in told] == ["allreduce-worst", f"64 B, {WORK}"]
    reasons.FILE.write_text("- **All.**\n  <!-- explains: allreduce-worst; * shm -->\n")
    report.main()
    assert capsys.readouterr().err == ""


def test_reasons_name_goals_that_there_are() -> None:
    listed = ";".join(reasons.EXPLAINS.findall(reasons.read())).split(";")
    named = [name.strip() for name in listed if ", np " not in name]  # the others are cells
    keys = [goal.key for goal in goals.GOALS]
    assert named
    assert [name for name in named if not any(fnmatchcase(key, name) for key in keys)] == []

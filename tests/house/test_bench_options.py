"""What the benches can be asked for, what a run of all of them asks for, and how peers are set."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from pathlib import Path

import kernel
import pytest
import start
from hang_causes import CAUSES
from harness import hosted, installing, options, peers, pictures, sections
from harness.places import PROGRAMS, ROOT, cores
from harness.results import Document, Row, Work, limit

from devtool import setup

every = importlib.import_module("all")  # the bench of that name, which is no package's
CROWDED = cores() + 1


def row(work: Work, peer: str, size: int) -> Row:
    return limit(peer, work, size, 2.0)


# ---- a run of all ------------------------------------------------------------------------------


def cells() -> set[tuple[str, str, str]]:
    """Bench, transport and number of ranks of every step that is of blocking calls."""
    found = set()
    for made in every.STEPS:
        if made.bench in ("allreduce", "half", "collectives"):
            transport = "tcp" if "tcp" in made.words else "shm"
            found.add((made.bench, transport, made.words[made.words.index("--np") + 1]))
    return found


def test_a_run_of_all_has_every_kind_of_call_at_every_number_of_ranks() -> None:
    shm = {("allreduce", "shm", np) for np in "248"} | {("half", "shm", np) for np in "248"}
    shm |= {("collectives", "shm", np) for np in "24"}
    tcp = {(bench, "tcp", np) for bench in ("allreduce", "half", "collectives") for np in "24"}
    assert cells() == shm | tcp


def test_a_run_of_all_has_the_largest_network_at_four_ranks_and_64_mib_on_all_hosts() -> None:
    words = [made.words for made in every.STEPS]
    assert any("BERT-large" in found and "4" in found for found in words)
    nets = [made.words for made in every.STEPS if made.bench == "net"]
    assert nets and all("64M" in found[found.index("--sizes") + 1].split(",") for found in nets)


@pytest.mark.parametrize("made", every.STEPS, ids=lambda made: " ".join([made.bench, *made.words]))
def test_every_step_is_one_that_its_bench_takes(
    made: every.Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{made.bench}.py", *made.words, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(made.bench).main()
    assert ended.value.code == 0
    assert made.bench in sections.SECTIONS


# ---- peers and pictures that are asked for -----------------------------------------------------


@pytest.mark.parametrize("bench", ["allreduce", "half", "collectives", "net", "step", "overhead"])
def test_peers_that_nobody_knows_are_refused_with_those_that_are_known(
    bench: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{bench}.py", "--peers", "mpich3"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(bench).main()
    text = capsys.readouterr().err
    assert ended.value.code == 2 and "'mpich3' is none of" in text and "gloo" in text


def test_peers_without_shared_memory_are_refused_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["allreduce.py", "--peers", "mpich4,gloo"])
    with pytest.raises(SystemExit):
        importlib.import_module("allreduce").main()
    assert "gloo: over shm there are openmpi4, openmpi5, mpich4" in capsys.readouterr().err


def test_launchers_are_chosen_as_peers_are(tmp_path: Path) -> None:
    alone = start.jobs(tmp_path, Work("one host", "start", "true", 2), 1, ["none"])
    assert list(alone[0]) == ["ours"]
    beside = start.jobs(tmp_path, Work("one host", "start", "true", 2), 1, ["torchrun"])
    assert list(beside[0]) == ["ours", "torchrun"]
    torch = Work("one host", "start", "first allreduce, torch", 2)
    assert list(start.jobs(tmp_path, torch, 1, ["mpich4"])[0]) == ["ours"]
    assert list(start.jobs(tmp_path, torch, 1, None)[0]) == ["ours", "torchrun, Gloo"]


@pytest.mark.parametrize("name", ["x.pdf", "x", "x.SVG"])
def test_pictures_that_cannot_be_drawn_are_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options.parser("about", [2], None, []).parse_args(["--plot", name])
    assert "ends with none of .svg, .png" in capsys.readouterr().err


def test_a_png_needs_its_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        options.parser("about", [2], None, []).parse_args(["--plot", "x.png"])
    assert "matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize("sizes", [[8], [8, 64, 512]], ids=["bars", "curves"])
def test_a_picture_is_of_the_kind_that_its_name_says(sizes: list[int], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    work = Work("shm", "allreduce", "float32", 2)
    rows = [row(work, peer, size) for size in sizes for peer in ("ours", "MPI", "bound")]
    found = Document("allreduce", rows, [], [])
    for name, begin in (("x.png", b"\x89PNG"), ("x.svg", b"<svg")):
        pictures.draw(found, [work], tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)


def test_the_bench_of_faults_says_what_it_does_not_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["faults.py", "--help"])
    with pytest.raises(SystemExit):
        importlib.import_module("faults").main()
    assert "--peers, --sizes and --plot do not apply" in " ".join(capsys.readouterr().out.split())


def test_the_bench_of_hangs_has_all_causes_of_the_tests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hangs.py", "--causes", "none"])
    with pytest.raises(SystemExit):
        importlib.import_module("hangs").main()
    offered = set(re.findall(r"'(\w+)'", capsys.readouterr().err)) - {"none"}
    assert offered == {*CAUSES, "not_started", "host_cut_off", "partition"} and len(offered) >= 20


# ---- how peers are set -------------------------------------------------------------------------


def test_every_mpich_is_told_to_yield_where_ranks_outnumber_cores() -> None:
    entered = [*peers.SHARED_MEMORY, *peers.TCP, *hosted.all_peers(2)]
    mpich = [peer for peer in entered if peer.short in ("mpich4", "mpich5")]
    assert len(mpich) == 6
    for peer in mpich:
        assert peer.env(CROWDED)["MPIR_CVAR_POLLS_BEFORE_YIELD"] == "1"
        assert "MPIR_CVAR_POLLS_BEFORE_YIELD" not in peer.env(1)


def test_every_mpi_binds_its_ranks_where_its_launcher_cannot() -> None:
    def binds_itself(peer: peers.Peer, np: int) -> bool:
        launch = dataclasses.replace(peer, prepare=lambda: Path("program")).launch(np, [])
        return "BENCH_PIN=1" in launch.command or launch.env.get("BENCH_PIN") == "1"

    no_mpi = ("oneccl", "gloo", "torch")
    between_hosts = [peer for peer in hosted.all_peers(1) if peer.short not in no_mpi]
    assert len(between_hosts) == 5
    assert all(binds_itself(peer, np) for peer in between_hosts for np in (cores(), CROWDED))
    on_one = [peer for peer in (*peers.SHARED_MEMORY, *peers.TCP) if peer.short not in no_mpi]
    assert len(on_one) == 10
    assert all(binds_itself(peer, CROWDED) for peer in on_one)
    assert not any(binds_itself(peer, cores()) for peer in on_one)


def test_programs_are_made_anew_when_any_header_of_theirs_has_changed() -> None:
    assert {path.name for path in PROGRAMS.glob("*.h")} == set(installing.HEADERS)


# ---- the kernel --------------------------------------------------------------------------------


def test_what_benches_run_of_ours_is_built_for_them() -> None:
    files = [*(ROOT / "bench").glob("*.py"), *(ROOT / "bench" / "harness").glob("*.py")]
    named = {name for file in files for name in re.findall(r'"(bench_\w+)"', file.read_text())}
    assert named and named <= set(setup.BENCH_TARGETS)


def test_the_times_of_the_kernel_are_medians_by_type_and_size() -> None:
    rows = [
        {"type": type_, "bytes": size, "us": us}
        for size in (16384, 1 << 20)
        for type_ in ("float32", "float16")
        for us in (0.5, 0.25, 9.0)
    ]
    lines = [
        [cell.strip() for cell in line.split("|")] for line in kernel.reductions(rows).splitlines()
    ]
    assert lines[0][2:4] == ["16 KiB", "1 MiB"]
    assert lines[2][1:4] == ["float32", "0.50 us", "0.50 us"] and lines[3][1] == "float16"


def test_the_bare_loop_is_told_by_its_ratios() -> None:
    rows = [{"bytes": 64 << 20, "us": us, "copy_us": 5000.0} for us in (5000.0, 6000.0, 5500.0)]
    text = kernel.loops(rows)
    assert "64 MiB" in text and "5500 us" in text and "1.00 to 1.20" in text


def test_without_its_program_the_kernel_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kernel.py", "--ours", str(tmp_path)])
    assert kernel.main() == 1
    assert capsys.readouterr().out.startswith("missing:")

"""horovod.runner: the launcher seen from Python."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

import pytest
from launcher import horovodrun

pytest.importorskip("horovod._core")

from horovod.runner import _program, launch


def test_every_flag_of_the_program_is_one_of_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    flag = re.compile(r"--[a-z][a-z-]+")
    program = subprocess.run([horovodrun(), "--help"], check=True, capture_output=True, text=True)
    with pytest.raises(SystemExit):
        launch.parse_args(["--help"])
    assert set(flag.findall(program.stdout)) == set(flag.findall(capsys.readouterr().out))


def test_what_is_not_given_is_none() -> None:
    args = launch.parse_args(["-np", "2", "python", "-u", "train.py", "-np", "3"])
    assert args.num_proc == 2
    assert args.command == ["python", "-u", "train.py", "-np", "3"]
    for dest in ("autotune", "no_stall_check", "log_with_timestamp", "fusion_threshold_mb", "nics"):
        assert getattr(args, dest) is None
    for dest in ("verbose", "check_build", "disable_cache", "tcp_flag", "use_gloo"):
        assert getattr(args, dest) is False


def test_values_have_the_types_of_their_knobs() -> None:
    flags = "--fusion-threshold-mb 32 --cycle-time-ms 2.5 --log-level debug --thread-affinity 3"
    args = launch.parse_args(["-np", "1", *flags.split(), "--network-interfaces", "a,b", "x"])
    assert (args.fusion_threshold_mb, args.cycle_time_ms) == (32, 2.5)
    assert (args.log_level, args.thread_affinity, args.nics) == ("DEBUG", 3, {"a", "b"})
    assert launch.parse_args(["-np", "1", "--thread-affinity", "0,2", "x"]).thread_affinity == "0,2"


@pytest.mark.parametrize(
    ("flag", "dest", "value"),
    [
        ("--autotune", "autotune", True),
        ("--no-autotune", "autotune", False),
        ("--no-stall-check", "no_stall_check", True),
        ("--stall-check", "no_stall_check", False),
        ("--log-with-timestamp", "log_with_timestamp", True),
        ("--log-without-timestamp", "log_with_timestamp", False),
        ("--log-hide-timestamp", "log_with_timestamp", False),
        ("--no-log-hide-timestamp", "log_with_timestamp", True),
    ],
)
def test_switches_have_two_sides(flag: str, dest: str, value: bool) -> None:
    assert getattr(launch.parse_args(["-np", "1", flag, "x"]), dest) is value


@pytest.mark.parametrize(
    ("flag", "value", "bound"),
    [
        ("--cache-capacity", "-1", ">= 0"),
        ("--fusion-threshold-mb", "-1", ">= 0"),
        ("--autotune-gaussian-process-noise", "1.5", "<= 1"),
    ],
)
def test_a_number_out_of_range_is_a_value_error(flag: str, value: str, bound: str) -> None:
    with pytest.raises(ValueError, match=f"{flag}=.*it must be {bound}"):
        launch.parse_args(["-np", "1", flag, value, "x"])


@pytest.mark.parametrize(
    "arguments",
    [["x"], ["-np", "1", "--mpi", "--gloo", "x"], ["-np", "1", "-H", "a:1", "-hostfile", "f", "x"]],
)
def test_what_makes_no_sense_ends_the_parser(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        launch.parse_args(arguments)


def test_a_job_of_lsf_says_itself_how_many_processes_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LSB_JOBID", "7")
    args = launch.parse_args(["--jsrun", "python", "train.py"])
    assert (args.num_proc, args.command) == (None, ["python", "train.py"])


def test_a_comma_in_the_old_flag_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="--network-interfaces"):
        args = launch.parse_args(["-np", "1", "--network-interface", "a,b", "x"])
    assert args.nics == {"a", "b"}


def test_the_built_in_launcher_is_used_unless_another_is_chosen() -> None:
    assert launch.is_gloo_used()
    assert launch.is_gloo_used(use_gloo=True)
    assert not launch.is_gloo_used(use_mpi=True)
    assert not launch.is_gloo_used(use_jsrun=True)


def test_a_variable_chooses_the_launcher_where_no_flag_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOROVOD_CONTROLLER", "MPI")
    assert not launch.is_gloo_used()
    assert launch.is_gloo_used(use_gloo=True)
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    assert launch.is_gloo_used()
    assert not launch.is_gloo_used(use_mpi=True)


def test_check_build_is_the_text_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_program, "find", horovodrun)
    text = launch.check_build(verbose=False)
    assert text.startswith("Horovod v") and text.endswith("    [X] Gloo    \n")
    assert launch.check_build(verbose=True).startswith("\n")


def test_run_commandline_becomes_the_program() -> None:
    code = (
        "import sys; from horovod.runner import _program, launch; "
        f"_program.find = lambda: {horovodrun()!r}; launch.run_commandline()"
    )
    command = [sys.executable, "-c", code, "-np", "2", "sh", "-c", "exit 4"]
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 4


@pytest.mark.parametrize("module", ["horovod.runner", "horovod.runner.launch"])
def test_as_a_module_it_is_the_program(module: str) -> None:
    command = [sys.executable, "-m", module, "-np", "2", "sh", "-c", "echo here; exit 4"]
    job = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert sorted(job.stdout.splitlines()) == ["[0]<stdout>:here", "[1]<stdout>:here"]
    assert job.returncode == 4


def test_importing_it_imports_no_framework() -> None:
    code = (
        "import sys, horovod.runner.launch; "
        "print([name for name in ('torch', 'tensorflow', 'mxnet', 'numpy') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "[]\n"


def test_the_parser_is_an_ordinary_namespace() -> None:
    assert isinstance(launch.parse_args(["-cb"]), argparse.Namespace)

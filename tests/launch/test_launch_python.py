"""horovod.runner: the launcher seen from Python."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from launcher import WATCHDOG_SECONDS, horovodrun

pytest.importorskip("horovod._core")

from horovod.runner import _program, launch


@pytest.fixture(autouse=True)
def the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_program, "find", horovodrun)


def test_help_and_version_are_those_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--help", "--version"):
        program = subprocess.run([horovodrun(), flag], check=True, capture_output=True, text=True)
        with pytest.raises(SystemExit) as ended:
            launch.parse_args([flag])
        assert (ended.value.code, capsys.readouterr().out) == (0, program.stdout)


CONFIG = """
controller: mpi
params: {fusion_threshold_mb: 32, cycle_time_ms: 2, hierarchical_allreduce: true}
autotune: {enabled: true, log_file: a.csv, gaussian_process_noise: 0.5}
stall_check: {enabled: false, warning_time_seconds: 5}
library_options: {thread_affinity: [0, 2], gloo_timeout_seconds: 8}
logging: {level: info, with_timestamp: false}
"""


def test_a_config_file_is_read_and_flags_win_over_it(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    flags = ["-np", "1", "--config-file", str(tmp_path / "c.yaml")]
    args = launch.parse_args([*flags, "x"])
    assert args.config_file == str(tmp_path / "c.yaml")
    expected = {
        "fusion_threshold_mb": 32,
        "cycle_time_ms": 2.0,
        "hierarchical_allreduce": True,
        "autotune": True,
        "autotune_log_file": "a.csv",
        "autotune_gaussian_process_noise": 0.5,
        "no_stall_check": True,
        "stall_check_warning_time_seconds": 5,
        "thread_affinity": "0,2",
        "gloo_timeout_seconds": 8,
        "log_level": "INFO",
        "log_with_timestamp": False,
        "use_mpi": True,
        "use_gloo": False,
        "cache_capacity": None,
    }
    assert {name: getattr(args, name) for name in expected} == expected
    assert isinstance(args.cycle_time_ms, float)
    wins = [*flags, "--fusion-threshold-mb", "4", "--no-autotune", "--stall-check", "--gloo"]
    args = launch.parse_args([*wins, "--log-with-timestamp", "x"])
    assert (args.fusion_threshold_mb, args.autotune, args.no_stall_check) == (4, False, False)
    assert (args.log_with_timestamp, args.use_gloo, args.use_mpi) == (True, True, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("params: {cache_capacity: -1}", "params.cache_capacity=-1: allowed is"),
        ("params: {cache: 1}", r"c\.yaml, line 1: unknown key 'params\.cache'"),
        ("controller: smoke", "controller=smoke: allowed is gloo, mpi"),
    ],
)
def test_a_config_file_that_makes_no_sense_is_a_value_error(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        launch.parse_args(["-np", "1", "--config-file", str(tmp_path / "c.yaml"), "x"])
    with pytest.raises(ValueError, match=r"missing\.yaml: it cannot be read"):
        launch.parse_args(["-np", "1", "--config-file", str(tmp_path / "missing.yaml"), "x"])


def test_an_old_key_of_a_config_file_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("logging: {hide_timestamp: true}")
    with pytest.warns(UserWarning, match="hide_timestamp is ignored"):
        launch.parse_args(["-np", "1", "--config-file", str(tmp_path / "c.yaml"), "x"])


def test_the_command_line_of_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["horovodrun", "-np", "2"])
    args = launch.parse_args()
    assert (args.num_proc, args.command) == (2, [])


def test_words_that_are_no_utf_8_arrive_as_they_are() -> None:
    odd = os.fsdecode(b"caf\xe9")
    assert launch.parse_args(["-np", "1", "--", "echo", odd]).command == ["echo", odd]


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
    with warnings.catch_warnings(record=True) as caught:
        assert getattr(launch.parse_args(["-np", "1", flag, "x"]), dest) is value
    deprecated = "hide-timestamp" in flag
    assert [one.category for one in caught] == [DeprecationWarning] * deprecated


@pytest.mark.parametrize(
    ("flag", "value", "bound"),
    [
        ("--cache-capacity", "-1", "from 0 to"),
        ("--fusion-threshold-mb", "-1", "of MiB from 0 to"),
        ("--autotune-gaussian-process-noise", "1.5", "from 0 to 1"),
        ("-np", "two", "a whole number from 1"),
    ],
)
def test_a_number_out_of_range_is_a_value_error(flag: str, value: str, bound: str) -> None:
    with pytest.raises(ValueError, match=f"{flag}[= ].*allowed is .*{bound}"):
        launch.parse_args(["-np", "1", flag, value, "x"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["x"],
        ["-np", "1", "--quux"],
        ["-np", "1", "--mpi", "--gloo", "x"],
        ["-np", "1", "-H", "a:1", "-hostfile", "f", "x"],
    ],
)
def test_what_makes_no_sense_ends_the_parser(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        launch.parse_args(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("horovodrun: ")


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


def test_check_build_is_the_text_of_the_program() -> None:
    text = launch.check_build(verbose=False)
    assert text.startswith("Horovod v")
    assert "    [X] Gloo    \n\nGPUs:\n" in text
    assert launch.check_build(verbose=True).startswith("\n")


def test_run_commandline_becomes_the_program() -> None:
    code = (
        "import sys; from horovod.runner import _program, launch; "
        f"_program.find = lambda: {horovodrun()!r}; launch.run_commandline()"
    )
    command = [sys.executable, "-c", code, "-np", "2", "sh", "-c", "exit 4"]
    assert subprocess.run(command, capture_output=True, timeout=WATCHDOG_SECONDS).returncode == 4


@pytest.mark.parametrize("module", ["horovod.runner", "horovod.runner.launch"])
def test_as_a_module_it_is_the_program(module: str) -> None:
    command = [sys.executable, "-m", module, "-np", "2", "sh", "-c", "echo here; exit 4"]
    job = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
    assert sorted(job.stdout.splitlines()) == ["[0]<stdout>:here", "[1]<stdout>:here"], job.stderr
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

"""The command line, the config file, and what a rank finds in its environment."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from launcher import WATCHDOG_SECONDS, Ended, Jobs, ended, horovodrun

import horovod


def variables(result: Ended, rank: int = 0) -> dict[str, str]:
    lines = [line for line in result.out_lines if line.startswith(f"[{rank}]<stdout>:")]
    pairs = (line.partition(":")[2].partition("=") for line in lines)
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-np", "0"], "-np 0: allowed is a whole number from 1"),
        (["-np", "x"], "-np x: allowed is a whole number from 1"),
        (["-np", "-1"], "-np -1: allowed"),
        (["-np", "1.5"], "-np 1.5: allowed"),
        (["-np", "99999999999999999999"], "allowed"),
        ([], "-np is required"),
        (["-np", "2", "--no-such-flag"], "unknown flag '--no-such-flag'"),
        (["-np", "2", "-z"], "unknown flag '-z'"),
        (
            ["-np", "5", "-H", "localhost:4"],
            "-np 5 asks for more processes than there are slots: 4",
        ),
        (
            ["-np", "1", "-H", "localhost:x"],
            "'x' is not a number of slots from 1 to 65536; expected",
        ),
        (["-np", "1", "-H", ""], "flag '-H' needs a value, found an empty one"),
        (["-np", "2", "-H", "h1,h2:x"], "hosts 'h1,h2:x': 'x' is not a number of slots"),
        (
            ["-np", "4", "-H", "h1,h2"],
            "slots: 2 available (h1:1, h2:1); a host without a number has 1 slot",
        ),
        (["-np", "1", "-H", "-oProxyCommand=x:1"], "expected host:slots,host:slots"),
        (["-np", "1", "-H", "fd00::1:1"], "expected host:slots,host:slots"),
        (
            ["-np", "1", "-p", "70000"],
            "-p 70000: allowed is a whole number from 1 to 65535",
        ),
        (["-np", "1", "--hostfile", "missing"], "missing: it cannot be read"),
        (["-np", "1", "-H", "localhost:1", "--hostfile", "x"], "exclude each other"),
        (["-np", "1", "--config-file", "missing.yaml"], "missing.yaml: it cannot be read"),
        (["-np", "1", "--cache-capacity", "-1"], "--cache-capacity=-1: allowed is a whole number"),
        (
            ["-np", "1", "--cycle-time-ms", "soon"],
            "--cycle-time-ms=soon: allowed is a number of ms",
        ),
        (["-np", "1", "--log-level", "LOUD"], "allowed is trace, debug, info"),
        (["-np", "1", "--autotune-gaussian-process-noise", "2"], "from 0 to 1"),
        (["-np", "1", "--network-interfaces", "nic7"], "'nic7' does not exist here"),
        (["-np", "1", "--host-discovery-script", "no.sh"], "no.sh: not found in PATH"),
        (["-np", "1", "--gloo", "--mpi"], "exclude each other"),
        (["-np", "1", "--stall-check-shutdown-time-seconds", "5"], "shorter than"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    jobs: Jobs, arguments: list[str], message: str
) -> None:
    result = jobs.run(*arguments, "touch", "started")
    assert result.code == 2
    assert result.out == "" and len(result.said) == 1 and message in result.said[0]
    assert not (jobs.folder / "started").exists()


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("", "horovodrun -np 2 python train.py; horovodrun --help lists the flags"),
        ("-np 2", "the command to run is missing, as in horovodrun -np 2 python train.py"),
        ("-np 2 --", "the command to run is missing"),
        ("-np 2 train.py", "did you mean 'python train.py'?"),
        ("-np 2 ./train.py", "'./train.py' is not executable; did you mean 'python ./train.py'?"),
        ("-np 2 ./run", "'./run' is not executable; chmod +x ./run"),
        ("-np 2 prog", "was not found in PATH; did you mean './prog'?"),
        ("-np 2 ./folder", "'./folder' is a folder, not a program"),
        ("-np 2 python3.99 train.py", "was not found in PATH; did you mean 'python3'?"),
        ("-np 2 python3 -u -W error missing.py", "the script 'missing.py' does not exist"),
        ("-np 2 ./windows.sh", r"Windows line endings, so the program in its first line"),
        ("-np 2 ./strange", "'./strange' needs '/no/such/python', which does not exist"),
        ("-n 2 true", "unknown flag '-n'; use -np N for the number of processes"),
        ("-np2 true", "unknown flag '-np2'; did you mean '-np 2'?"),
        ("-x FOO=1 -np 2 true", "write FOO=1 horovodrun"),
        ("--bind-to core -np 2 true", "--binding-args none"),
        ("-np 2 FOO=1 true", "'FOO=1' sets a variable: write it before horovodrun"),
        ("FOO=1 true", "'FOO=1' sets a variable"),
        ("2 true", "did you mean '-np 2'?"),
        ("true -np 2", "the '-np' after 'true' is an argument of the command"),
        ("train.py", "as in horovodrun -np 2 python train.py"),
        ("-np 2 -H h1:1 h2:1 true", "if 'h2:1' is a host"),
        ("--verbos -np 2 true", "did you mean '--verbose'?"),
        ("--nproc_per_node=2 train.py", "use -np N for the number of processes"),
    ],
)
def test_the_typing_of_a_newcomer_gets_a_hint(jobs: Jobs, typed: str, hint: str) -> None:
    (jobs.folder / "train.py").write_text("print('here')\n")
    (jobs.folder / "run").write_text("#!/bin/sh\n")
    (jobs.folder / "folder").mkdir()
    for name, text in {
        "prog": "#!/bin/sh\n",
        "windows.sh": "#!/bin/sh\r\necho hi\r\n",
        "strange": "#!/no/such/python -u\n",
    }.items():
        (jobs.folder / name).write_bytes(text.encode())
        (jobs.folder / name).chmod(0o755)
    result = jobs.run(*typed.split())
    assert result.code in (2, 127) and result.out == ""
    assert len(result.said) == 1 and hint in result.said[0]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("--help >/dev/full", 1, "standard output cannot be written: No space left on device"),
        ("--version >/dev/full", 1, "standard output cannot be written: No space left on device"),
        ("-cb >/dev/full", 1, "standard output cannot be written: No space left on device"),
        ("--help >&-", 1, "standard output cannot be written: Bad file descriptor"),
        ("-np 2 echo hi >/dev/full", 1, "No space left on device; the output of the ranks"),
        ("-np 2 echo hi >&-", 1, "standard output cannot be written: Bad file descriptor; the"),
        ("-np 1 --output-filename full echo hi", 1, "can no longer be written to its file"),
        ("-np 2 sh -c 'echo hi >&2' 2>/dev/full", 1, ""),
        ("-np 1 sh -c 'exit 3' >/dev/full", 3, "rank 0 exited with code 3"),
        ("-np 1 sh -c 'echo hi; exit 3' >/dev/full", 3, "standard output cannot be written"),
        # Nothing is lost, or nothing reads it.
        ("-np 2 true >&-", 0, ""),
        ("-np 2 echo hi 2>&-", 0, ""),
        ("--help | head -1", 0, ""),
        ("-np 2 seq 100000 | head -1", 0, ""),
        ("-np 2 seq 100000 | (trap '' PIPE; head -1)", 0, ""),
    ],
)
def test_output_that_cannot_be_written_is_an_error_at_the_end(
    jobs: Jobs, command: str, code: int, said: str
) -> None:
    (jobs.folder / "full" / "rank.0").mkdir(parents=True)
    (jobs.folder / "full" / "rank.0" / "stdout").symlink_to("/dev/full")
    script = f"set -o pipefail 2>/dev/null; {horovodrun()} {command}"
    result = subprocess.run(
        ["bash", "-c", script], cwd=jobs.folder, capture_output=True, text=True,
        timeout=WATCHDOG_SECONDS,
    )  # fmt: skip
    assert (result.returncode, said in result.stderr) == (code, True), result.stderr
    assert (said == "") == (result.stderr == "")


def test_a_flag_without_its_value_is_refused(jobs: Jobs) -> None:
    result = jobs.run("-np")
    assert (result.code, result.said) == (2, ["flag '-np' needs a value"])


def test_a_program_that_does_not_exist_is_told_once(jobs: Jobs) -> None:
    result = jobs.run("-np", "3", "no-such-program")
    assert (result.code, result.said) == (
        127,
        ["the program 'no-such-program' was not found in PATH"],
    )
    result = jobs.run("-np", "3", "./no-such-program")
    assert result.code == 127 and "'./no-such-program' was not found" in result.said[0]


def test_a_script_that_does_not_exist_is_told_once(jobs: Jobs) -> None:
    result = jobs.run("-np", "3", "python3", "train.py")
    assert (result.code, result.said) == (2, ["the script 'train.py' does not exist"])


def test_a_file_that_is_no_program_is_told_once(jobs: Jobs) -> None:
    (jobs.folder / "data").write_text("no program\n")
    (jobs.folder / "data").chmod(0o755)
    result = jobs.run("-np", "3", "./data")
    assert result.code == 126
    assert "begins with #!" in result.said[0]


@pytest.mark.parametrize("value", ["perhaps", "-1", "2"])
def test_a_variable_that_no_rank_could_use_is_refused(jobs: Jobs, value: str) -> None:
    result = jobs.run("-np", "2", "true", env={"HOROVOD_STALL_CHECK_DISABLE": value})
    assert result.code == 2
    assert f"HOROVOD_STALL_CHECK_DISABLE={value}: allowed is 0, 1, false, true" in result.said[0]


@pytest.mark.parametrize("flag", ["-np", "--np", "--num-proc"])
def test_the_number_of_processes_has_three_spellings(jobs: Jobs, flag: str) -> None:
    assert len(jobs.run(flag, "2", "echo", "x").out_lines) == 2
    assert len(jobs.run(f"{flag}=2", "echo", "x").out_lines) == 2


def test_the_command_gets_its_arguments_untouched(jobs: Jobs) -> None:
    odd = ["-np", "3", "--verbose", "--", "", "a b", "$HOME", "*"]
    result = jobs.run("-np", "1", "printf", "<%s>", *odd)
    assert result.out == "[0]<stdout>:" + "".join(f"<{word}>" for word in odd) + "\n"
    assert jobs.run("-np", "1", "--", "echo", "--x").out == "[0]<stdout>:--x\n"


def test_flags_may_precede_and_follow_the_number(jobs: Jobs) -> None:
    result = jobs.run("--log-level", "INFO", "-np", "1", "--cycle-time-ms=2", "env")
    found = variables(result)
    assert (found["HOROVOD_LOG_LEVEL"], found["HOROVOD_CYCLE_TIME"]) == ("info", "2")


def test_each_rank_knows_its_place_and_where_to_meet(jobs: Jobs) -> None:
    result = jobs.run("-np", "3", "-H", "localhost:4", "env", env={"CUDA_VISIBLE_DEVICES": "0"})
    for rank in range(3):
        found = variables(result, rank)
        expected = {
            "HOROVOD_HOSTNAME": "localhost",
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": "3",
            "HOROVOD_LOCAL_RANK": str(rank),
            "HOROVOD_LOCAL_SIZE": "3",
            "HOROVOD_CROSS_RANK": "0",
            "HOROVOD_CROSS_SIZE": "1",
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "PYTHONUNBUFFERED": "1",
        }
        assert expected.items() <= found.items()
        assert int(found["HOROVOD_GLOO_RENDEZVOUS_PORT"]) > 0
        assert "CUDA_VISIBLE_DEVICES" not in found


def test_the_environment_is_passed_on_without_secrets(jobs: Jobs) -> None:
    hidden = {"HOROVOD_SECRET_KEY": "s", "BASH_FUNC_f%%": "() { :; }", "OLDPWD": "/"}
    result = jobs.run("-np", "1", "env", env={"MINE": "kept", **hidden})
    found = variables(result)
    assert found["MINE"] == "kept"
    assert not hidden.keys() & found.keys()


def test_a_flag_wins_over_the_file_and_the_file_over_the_variable(jobs: Jobs) -> None:
    (jobs.folder / "c.yaml").write_text("params: {cycle_time_ms: 2, cache_capacity: 20}\n")
    environment = {
        "HOROVOD_CYCLE_TIME": "1",
        "HOROVOD_CACHE_CAPACITY": "10",
        "HOROVOD_FUSION_THRESHOLD": "77",
    }
    command = ["-np", "1", "--config-file", "c.yaml", "--cycle-time-ms", "3", "env"]
    found = variables(jobs.run(*command, env=environment))
    assert found["HOROVOD_CYCLE_TIME"] == "3"
    assert found["HOROVOD_CACHE_CAPACITY"] == "20"
    assert found["HOROVOD_FUSION_THRESHOLD"] == "77"


def test_every_section_of_the_config_file_is_read(jobs: Jobs) -> None:
    (jobs.folder / "c.yaml").write_text(
        "controller: gloo\n"
        "params:\n  fusion_threshold_mb: 32\n"
        "stall_check:\n  enabled: false\n  warning_time_seconds: 5\n  shutdown_time_seconds: 9\n"
        "library_options:\n  thread_affinity: 0\n  gloo_timeout_seconds: 8\n"
        "logging:\n  level: INFO\n  with_timestamp: false\n  hide_timestamp: true\n"
        "timeline:\n"
    )
    result = jobs.run("-np", "1", "--config-file", "c.yaml", "env")
    expected = {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9",
        "HOROVOD_THREAD_AFFINITY": "0",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "8",
        "HOROVOD_LOG_LEVEL": "info",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }
    assert expected.items() <= variables(result).items()
    assert len(result.said) == 1 and "hide_timestamp is ignored" in result.said[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("params: {no_such_key: 1}", "unknown key 'params.no_such_key'"),
        ("no_such_section: {a: 1}", "unknown key 'no_such_section'"),
        ("controller: smoke", "allowed is gloo, mpi"),
        ("params: {cache_capacity: -1}", "params.cache_capacity=-1: allowed"),
        ("params: 7", "'params' must hold keys and values"),
        ("params: {cycle_time_ms: {a: 1}}", "must be one value"),
        ("params: {", "config file c.yaml: yaml"),
        ("- a\n- b", "must be a mapping of sections"),
        ("stall_check: {enabled: perhaps}", "stall_check.enabled=perhaps: allowed"),
    ],
)
def test_a_config_file_that_makes_no_sense_is_refused(jobs: Jobs, text: str, message: str) -> None:
    (jobs.folder / "c.yaml").write_text(text)
    result = jobs.run("-np", "1", "--config-file", "c.yaml", "touch", "started")
    assert result.code == 2
    assert len(result.said) == 1 and message in result.said[0]
    assert not (jobs.folder / "started").exists()


def test_a_later_feature_is_told_of_and_does_not_stop_the_job(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", "--autotune", "env", env={"HOROVOD_NUM_NCCL_STREAMS": "2"})
    assert result.code == 0
    assert all(line.startswith("not in this version: ") for line in result.said)
    told = "\n".join(result.said)
    for word in ("--autotune", "NCCL_STREAMS=2"):
        assert word in told


def test_settings_of_a_feature_that_is_off_are_dropped(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", "--no-autotune", "--autotune-warmup-samples", "5", "env")
    assert result.said == []
    assert "HOROVOD_AUTOTUNE_WARMUP_SAMPLES" not in variables(result)


def test_the_timeline_flags_name_a_file_and_mark_only_in_one(jobs: Jobs) -> None:
    named = jobs.run("-np", "1", "--timeline-filename", "t.json", "--timeline-mark-cycles", "env")
    assert variables(named)["HOROVOD_TIMELINE"] == "t.json"
    assert variables(named)["HOROVOD_TIMELINE_MARK_CYCLES"] == "1"
    unnamed = jobs.run("-np", "1", "--timeline-mark-cycles", "env")
    assert unnamed.code == 0
    assert not {"HOROVOD_TIMELINE", "HOROVOD_TIMELINE_MARK_CYCLES"} & set(variables(unnamed))


def test_hosts_may_be_every_name_of_this_machine(jobs: Jobs) -> None:
    (jobs.folder / "hosts").write_text(f"{socket.gethostname()} slots=1 \n127.0.0.1 slots=2\n")
    result = jobs.run("-np", "3", "-hostfile", "hosts", "env")
    assert variables(result, 2)["HOROVOD_LOCAL_RANK"] == "2"


def test_a_host_file_and_a_list_are_read_as_other_launchers_read_them(jobs: Jobs) -> None:
    (jobs.folder / "hosts").write_bytes(
        b"\xef\xbb\xbf# nodes\r\n  LocalHost slots = 2 max-slots=4 # fast\r\n"
        b"127.0.0.1:1\r\nlocalhost\r\n"
    )
    result = jobs.run("-np", "4", "--hostfile", "hosts", "env")
    assert (result.code, variables(result, 3)["HOROVOD_LOCAL_SIZE"]) == (0, "4")
    assert variables(result)["HOROVOD_HOSTNAME"] == "LocalHost"
    listed = jobs.run("-np", "3", "-H", "localhost, localhost:2,", "env")
    assert (listed.code, variables(listed)["HOROVOD_LOCAL_SIZE"]) == (0, "3")


def test_a_refused_line_of_a_host_file_is_named_with_its_part(jobs: Jobs) -> None:
    (jobs.folder / "hosts").write_text("# nodes\nnode1 slots=2\nnode2 slots=two\n")
    result = jobs.run("-np", "2", "--hostfile", "hosts", "true")
    assert (result.code, result.said) == (
        2,
        [
            "host file hosts, line 3: 'two' is not a number of slots from 1 to 65536 of "
            "'slots=two'; expected '<host> slots=<n>', found 'node2 slots=two'"
        ],
    )


def test_deprecated_flags_work_and_say_so(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", "--log-hide-timestamp", "env")
    assert variables(result)["HOROVOD_LOG_HIDE_TIME"] == "1"
    assert "deprecated" in result.said[0]


def test_version_and_help(jobs: Jobs) -> None:
    for flag in ("-v", "--version"):
        result = jobs.run(flag)
        assert result.code == 0 and re.fullmatch(r"\d+\.\d+\.\d+\S*\n", result.out)
    result = jobs.run("--help")
    assert result.code == 0 and "--fusion-threshold-mb" in result.out
    assert result.out.startswith("usage: horovodrun -np N [flags] command [arguments ...]\n")
    assert "TEXT" not in result.out and "{1}" not in result.out


def test_check_build_has_its_exact_layout(jobs: Jobs) -> None:
    for flag in ("-cb", "--check-build"):
        result = jobs.run(flag)
        assert result.code == 0
        pattern = (
            r"Horovod v\S+:\n\nAvailable Frameworks:\n    \[[X ]\] TensorFlow\n"
            r"    \[[X ]\] PyTorch\n    \[ \] MXNet\n\n"
            r"Available Controllers:\n    \[X\] MPI\n    \[X\] Gloo\n\n"
            r"Available Tensor Operations:\n    \[[X ]\] NCCL\n    \[ \] DDL\n    \[ \] CCL\n"
            r"    \[[X ]\] MPI\n    \[X\] Gloo    \n\nGPUs:\n(    \S.*\n)+"
        )
        assert re.fullmatch(pattern, result.out), result.out
    assert jobs.run("-cb", "--verbose").out.startswith("\n")


def test_check_build_names_a_framework_that_the_build_left_out(jobs: Jobs) -> None:
    """The package without its op library, beside a package tensorflow."""
    (jobs.folder / "horovod").mkdir()
    for path in Path(horovod.__file__).parent.iterdir():
        if path.name != "libhorovod_tensorflow.so":
            (jobs.folder / "horovod" / path.name).symlink_to(path)
    (jobs.folder / "tensorflow.py").touch()
    result = jobs.run("-cb", "--verbose", env={"PYTHONPATH": str(jobs.folder)})
    assert "tensorflow is installed, but Horovod was built without it (asked " in result.out
    assert "[ ] TensorFlow" in result.out


def test_a_host_file_may_be_a_pipe_that_is_written_late(jobs: Jobs) -> None:
    pipe = jobs.folder / "hosts"
    os.mkfifo(pipe)
    process = jobs.start("-np", "2", "--hostfile", "hosts", "true")
    with pipe.open("w") as file:  # waits for the reader
        file.write("localhost slots=1\n")
        file.flush()
        file.write("localhost slots=1\n")
    result = ended(process)
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    ("flag", "what"), [("--hostfile", "host file"), ("--config-file", "config file")]
)
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/", "Is a directory"),
        ("/dev/zero", "it has more than 4194304 bytes"),
        ("/nowhere", "No such file or directory"),
    ],
)
def test_a_file_that_holds_no_text_is_refused_with_the_reason(
    jobs: Jobs, flag: str, what: str, path: str, why: str
) -> None:
    result = jobs.run("-np", "1", flag, path, "true")
    assert (result.code, result.said) == (2, [f"{what} {path}: it cannot be read: {why}"])


@pytest.mark.parametrize("kind", ["socket", "device"])
def test_what_is_no_file_stays_where_the_start_cannot_be_written(jobs: Jobs, kind: str) -> None:
    ssh = jobs.folder / "ssh"
    ssh.write_text("#!/bin/sh\nexit 255\n")
    ssh.chmod(0o755)
    env = {"PATH": f"{jobs.folder}:{os.environ['PATH']}"}
    path = jobs.folder / "start"
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "socket":
            listener.bind(str(path))
        else:
            path.symlink_to("/dev/full")
        flags = ["-np", "1", "-H", "away:1", "--tell-start", str(path)]
        result = jobs.run(*flags, "true", env=env)
    assert result.code == 1
    assert result.said[0] == f"--tell-start: {path} cannot be written"
    assert os.path.lexists(path)


def test_a_secret_file_has_no_effect_and_that_is_said(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", "true", env={"HOROVOD_SECRET_FILE": "/nowhere"})
    assert result.code == 0
    assert result.said == [
        "HOROVOD_SECRET_FILE has no effect here: horovodrun makes the job's key and gives it to "
        "the ranks"
    ]

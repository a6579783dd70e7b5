"""Jobs that horovodrun hands to another launcher: mpirun of the MPIs that are installed, and a
stand-in for jsrun."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from launcher import Ended, Jobs, ended, horovodrun, pids_in, wait_gone

PLACE = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK"}
#: How each begins the lines of ranks.
LINES = {"openmpi": ["[1,0]<stdout>:0", "[1,1]<stdout>:1"], "mpich": ["[0] 0", "[1] 1"]}


def stand_in(jobs: Jobs, name: str, text: str) -> dict[str, str]:
    """A PATH in which a script has this name."""
    folder = jobs.folder / "bin"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.fixture(params=PLACE)
def mpi(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if shutil.which(f"mpirun.{name}") is None:
        pytest.skip(f"mpirun.{name} is not installed: apt-get install openmpi-bin mpich")
    return name


def with_mpi(jobs: Jobs, mpi: str) -> dict[str, str]:
    return stand_in(jobs, "mpirun", f'exec mpirun.{mpi} "$@"\n')


def through(jobs: Jobs, mpi: str, *arguments: str) -> Ended:
    return jobs.run("--mpi", "-np", "2", *arguments, env=with_mpi(jobs, mpi))


def test_mpirun_starts_the_ranks(jobs: Jobs, mpi: str) -> None:
    result = through(jobs, mpi, "printenv", PLACE[mpi])
    assert result.code == 0, result.err
    assert sorted(result.out_lines) == LINES[mpi]


@pytest.mark.parametrize("how", ["variable", "file"])
def test_the_controller_may_be_chosen_elsewhere(jobs: Jobs, mpi: str, how: str) -> None:
    (jobs.folder / "config.yaml").write_text("controller: mpi\n")
    env = with_mpi(jobs, mpi)
    flags = ["--config-file", "config.yaml"] if how == "file" else []
    if how == "variable":
        env["HOROVOD_CONTROLLER"] = "MPI"
    result = jobs.run("-np", "2", *flags, "printenv", PLACE[mpi], env=env)
    assert sorted(result.out_lines) == LINES[mpi], result.err
    own = jobs.run("-np", "2", "--gloo", *flags, "printenv", "HOROVOD_RANK", env=env)
    assert own.code == 0 and not set(own.out_lines) & set(LINES[mpi]), own.err
    assert sorted(line[-1] for line in own.out_lines) == ["0", "1"]


def test_the_exit_status_is_that_of_mpirun(jobs: Jobs, mpi: str) -> None:
    assert through(jobs, mpi, "sh", "-c", "exit 3").code == 3


def test_ranks_have_the_environment_but_no_place_of_another_job(jobs: Jobs, mpi: str) -> None:
    env = {**with_mpi(jobs, mpi), "HOROVOD_RANK": "7", "MINE": "a b", "OLDPWD": "/"}
    text = 'echo "$MINE/$HOROVOD_RANK/$HOROVOD_CONTROLLER/$HOROVOD_CYCLE_TIME/$HOROVOD_GLOO_IFACE"'
    flags = ["--cycle-time-ms", "3", "--network-interfaces", "lo"]
    result = jobs.run("--mpi", "-np", "1", *flags, "sh", "-c", text, env=env)
    assert [line.rstrip().endswith("a b//mpi/3/lo") for line in result.out_lines] == [True], result


def test_files_hold_what_ranks_write(jobs: Jobs, mpi: str) -> None:
    result = through(jobs, mpi, "--output-filename", "out", "printenv", PLACE[mpi])
    assert result.code == 0, result.err
    files = sorted((jobs.folder / "out").rglob("rank.*/stdout"))
    assert [path.read_text().split()[-1][-1] for path in files] == ["0", "1"]


def test_mpirun_gets_what_the_user_adds(jobs: Jobs, mpi: str) -> None:
    added = {"openmpi": "-x 'ADDED=a b'", "mpich": "-genv ADDED 'a b'"}[mpi]
    result = through(jobs, mpi, "--mpi-args", added, "printenv", "ADDED")
    assert [line.endswith("a b") for line in result.out_lines] == [True, True], result.err


def test_ranks_on_other_hosts_are_reached_by_the_given_port(jobs: Jobs, mpi: str) -> None:
    """The other host is this one, behind a stand-in for ssh that runs what it is told."""
    env = with_mpi(jobs, mpi)
    stand_in(
        jobs,
        "ssh",
        f'echo "$@" >> {jobs.folder}/told\n'
        'while [ "$1" != away ]; do shift; done\nshift\nexec sh -c "$*"\n',
    )
    flags = ["-H", "away:2", "-p", "2222", "-i", "key"]
    result = jobs.run("--mpi", "-np", "2", *flags, "printenv", PLACE[mpi], env=env)
    assert sorted(result.out_lines) == LINES[mpi], result.err
    assert "-p 2222 -i key" in (jobs.folder / "told").read_text()


def test_a_signal_to_horovodrun_reaches_mpirun(jobs: Jobs, mpi: str) -> None:
    script = jobs.script('echo $$ > "$$.part"; mv "$$.part" "$$.pid"; exec sleep 1000\n')
    process = jobs.start("--mpi", "-np", "2", script, env=with_mpi(jobs, mpi))
    pids = pids_in(jobs.folder, 2)
    process.send_signal(signal.SIGTERM)
    assert ended(process).code != 0
    wait_gone(pids)


def test_no_rank_is_left_when_horovodrun_is_killed(jobs: Jobs, mpi: str) -> None:
    script = jobs.script('echo $$ > "$$.part"; mv "$$.part" "$$.pid"; exec sleep 1000\n')
    process = jobs.start("--mpi", "-np", "2", script, env=with_mpi(jobs, mpi))
    pids = pids_in(jobs.folder, 2)
    process.kill()
    wait_gone(pids)


#: More on its standard error than a pipe holds, and then its name.
LOUD = """
[ "$1" = --version ] || exit 3
head -c 100000 /dev/zero | tr '\\0' x >&2
echo "mpirun (Open MPI) 4.1.4"
"""


def test_an_mpirun_that_complains_at_length_is_recognized(jobs: Jobs) -> None:
    result = jobs.run("--mpi", "-np", "1", "true", env=stand_in(jobs, "mpirun", LOUD))
    assert (result.code, result.err) == (3, "")


STUBBORN = """
if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi
trap "" TERM
sh -c 'echo $$ > rank.part; mv rank.part rank.pid; exec sleep 1000' &
echo $$ > self.part; mv self.part self.pid
wait
"""


@pytest.mark.parametrize("by", ["signal", "end of the caller"])
def test_an_mpirun_that_ignores_sigterm_is_killed_with_its_children(jobs: Jobs, by: str) -> None:
    caller = subprocess.Popen(["sleep", "1000"])
    try:
        flags = ["--grace-seconds", "0", "--caller", str(caller.pid)]
        env = stand_in(jobs, "mpirun", STUBBORN)
        process = jobs.start("--mpi", "-np", "1", *flags, "true", env=env)
        pids = pids_in(jobs.folder, 2)
        if by == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            caller.kill()
            caller.wait()
        result = ended(process)
        assert result.code == 128 + signal.SIGKILL
        assert any("5 s after SIGTERM" in line for line in result.said), result.err
        wait_gone(pids)
    finally:
        caller.kill()
        caller.wait()


def test_no_mpi_is_an_error_that_says_what_to_do(jobs: Jobs) -> None:
    (jobs.folder / "bin").mkdir()
    for name in ("true", "sh"):
        (jobs.folder / "bin" / name).symlink_to(str(shutil.which(name)))
    alone = {"PATH": str(jobs.folder / "bin")}
    missing = jobs.run("--mpi", "-np", "1", "true", env=alone)
    assert missing.code == 2
    assert "mpirun was not found in PATH" in missing.err and "--gloo" in missing.err
    stand_in(jobs, "mpirun", "echo Some MPI 1.0\n")
    other = jobs.run("--mpi", "-np", "1", "true", env=alone)
    assert other.code == 2
    assert "'Some MPI 1.0'" in other.err and "apt-get install openmpi-bin" in other.err


def test_mpich_says_what_it_cannot_do(jobs: Jobs) -> None:
    env = stand_in(jobs, "mpirun", "echo HYDRA build details:\n")
    slots = jobs.run("--mpi", "-np", "3", "-H", "a:1,b:2", "true", env=env)
    assert slots.code == 2 and "equal slots on every host: a has 1, b has 2" in slots.err
    two = jobs.run(
        "--mpi", "-np", "1", "--network-interfaces", "lo,x", "-H", "a:1", "true", env=env
    )
    assert two.code == 2 and "only one network interface" in two.err


def test_arguments_of_mpirun_without_it_are_told_of(jobs: Jobs) -> None:
    result = jobs.run("-np", "1", "--mpi-args", "x", "--binding-args", "y", "true")
    assert result.code == 0
    assert [line.split()[0] for line in result.said] == ["--mpi-args", "--binding-args"]


LSF = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "batch 1 a 4 b 4"}
#: Shows what it gets, and ends like a job that failed.
JSRUN = (
    'echo "jsrun $@"; [ "$1" != --erf_input ] || { cat "$2"; echo "$2" > file; }\n'
    'echo "$HOROVOD_CONTROLLER/$HOROVOD_RANK"; exit 5\n'
)


def test_jsrun_gets_a_rank_file_for_the_allocation(jobs: Jobs) -> None:
    env = {**stand_in(jobs, "jsrun", JSRUN), **LSF, "HOROVOD_RANK": "3"}
    result = jobs.run("--jsrun", "-np", "3", "-H", "a:2,b:1", "true", "x y", env=env)
    assert result.code == 5, result.err
    path = (jobs.folder / "file").read_text().strip()
    assert result.out_lines == [
        f"jsrun --erf_input {path} true x y",
        "overlapping_rs: allow",
        "cpu_index_using: logical",
        "rank: 0: { hostname: a; cpu: {0-1} ; gpu: * ; mem: * }",
        "rank: 1: { hostname: a; cpu: {2-3} ; gpu: * ; mem: * }",
        "rank: 2: { hostname: b; cpu: {0-3} ; gpu: * ; mem: * }",
        "mpi/",
    ]
    assert not Path(path).exists()


FULL_DISK = """
mount -t tmpfs -o size=4k none full || exit 77
head -c 4096 /dev/zero > full/all
TMPDIR=$PWD/full "$@"
code=$?
ls full
exit $code
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own takes root")
def test_a_rank_file_that_cannot_be_written_is_not_left_behind(jobs: Jobs) -> None:
    (jobs.folder / "full").mkdir()
    command = ["unshare", "--mount", "sh", "-c", FULL_DISK, "sh", horovodrun(), "--jsrun", "true"]
    env = {**os.environ, **stand_in(jobs, "jsrun", JSRUN), **LSF}
    result = subprocess.run(command, cwd=jobs.folder, env=env, capture_output=True, text=True)
    if result.returncode == 77:
        pytest.skip(f"no file system can be mounted here: {result.stderr}")
    assert (result.returncode, result.stdout) == (1, "all\n"), result.stderr
    assert f"the rank file {jobs.folder}/full/horovodrun-ranks-" in result.stderr
    assert "cannot be written: No space left on device; set TMPDIR to another" in result.stderr


def test_an_allocation_is_filled_unless_the_user_says_otherwise(jobs: Jobs) -> None:
    env = {**stand_in(jobs, "jsrun", JSRUN), **LSF}
    result = jobs.run("--jsrun", "true", env=env)
    ranks = [line.split()[3] for line in result.out_lines if line.startswith("rank:")]
    assert ranks == [*["hostname:"] * 8], result
    assert "rank: 7: { hostname: b; cpu: {3} ;" in result.out
    asked = jobs.run("--jsrun", "-np", "9", "true", env=env)
    assert asked.code == 2 and "8 available" in asked.err


def test_jsrun_outside_lsf_is_an_error(jobs: Jobs) -> None:
    env = stand_in(jobs, "jsrun", JSRUN)
    outside = jobs.run("--jsrun", "-np", "1", "true", env=env)
    assert outside.code == 2
    assert "no LSF job was found" in outside.err and "--gloo or --mpi" in outside.err


def test_jsrun_that_is_not_there_is_an_error(jobs: Jobs) -> None:
    if shutil.which("jsrun"):
        pytest.skip("there is a jsrun here")
    result = jobs.run("--jsrun", "-np", "1", "true", env=LSF)
    assert result.code == 2 and "jsrun was not found in PATH" in result.err


def test_a_function_from_python_does_not_go_through_jsrun(jobs: Jobs) -> None:
    result = jobs.run("--jsrun", "--caller", str(os.getpid()), "-np", "1", "true", env=LSF)
    assert result.code == 2 and "leave out --jsrun" in result.err

"""Limits and lacks of a machine: of open files and processes, and of a usable /proc."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable

import pytest
from launcher import Ended, Jobs, ended, horovodrun

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")


def limited(
    jobs: Jobs, *arguments: str, limit: Callable[[], None], user: int | None = None
) -> Ended:
    process = subprocess.Popen(
        [horovodrun(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=jobs.folder,
        preexec_fn=limit,
        user=user,
    )
    jobs.started.append(process)
    return ended(process)


def test_a_low_soft_limit_of_open_files_is_raised_for_the_launcher_alone(jobs: Jobs) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    result = limited(
        jobs,
        "-np",
        "40",
        "sh",
        "-c",
        "ulimit -Sn",
        limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)),
    )
    assert result.code == 0, result.err
    assert [line.rpartition(":")[2] for line in result.out_lines] == ["64"] * 40


@pytest.mark.parametrize(("ranks", "hard", "needed"), [(40, 128, 192), (2, 36, 40)])
def test_a_hard_limit_of_open_files_that_is_too_low_is_named(
    jobs: Jobs, ranks: int, hard: int, needed: int
) -> None:
    result = limited(
        jobs,
        "-np",
        str(ranks),
        "true",
        limit=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)),
    )
    assert result.code == 2
    (line,) = result.said
    assert line.startswith(
        f"{needed} open files are needed to start {ranks} ranks here, and the limit is {hard}; "
        f"raise the hard limit, which is {hard}: "
    )
    assert line.endswith("; or start fewer ranks per host")


@root_only
def test_a_limit_of_processes_that_is_reached_is_said_once(jobs: Jobs) -> None:
    """Root has no such limit; the user has no other processes, also not of another run."""
    user, allowed = 100_000_000 + os.getpid(), 6
    result = limited(
        jobs,
        "-np",
        "10",
        "--grace-seconds",
        "0",
        "sleep",
        "900",
        limit=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (allowed, allowed)),
        user=user,
    )
    assert result.code == 126, result.err
    assert "could not be started: the limit of processes on its host is reached" in result.said[0]
    assert not [line for line in result.said[1:] if "processes" in line], result.err
    left = subprocess.run(["pgrep", "-U", str(user)], capture_output=True, text=True)
    assert left.stdout == ""


NAMESPACE = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "sh", "-c"]
#: What a namespace runs: prepares its /proc, then the job, and tells which of its processes are
#: left. What was killed may take a moment to end; what {stays} is not waited for. All ends with
#: this shell, which is its first process.
IN_NAMESPACE = """
set -e
{prepare}
set +e
"$@" &
wait $!
echo code=$?
for file in *.pid; do
  tries=0
  while [ "$file" != "{stays}.pid" ] && [ $tries -lt 300 ] && kill -0 $(cat $file) 2> /dev/null; do
    tries=$((tries + 1)); sleep 0.1
  done
  kill -0 $(cat $file) 2> /dev/null && echo left=${{file%.pid}}
done
exit 0
"""
HIDDEN = "mount -t tmpfs none /proc"
#: That of a namespace below, in which the launcher does not exist.
FOREIGN = """
mkdir foreign
unshare --pid --fork --kill-child sh -c 'mount -t proc proc foreign && exec sleep 900' &
until [ -d foreign/1 ]; do sleep 0.05; done
mount --bind foreign /proc
"""
#: The one of this test, where everything has another number.
ABOVE = "true"


def in_namespace(jobs: Jobs, prepare: str, *arguments: str, stays: str = "") -> Ended:
    script = IN_NAMESPACE.format(prepare=prepare, stays=stays)
    process = subprocess.Popen(
        [*NAMESPACE, script, "sh", horovodrun(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=jobs.folder,
    )
    jobs.started.append(process)
    return ended(process)


@pytest.fixture(scope="module")
def namespaces() -> None:
    made = subprocess.run([*NAMESPACE, HIDDEN], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"PID namespaces are not allowed here: {made.stderr.strip()}")


#: Rank 1 fails; rank 0 and a child in its process group have to be killed.
STUBBORN = """
if [ $HOROVOD_RANK = 1 ]; then
  until [ -e 0.pid ] && [ -e child.pid ]; do sleep 0.05; done
  exit 3
fi
trap '' TERM
sh -c 'echo $$ > child.tmp; mv child.tmp child.pid; exec sleep 900' &
echo $$ > 0.tmp; mv 0.tmp 0.pid
wait
"""


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (HIDDEN, "/proc is not mounted"),
        (FOREIGN, "/proc is that of another PID namespace"),
        (ABOVE, None),
    ],
    ids=["none", "foreign", "above"],
)
def test_ranks_are_ended_whatever_proc_shows(
    jobs: Jobs, namespaces: None, prepare: str, said: str | None
) -> None:
    script = jobs.script(STUBBORN)
    result = in_namespace(jobs, prepare, "-np", "2", "--grace-seconds", "0", script)
    assert result.out_lines == ["code=3"], result
    told = [line for line in result.said if "/proc" in line]
    assert len(told) == (said is not None)
    assert said is None or f": {said}: signals reach only the ranks" in told[0]


@pytest.mark.parametrize("signal_proof", [False, True])
def test_daemons_of_ranks_are_found_in_the_proc_of_a_namespace_above(
    jobs: Jobs, namespaces: None, signal_proof: bool
) -> None:
    trap = "trap '' TERM; " if signal_proof else ""
    script = jobs.script(
        f"setsid sh -c '{trap}echo $$ > daemon.tmp; mv daemon.tmp daemon.pid; sleep 900; true' &\n"
        "until [ -e daemon.pid ]; do sleep 0.05; done\n"
    )
    result = in_namespace(jobs, ABOVE, "-np", "1", "--grace-seconds", "0", script)
    assert result.out_lines == ["code=0"], result


def test_a_daemon_that_cannot_be_found_does_not_hold_up_the_end(
    jobs: Jobs, namespaces: None
) -> None:
    script = jobs.script(
        "setsid sh -c 'echo $$ > daemon.tmp; mv daemon.tmp daemon.pid; sleep 900; true' &\n"
        "until [ -e daemon.pid ]; do sleep 0.05; done\n"
    )
    options = ["-np", "1", "--grace-seconds", "0"]
    result = in_namespace(jobs, HIDDEN, *options, script, stays="daemon")
    assert result.out_lines == ["code=0", "left=daemon"], result
    assert "processes of the job on localhost have not ended after SIGKILL" in result.err


def test_the_group_of_a_rank_is_ended_when_the_supervisor_is_killed(
    jobs: Jobs, namespaces: None
) -> None:
    """The rank itself ends with its parent, by the kernel."""
    script = jobs.script(
        "sh -c 'echo $$ > child.tmp; mv child.tmp child.pid; exec sleep 900' &\n"
        "until [ -e child.pid ]; do sleep 0.05; done\n"
        "kill -KILL $PPID\nwait\n"
    )
    result = in_namespace(jobs, HIDDEN, "-np", "1", "--grace-seconds", "0", script)
    assert result.out_lines == ["code=137"], result

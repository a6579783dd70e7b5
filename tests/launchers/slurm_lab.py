"""A real Slurm on this machine, with three node names, as long as a test session needs it. Each
node is a slurmd with a mount namespace of its own, in which the names of the nodes are known."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from started import free_port

NODES = ("n1", "n2", "n3")
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "sinfo", "munged", "unshare")
START_SECONDS = 60
#: Ranks find each other by the number of their job, and other labs may run on this machine.
JOB_NUMBERS = 1, 60_000_000

CONFIGURATION = """\
ClusterName=lab
FirstJobId={first_job}
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SwitchType=switch/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
# A busy machine answers late.
BatchStartTimeout=120
MessageTimeout=60
TCPTimeout=30
{nodes}
PartitionName=main Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
NODE = (
    "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} "
    "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=500"
)


@dataclass(frozen=True)
class Lab:
    """`enter` starts programs in it, which find it by the variables."""

    enter: str
    variables: dict[str, str]


def free_ports(count: int) -> list[str]:
    found: set[str] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


def write_configuration(folder: Path) -> None:
    ports = free_ports(1 + len(NODES))
    nodes = [NODE.format(name=name, port=port) for name, port in zip(NODES, ports[1:], strict=True)]
    for name in ["state", *(f"spool-{node}" for node in NODES), *(f"tmp-{node}" for node in NODES)]:
        (folder / name).mkdir()
    values = {
        "ports": ports,
        "nodes": "\n".join(nodes),
        "first_job": random.randrange(*JOB_NUMBERS),
    }
    text = CONFIGURATION.format(folder=folder, **values)
    (folder / "slurm.conf").write_text(text)
    (folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(NODES)}\n")


def write_entrance(folder: Path) -> Path:
    """A program that runs another one where the names of the nodes are known; and where PMIx lies
    under the name by which Slurm asks for it, which only its developers' package has."""
    mounts = [f"mount --bind {folder}/hosts /etc/hosts"]
    for library in Path("/usr/lib").glob("*/pmix2/lib"):
        shutil.copytree(library, folder / "pmix", symlinks=True)
        (folder / "pmix" / "libpmix.so").unlink(missing_ok=True)
        (folder / "pmix" / "libpmix.so").symlink_to("libpmix.so.2")
        mounts.append(f"mount --bind {folder}/pmix {library}")
    entrance = folder / "enter"
    inside = " && ".join(mounts)
    entrance.write_text(f"""#!/bin/sh\nexec unshare -m sh -c '{inside} && exec "$@"' sh "$@"\n""")
    entrance.chmod(0o755)
    return entrance


def munge_command(folder: Path) -> list[str]:
    """Returns the command of munged. The folder belongs to its user, which must be able to access
    it.
    """
    runtime = folder / "munge"
    runtime.mkdir()
    key = runtime / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    for path in (runtime, key):
        shutil.chown(path, "munge", "munge")
    options = [f"--key-file={key}", f"--socket={runtime}/socket", f"--pid-file={runtime}/pid"]
    options += [f"--log-file={runtime}/log", f"--seed-file={runtime}/seed", "--foreground"]
    return ["runuser", "-u", "munge", "--", "munged", "--force", *options]


def ready(environment: dict[str, str]) -> bool:
    seen = subprocess.run(
        ["sinfo", "-h", "-N", "-o", "%N %T"], env=environment, capture_output=True, text=True
    )
    return seen.stdout.split() == [word for node in NODES for word in (node, "idle")]


@contextmanager
def running() -> Iterator[Lab]:
    """In a folder of its own, which goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="hvd-slurm-", dir="/var/tmp"))
    folder.chmod(0o755)  # munge's user passes through
    try:
        with _running_in(folder) as one:
            yield one
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running_in(folder: Path) -> Iterator[Lab]:
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    write_configuration(folder)
    enter = str(write_entrance(folder))
    commands = [munge_command(folder), ["slurmctld", "-D", "-c"]]
    commands += [[enter, "slurmd", "-D", "-N", node] for node in NODES]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with (folder / "daemons.log").open("ab") as log:
                processes.append(
                    subprocess.Popen(
                        command, env=environment, stdout=log, stderr=log, start_new_session=True
                    )
                )
            if command[0] == "runuser":
                await_file(folder / "munge" / "socket")
        deadline = time.monotonic() + START_SECONDS
        while not ready(environment):
            if time.monotonic() > deadline:
                logs = [log.read_text(errors="replace")[-800:] for log in folder.glob("*.log")]
                # All that it needs is here (why_not), so a skip would hide a whole section.
                pytest.fail("Slurm does not start:\n" + "\n".join(logs))
            time.sleep(0.1)
        yield Lab(enter, {"SLURM_CONF": environment["SLURM_CONF"]})
    finally:
        for process in reversed(processes):
            end(process)


def await_file(path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    """It and what it has started, which is in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def why_not() -> str:
    """Why there can be no Slurm here; "" when there can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root here"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (tools/debian-packages.txt)"
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "mount namespaces are not allowed here"

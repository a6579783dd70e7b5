"""Stand-ins for pods: a network namespace each, a process tree and mounts of their own over the
files of an image, and the variables and files that the operators put there. The image is a built
one, or this machine with what is installed for the tests at the image's paths."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hosts_lab
import yaml
from debian_root import CHROOT
from dockerfile import Image, instructions

from devtool.paths import ROOT

SECONDS = 180
HOME = "/home/horovod"
NAMESPACE = "default"
#: So that a training takes seconds.
SHORT = ["--epochs", "1", "--train-images", "512"]


def why_no_pods() -> str:
    if why := hosts_lab.why_not():
        return why
    options = "lowerdir=/etc,upperdir=/mnt/up,workdir=/mnt/work"
    probe = (
        f"mount -t tmpfs x /mnt && mkdir /mnt/up /mnt/work && mount -t overlay x -o {options} /etc"
    )
    tried = subprocess.run(["unshare", "-m", "sh", "-c", probe], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"overlays are not allowed here: {tried.stderr}"


def this_machine() -> Image:
    """As if the image had been built from what is installed here; as root, whom the checkout and
    its Python may belong to."""
    environment = {}
    for one in instructions((ROOT / "deploy/docker/Dockerfile").read_text()):
        if one.word == "ENV":
            name, _, value = one.rest.partition("=")
            environment[name] = value
    return Image(Path("/"), environment, folder=HOME)


def manifest(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy/kubernetes" / name).read_text()))


def shortened(command: list[str]) -> list[str]:
    return [*command[: command.index("--epochs")], *SHORT]


@dataclass(frozen=True)
class Pod:
    """`name` as DNS has it. `files`: folders of this machine and where they are mounted. `ready`:
    what it says when the next pod may start."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    files: Mapping[Path, str] = field(default_factory=dict)
    ready: str = ""


@dataclass
class Ended:
    returncode: int
    output: str


def entry(image: Image, pod: Pod, folder: Path, hosts: str) -> str:
    """The script that makes the pod and becomes its command."""
    root = folder / "root"
    where = shlex.quote(str(root))
    lower = f"lowerdir={image.root},upperdir={folder}/up,workdir={folder}/work"
    lines = [
        "set -e",
        f"hostname {pod.name.partition('.')[0]}",
        f"mount -t tmpfs pod {folder}",
        f"mkdir {folder}/up {folder}/work {where}",
        f"mount -t overlay pod -o {lower} {where}",
        f"mount -t proc proc {where}/proc && mount --rbind /dev {where}/dev",
        f"mount -t tmpfs tmp {where}/tmp && chmod 1777 {where}/tmp",
        f"printf '{hosts}' > {where}/etc/hosts",
    ]
    if image.root == Path("/"):
        lines += [
            f"mkdir -p {where}{HOME} {where}/opt/horovod {where}{ROOT} {where}{sys.base_prefix}",
            f"mount --rbind {ROOT} {where}{ROOT}",
            f"ln -sfn {sys.prefix} {where}/opt/venv",
            f"ln -sfn {ROOT}/examples {where}/opt/horovod/examples",
            f"ln -sfn {ROOT}/deploy/docker/bin {where}/opt/horovod/bin",
            f"cp {ROOT}/deploy/docker/ssh_config {where}/etc/ssh/ssh_config.d/horovod.conf",
            f"rm -rf {where}/run/sshd",  # what makes it at boot is not in an image
            f"sed -i 's,^\\(root:.*:\\)/root:,\\1{HOME}:,' {where}/etc/passwd",
        ]
    for source, target in pod.files.items():
        lines += [f"mkdir -p {where}{target}", f"mount --bind {source} {where}{target}"]
    user = "" if image.user == "root" else "--userspec=1000:1000"
    change = f'cd {HOME} && exec "$@"'
    lines += [f'exec {CHROOT} {user} {where} /bin/sh -c {shlex.quote(change)} sh "$@"']
    return "\n".join(lines) + "\n"


@dataclass
class Running:
    """Pods of a job. `logs`: of the latest start of each."""

    folder: Path
    image: Image
    pods: list[Pod]
    enter: list[str]
    hosts: str
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    logs: dict[int, Path] = field(default_factory=dict)

    def start(self, index: int) -> None:
        """Also in the place of one that was deleted."""
        pod = self.pods[index]
        at = self.folder / f"pod{len(self.processes)}"
        at.mkdir()
        script = at.with_suffix(".sh")
        script.write_text(entry(self.image, pod, at, self.hosts))
        apart = ["unshare", "-m", "--pid", "--fork", "--kill-child"]
        environment = {"HOME": HOME, **self.image.environment, **pod.environment}
        self.logs[index] = at.with_suffix(".log")
        with self.logs[index].open("w") as log:
            started = subprocess.Popen(
                [self.enter[index], *apart, "sh", str(script), *pod.command],
                env={"OMP_NUM_THREADS": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.processes.append(started)
        self.await_text(index, pod.ready)

    def await_text(self, index: int, text: str, count: int = 1) -> None:
        log = self.logs[index]
        deadline = time.monotonic() + SECONDS
        while log.read_text().count(text) < count:
            assert time.monotonic() < deadline, f"waited in vain for {text!r}: {log.read_text()}"
            time.sleep(0.05)

    def delete(self, index: int) -> int:
        """As Kubernetes does it: by a SIGTERM to process 1 of the pod. Returns its status."""
        process = self.processes[index]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        return process.wait(timeout=SECONDS)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def running(folder: Path, image: Image, pods: list[Pod]) -> Iterator[Running]:
    with hosts_lab.running(folder, len(pods)) as hosts:
        lines = ["127.0.0.1 localhost"]
        for pod, address in zip(pods, hosts.addresses, strict=True):
            lines.append(f"{address} {pod.name} {pod.name.partition('.')[0]}")
        text = "".join(f"{line}\\n" for line in lines)
        job = Running(folder, image, pods, list(hosts.enter), text)
        try:
            for index in range(len(pods)):
                job.start(index)
            yield job
        finally:
            job.end()


def run(folder: Path, image: Image, pods: list[Pod], until: list[int]) -> Ended:
    """Ends when the pods with these numbers have; the worst of their ends."""
    with running(folder, image, pods) as job:
        codes = []
        for index in until:
            try:
                codes.append(job.processes[index].wait(timeout=SECONDS))
            except subprocess.TimeoutExpired:
                codes.append(124)
    return Ended(max(codes, key=abs), "\n".join(log.read_text() for log in job.logs.values()))


def container(template: dict[str, Any]) -> dict[str, Any]:
    """The only one of a pod."""
    (one,) = template["spec"]["containers"]
    return dict(one)


def command_of(one: dict[str, Any]) -> list[str]:
    return [*one["command"], *one.get("args", [])]


def variables_of(one: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in one.get("env", [])}


def ssh_secret(folder: Path, user: str) -> Path:
    """As the operator makes and mounts it: its files are root's, and others can read them if it is
    not for root; whose own ssh would not have such a key."""
    folder.mkdir()
    key = folder / "id_rsa"
    made = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", str(key)]
    subprocess.run(made, check=True)
    shutil.copy(folder / "id_rsa.pub", folder / "authorized_keys")
    for file in folder.iterdir():
        file.chmod(0o600 if user == "root" else 0o644)
    folder.chmod(0o1777)
    return folder


def mpijob_pods(
    folder: Path,
    image: Image,
    file: str = "mpijob.yaml",
    program: Sequence[str] = (),
    volume: Mapping[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Pod]:
    """Those of an MPIJob, the launcher last, by what the operator sets for Open MPI. `program`:
    other than that of the manifest. `volume`: mounted in all pods. `environment`: of the launcher.
    """
    (job,) = manifest(file)
    name, spec = job["metadata"]["name"], job["spec"]
    worker = container(spec["mpiReplicaSpecs"]["Worker"]["template"])
    launcher = container(spec["mpiReplicaSpecs"]["Launcher"]["template"])
    count = spec["mpiReplicaSpecs"]["Worker"]["replicas"]
    names = [f"{name}-worker-{index}.{name}-worker.{NAMESPACE}.svc" for index in range(count)]
    secret = {ssh_secret(folder / "ssh", image.user): spec["sshAuthMountPath"], **(volume or {})}
    config = folder / "mpi"
    config.mkdir()
    lines = [f"{worker_name} slots={spec['slotsPerWorker']}\n" for worker_name in names]
    (config / "hostfile").write_text("".join(lines))
    running_ones = "".join(f"echo {worker_name}\n" for worker_name in names)
    (config / "discover_hosts.sh").write_text(f"#!/bin/sh\n{running_ones}")
    (config / "discover_hosts.sh").chmod(0o555)
    role = {"K_MPI_JOB_ROLE": "worker"}
    pods = [Pod(one, command_of(worker), role, secret, "Server listening") for one in names]
    variables = {
        "K_MPI_JOB_ROLE": "launcher",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": str(spec["slotsPerWorker"]),
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
        **(environment or {}),
    }
    files = {**secret, config: "/etc/mpi"}
    command = command_of(launcher)
    command = [*command[: command.index("python")], *program] if program else command
    return [*pods, Pod(f"{name}-launcher", command, variables, files)]


def mpijob(folder: Path, image: Image, pods: list[Pod] | None = None) -> Ended:
    """The job of mpijob.yaml, or of `pods`; shortened, if it is that of the manifest."""
    if pods is None:
        pods = mpijob_pods(folder, image)
        pods[-1] = replace(pods[-1], command=shortened(pods[-1].command))
    return run(folder, image, pods, [len(pods) - 1])

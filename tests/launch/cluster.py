"""Hosts for tests: network namespaces joined by a switch, each with a name and an sshd of its own.

Every host has three networks: one that nobody answers in, a bridge as Docker makes it, with the
same address everywhere, and a wire to the others. Only the wire is of use. All have the same files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
from launcher import WATCHDOG_SECONDS, Ended, ended, horovodrun, wait_until

COUNT = 3
WIRE = "wire"
DEAD = "dead"


def address(host: int) -> str:
    return f"10.77.1.{host}"


def address_v6(host: int) -> str:
    return f"fd77::{host}"


def why_not() -> str | None:
    """Why there can be no such hosts here."""
    for program in ("unshare", "ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    if not Path("/usr/sbin/sshd").exists():
        return "there is no sshd (openssh-server)"
    return why_no_namespaces()


def why_no_namespaces() -> str | None:
    """Why there can be no network namespaces here."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    if shutil.which("ip") is None:
        return "there is no program ip (iproute2)"
    probe = f"hvd{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode != 0:
        return f"network namespaces are not allowed: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return None


def must(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"


@dataclass
class Cluster:
    """Hosts 1 to `count`. The launcher runs on host 1."""

    folder: Path
    count: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def hosts(self) -> range:
        return range(1, self.count + 1)

    # ---- Networks ----
    def name(self, host: int | str) -> str:
        return f"hvd{os.getpid()}-{host}"

    def build(self) -> None:
        switch = self.name("switch")
        must("ip", "netns", "add", switch)
        must("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        must("ip", "-n", switch, "link", "set", "bridge", "up")
        for host in self.hosts:
            self._build_host(host, switch)
        self._make_keys()
        Path("/run/sshd").mkdir(exist_ok=True)
        for host in self.hosts:
            self.start_sshd(host)

    def _build_host(self, host: int, switch: str) -> None:
        name = self.name(host)
        must("ip", "netns", "add", name)
        must("ip", "-n", name, "link", "set", "lo", "up")
        for interface in (DEAD, WIRE):
            port = f"{interface}{host}"
            peer = ["type", "veth", "peer", "name", interface, "netns", name]
            must("ip", "-n", switch, "link", "add", port, *peer)
            must("ip", "-n", switch, "link", "set", port, "up")
            must("ip", "-n", name, "link", "set", interface, "up")
        must("ip", "-n", switch, "link", "set", f"{WIRE}{host}", "master", "bridge")
        must("ip", "-n", name, "link", "add", "docker0", "type", "bridge")
        must("ip", "-n", name, "link", "set", "docker0", "up")
        must("ip", "-n", name, "addr", "add", f"10.88.0.{host}/24", "dev", DEAD)
        must("ip", "-n", name, "addr", "add", "172.17.0.1/16", "dev", "docker0")
        must("ip", "-n", name, "addr", "add", f"{address(host)}/24", "dev", WIRE)
        must("ip", "-n", name, "addr", "add", f"{address_v6(host)}/64", "dev", WIRE, "nodad")
        own = Path(f"/etc/netns/{name}")
        own.mkdir(parents=True, exist_ok=True)
        lines = ["127.0.0.1 localhost"]
        lines += [f"{address(other)} node{other}" for other in self.hosts]
        (own / "hosts").write_text("\n".join(lines) + "\n")

    def take_down(self) -> None:
        self.end()
        for host in self.hosts:
            self.stop_sshd(host)
        for host in (*self.hosts, "switch"):
            subprocess.run(["ip", "netns", "del", self.name(host)], capture_output=True)
            shutil.rmtree(f"/etc/netns/{self.name(host)}", ignore_errors=True)

    def cut(self, host: int, off: bool = True) -> None:
        """Packets of the wire get lost, without a reset. `off` False: no longer."""
        port = f"{WIRE}{host}"
        must("ip", "-n", self.name("switch"), "link", "set", port, "down" if off else "up")

    def isolate(self, *hosts: int, off: bool = True) -> None:
        """The same between these hosts only: they still reach all others."""
        for host in hosts:
            port = ("dev", f"{WIRE}{host}", "type", "bridge_slave")
            switch = self.name("switch")
            must("ip", "-n", switch, "link", "set", *port, "isolated", "on" if off else "off")

    # ---- ssh ----
    def _make_keys(self) -> None:
        for key in ("host_key", "user_key", "other_key"):
            must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        shutil.copy(self.folder / "user_key.pub", self.folder / "authorized_keys")
        (self.folder / "ssh_config").write_text(
            f"IdentityFile {self.folder}/user_key\nIdentitiesOnly yes\n"
            f"UserKnownHostsFile {self.folder}/known_hosts\nLogLevel ERROR\n"
        )
        programs = self.folder / "bin"
        programs.mkdir()
        ssh = programs / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)

    def start_sshd(self, host: int, hide: Path | None = None, instead: str | None = None) -> None:
        """`hide`: a folder that is empty in sessions on this host. `instead`: a shell command that
        runs in place of the command that was sent."""
        config = self.folder / f"sshd{host}.conf"
        config.write_text(
            f"Port 22\nListenAddress {address(host)}\nListenAddress {address_v6(host)}\n"
            f"HostKey {self.folder}/host_key\nPidFile {self.folder}/sshd{host}.pid\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nStrictModes no\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nUsePAM no\nUseDNS no\nPrintMotd no\n"
            "PrintLastLog no\nMaxStartups 200\n"
            f"SetEnv PATH={self.folder}/bin:/usr/bin:/bin\n"  # an agent has the same ssh
            + (f"ForceCommand {instead}\n" if instead else "")
        )
        covered = f"mount -t tmpfs none '{hide}' && " if hide else ""
        log = self.folder / f"sshd{host}.log"
        self.run_on(host, "sh", "-c", f"{covered}exec /usr/sbin/sshd -f {config} -E {log}")
        pid_file, deadline = self.folder / f"sshd{host}.pid", time.monotonic() + WATCHDOG_SECONDS
        while not pid_file.exists() or not pid_file.read_text():  # it is empty for a moment
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)

    def signal_sshd(self, host: int, number: int) -> None:
        """To the daemon alone."""
        os.kill(int((self.folder / f"sshd{host}.pid").read_text()), number)

    def stop_sshd(self, host: int) -> None:
        """The daemon; connections that are open stay."""
        pid_file = self.folder / f"sshd{host}.pid"
        if not pid_file.exists():
            return
        subprocess.run(["kill", pid_file.read_text().strip()], capture_output=True)
        deadline = time.monotonic() + WATCHDOG_SECONDS
        while pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    # ---- Programs ----
    def inside(self, host: int, *command: str) -> list[str]:
        entered = ["ip", "netns", "exec", self.name(host), "unshare", "--uts"]
        return [*entered, "sh", "-c", 'hostname "$0" && exec "$@"', f"node{host}", *command]

    def run_on(self, host: int, *command: str) -> None:
        must(*self.inside(host, *command))

    def start(
        self,
        *arguments: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        program: str | None = None,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
    ) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **(env or {})}
        environment["PATH"] = f"{self.folder}/bin:{environment['PATH']}"
        process = subprocess.Popen(
            self.inside(1, program or horovodrun(), *arguments),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
        )
        self.started.append(process)
        return process

    def run(
        self,
        *arguments: str,
        cwd: Path,
        env: dict[str, str] | None = None,
        program: str | None = None,
    ) -> Ended:
        return ended(self.start(*arguments, cwd=cwd, env=env, program=program))

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        self.started.clear()

    def end_and_look(self) -> None:
        """Nothing of a job may be left on any host, however it ended."""
        self.end()
        wait_until(
            lambda: not any(self.processes(host) for host in self.hosts),
            "the end of all that the job has started on any host",
        )

    def processes(self, host: int) -> set[int]:
        """All but the sshd itself."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name(host)], capture_output=True, text=True, check=True
        )
        pid_file = self.folder / f"sshd{host}.pid"
        own = {int(pid_file.read_text())} if pid_file.exists() else set()
        return {int(word) for word in listed.stdout.split()} - own

    def kill_all(self, host: int) -> None:
        """Some end with the first that is killed."""
        for pid in self.processes(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def hosts(*slots: int) -> str:
    return ",".join(f"{address(host + 1)}:{count}" for host, count in enumerate(slots))


def shell(folder: Path, text: str) -> str:
    path = folder / "rank.sh"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


def by_rank(result: Ended) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for line in result.out_lines:
        head, _, text = line.partition("<stdout>:")
        key, _, value = text.partition("=")
        found.setdefault(int(head.strip("[]")), {})[key] = value
    return found


def start_sleepers(
    cluster: Cluster, folder: Path, count: int, *options: str
) -> subprocess.Popen[bytes]:
    script = shell(folder, "setsid sleep 900 &\necho $$ > $HOROVOD_RANK.pid\nexec sleep 900\n")
    listed = hosts(*[1] * count)
    process = cluster.start("-np", str(count), "-H", listed, *options, script, cwd=folder)

    def started() -> bool:
        return all((folder / f"{rank}.pid").exists() for rank in range(count))

    wait_until(started, "all ranks")
    return process


def refused(result: Ended, host: str, *cells: str) -> str:
    """The row of the host reads so; returns what is said about it."""
    assert result.code == 1 and result.out == ""
    assert "the job was not started" in result.said[0]
    assert result.said[1].split() == [
        "host",
        "resolve",
        "ssh",
        "agent",
        "program",
        "connect",
        "back",
    ]
    rows = [line.split() for line in result.said[2:] if line.startswith("  ")]
    assert [host, *cells] in rows, result.err
    return result.err.partition(f"{host}: ")[2]


@pytest.fixture(scope="module")
def network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Of as many hosts as the test's file says by its COUNT."""
    count = getattr(request.module, "COUNT", COUNT)
    cluster = cluster_or_skip(tmp_path_factory.mktemp("cluster"), count)
    yield cluster
    cluster.take_down()


@pytest.fixture
def cluster(network: Cluster) -> Iterator[Cluster]:
    """The hosts of a test's file, on which it may leave nothing, however its job ended."""
    yield network
    network.end_and_look()


def cluster_or_skip(folder: Path, count: int = COUNT) -> Cluster:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    cluster = Cluster(folder, count)
    try:
        cluster.build()
    except BaseException:
        cluster.take_down()
        raise
    return cluster

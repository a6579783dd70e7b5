"""What goes to other hosts through ssh: one connection to each, all at once, and no secret that
anybody there could see."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import Cluster, address, hosts, refused, shell
from launcher import ended, wait_until

TOKEN = "told-to-nobody-but-ranks"
KEY_OF_JOB = (
    f"{shlex.quote(sys.executable)} -c 'import os, sys; from horovod.runner._key import key_of_job;"
    " sys.stdout.buffer.write(key_of_job(os.environ))'"
)


@contextmanager
def before_ssh(cluster: Cluster, text: str) -> Iterator[None]:
    """`text` runs in front of every ssh."""
    program = cluster.folder / "bin" / "ssh"
    own = program.read_text()
    program.write_text(own.replace("#!/bin/sh\n", f"#!/bin/sh\n{text}"))
    try:
        yield
    finally:
        program.write_text(own)


def program_behind(cluster: Cluster) -> str:
    """What the hosts' ssh runs: the program, and the file of its settings."""
    line = (cluster.folder / "bin" / "ssh").read_text().splitlines()[-1]
    return line.removeprefix("exec ").removesuffix(' "$@"')


def test_every_host_has_one_ssh_and_all_are_under_way_at_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each ssh waits until as many have started as there are other hosts."""
    come = shlex.quote(str(tmp_path))
    # A call that only asks for the settings is no connection.
    wait = f'case " $* " in *" -G "*) exec {program_behind(cluster)} "$@";; esac\n'
    wait += f"touch {come}/come.$$\n"
    wait += f"until [ $(ls {come}/come.* | wc -l) -ge 2 ]; do sleep 0.02; done\n"
    with before_ssh(cluster, wait):
        result = cluster.run(
            "-np", "3", "-H", hosts(1, 1, 1), "--start-timeout", "40", "true", cwd=tmp_path
        )
    assert (result.code, result.err) == (0, "")
    assert len(list(tmp_path.glob("come.*"))) == 2


@contextmanager
def settings(cluster: Cluster, text: str) -> Iterator[Path]:
    """Of ssh, and a file of known hosts that is empty at first."""
    config = cluster.folder / "ssh_config"
    before = config.read_text()
    known = cluster.folder / "no_hosts"
    known.write_text("")
    own = before.replace(f"{cluster.folder}/known_hosts", str(known))
    config.write_text(own + text)
    try:
        yield known
    finally:
        config.write_text(before)


def test_an_unknown_host_is_accepted_where_ssh_would_ask(cluster: Cluster, tmp_path: Path) -> None:
    with settings(cluster, "") as known:
        result = cluster.run("-np", "2", "-H", hosts(1, 1), "true", cwd=tmp_path)
        assert (result.code, result.err) == (0, "")
        assert known.read_text().startswith(f"{address(2)} ")


@pytest.mark.parametrize(
    "text",
    ["StrictHostKeyChecking yes\n", f"Host {address(2)}\n  StrictHostKeyChecking yes\n"],
    ids=["everywhere", "this host"],
)
def test_a_policy_of_known_hosts_only_is_kept(cluster: Cluster, tmp_path: Path, text: str) -> None:
    with settings(cluster, text) as known:
        result = cluster.run("-np", "2", "-H", hosts(1, 1), "true", cwd=tmp_path)
        told = refused(result, address(2), "ok", "FAILED", "-", "-", "-")
        assert "StrictHostKeyChecking) accepts only hosts with a known key" in told
        assert f"ssh-keyscan {address(2)}" in told
        assert known.read_text() == ""


def test_a_policy_that_accepts_what_it_finds_is_kept(cluster: Cluster, tmp_path: Path) -> None:
    """`no` lets a changed key pass, which accept-new would refuse."""
    with settings(cluster, "StrictHostKeyChecking no\n") as known:
        other = (cluster.folder / "other_key.pub").read_text().split()[:2]
        known.write_text(f"{address(2)} {' '.join(other)}\n")
        result = cluster.run("-np", "2", "-H", hosts(1, 1), "true", cwd=tmp_path)
        assert result.code == 0, result.err


def test_an_ssh_that_cannot_tell_its_settings_is_called_without_that_option(
    cluster: Cluster, tmp_path: Path
) -> None:
    said = shlex.quote(str(tmp_path / "arguments"))
    text = f'case " $* " in *" -G "*) echo usage >&2; exit 255;; esac\necho "$@" > {said}\n'
    with before_ssh(cluster, text):
        result = cluster.run("-np", "2", "-H", hosts(1, 1), "true", cwd=tmp_path)
    assert "StrictHostKeyChecking" not in (tmp_path / "arguments").read_text()
    assert "BatchMode=yes" in (tmp_path / "arguments").read_text()
    assert result.code in (0, 1)  # by whether the host is known


def test_an_ssh_that_prints_settings_without_end_is_cut_short(
    cluster: Cluster, tmp_path: Path
) -> None:
    endless = 'case " $* " in *" -G "*) exec yes hashknownhosts no;; esac\n'
    with before_ssh(cluster, endless):
        result = cluster.run(
            "-np", "2", "-H", hosts(1, 1), "--start-timeout", "40", "true", cwd=tmp_path
        )
    assert (result.code, result.err) == (0, "")


def seen_on(cluster: Cluster, host: int, what: str) -> dict[int, bytes]:
    """`cmdline` or `environ` of all that runs there, by process."""
    found = {pid: Path(f"/proc/{pid}/{what}").read_bytes() for pid in cluster.processes(host)}
    assert found
    return found


def test_secrets_are_on_no_command_line_and_the_key_in_no_environment(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = (
        f'{KEY_OF_JOB} > "$HOROVOD_RANK.key"\n'
        'echo $$ > "$HOROVOD_RANK.pid"; : > "$HOROVOD_RANK.on"\n'  # no child is there any more
        "exec sleep 900\n"
    )
    env = {"A_TOKEN": TOKEN, "HOROVOD_SECRET_KEY": TOKEN}
    process = cluster.start(
        "-np", "3", "-H", hosts(1, 1, 1), shell(tmp_path, text), cwd=tmp_path, env=env
    )
    wait_until(lambda: len(list(tmp_path.glob("*.on"))) == 3, "all ranks")
    (key,) = {path.read_bytes() for path in tmp_path.glob("*.key")}
    assert len(key) == 32
    hidden = [key, key.hex().encode(), key.hex().upper().encode()]
    for host in cluster.hosts:
        lines = seen_on(cluster, host, "cmdline")
        assert not [
            pid for pid in lines if any(one in lines[pid] for one in [*hidden, TOKEN.encode()])
        ]
        variables = seen_on(cluster, host, "environ")
        assert not [pid for pid in variables if any(one in variables[pid] for one in hidden)]
        if host > 1:  # there only the rank is told what the shell here knows
            told = [pid for pid in variables if TOKEN.encode() in variables[pid]]
            assert told == [int((tmp_path / f"{host - 1}.pid").read_text())]
            assert b"A_TOKEN=" in variables[told[0]]
            assert b"HOROVOD_SECRET_KEY=" not in variables[told[0]]
    process.terminate()
    ended(process)

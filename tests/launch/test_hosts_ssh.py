"""What goes to other hosts through ssh: one connection to each, all at once, and no secret that
anybody there could see."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import Cluster, hosts, shell
from launcher import ended, wait_until

TOKEN = "told-to-nobody-but-ranks"


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


def test_every_host_has_one_ssh_and_all_are_under_way_at_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Nobody comes through before as many have come as there are other hosts."""
    come = shlex.quote(str(tmp_path))
    wait = f"touch {come}/come.$$\n"
    wait += f"until [ $(ls {come}/come.* | wc -l) -ge 2 ]; do sleep 0.02; done\n"
    with before_ssh(cluster, wait):
        result = cluster.run(
            "-np", "3", "-H", hosts(1, 1, 1), "--start-timeout", "15", "true", cwd=tmp_path
        )
    assert (result.code, result.err) == (0, "")
    assert len(list(tmp_path.glob("come.*"))) == 2


def seen_on(cluster: Cluster, host: int, what: str) -> dict[int, bytes]:
    """`cmdline` or `environ` of all that runs there, by process."""
    found = {pid: Path(f"/proc/{pid}/{what}").read_bytes() for pid in cluster.processes(host)}
    assert found
    return found


def test_secrets_are_on_no_command_line_and_the_key_in_no_environment(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = (
        'cat /proc/self/fd/$HOROVOD_KEY_FD > "$HOROVOD_RANK.part"\n'
        'echo $$ > "$HOROVOD_RANK.pid"; mv "$HOROVOD_RANK.part" "$HOROVOD_RANK.key"\n'
        "exec sleep 900\n"
    )
    env = {"A_TOKEN": TOKEN, "HOROVOD_SECRET_KEY": TOKEN}
    process = cluster.start(
        "-np", "3", "-H", hosts(1, 1, 1), shell(tmp_path, text), cwd=tmp_path, env=env
    )
    wait_until(lambda: len(list(tmp_path.glob("*.key"))) == 3, "all ranks")
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

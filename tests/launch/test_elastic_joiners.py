"""Ranks that cannot join an elastic job: of another version of Horovod, or with another key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from elastic_training import entries, training
from launcher import Jobs, ended, wait_until

pytest.importorskip("horovod._core")

import horovod
from horovod import _core

KILL_ONE = "if (generation, rank, step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)"
PORT = "HOROVOD_GLOO_RENDEZVOUS_PORT"
LIMITS = ("-np", "3", "--min-np", "2")
#: Goes on until no process is started any more, and all that were rejected have ended.
DROPPED = "os.path.exists('rejected') and not os.path.exists('/proc/' + open('rejected').read())"
#: Only of processes that are started later: they have no place yet.
JOINER = 'if [ -z "$HOROVOD_GENERATION" ]; then echo -n $$ > part; mv part rejected; %s; fi\n'


def other_version(folder: Path) -> str:
    """A copy of the package whose runtime has another version, which it returns."""
    package = Path(horovod.__file__).parent
    unused = shutil.ignore_patterns("torch", "tensorflow", "keras", "jax", "mxnet", "include")
    shutil.copytree(package, folder / "horovod", ignore=unused)
    ours = _core.version()
    theirs = "9" + ours[1:]
    library = folder / "horovod" / "libhorovod.so"
    code = library.read_bytes()
    assert code.count(ours.encode() + b"\0") == 1
    library.write_bytes(code.replace(ours.encode() + b"\0", theirs.encode() + b"\0"))
    return theirs


def test_a_joiner_with_another_version_of_horovod_is_rejected(jobs: Jobs) -> None:
    theirs = other_version(jobs.folder / "other")
    path = f"export PYTHONPATH={jobs.folder}/other"
    script = jobs.script(JOINER % path + 'exec "$@"\n')
    result = jobs.run(*LIMITS, script, *training(jobs.folder, KILL_ONE, DROPPED))
    assert result.code == 0, result.err
    found = entries(result)
    assert sorted(found) == [0, 1], "the others have not been disturbed"
    rejected = (
        f"worker 1 in slot 1 of localhost was rejected: it has Horovod {theirs}, and rank 0 in "
        f"slot 0 of localhost has Horovod {_core.version()}; install the same one"
    )
    assert rejected in result.said
    assert result.err.count(rejected) == 2, "the launcher and the process"
    dropped = "no more workers are started on localhost: 2 workers failed or left there"
    assert dropped in result.said


def test_a_joiner_with_another_key_is_rejected(jobs: Jobs) -> None:
    """It has the port of another job, which goes on as well."""
    note = f"if step == 0: open('up', 'w').write(os.environ['{PORT}'])"
    alone = ("-np", "1", "--min-np", "1")
    other = jobs.start(*alone, *training(jobs.folder, note, "os.path.exists('end')"))
    up = jobs.folder / "up"
    wait_until(lambda: up.exists() and up.read_text() != "", "the other job")
    script = jobs.script(JOINER % f"export {PORT}={up.read_text()}" + 'exec "$@"\n')
    result = jobs.run(*LIMITS, script, *training(jobs.folder, KILL_ONE, DROPPED))
    (jobs.folder / "end").touch()
    assert ended(other).code == 0
    assert result.code == 0, result.err
    assert sorted(entries(result)) == [0, 1], "the others have not been disturbed"
    differs = (
        f"127.0.0.1:{up.read_text()}: the proof of the job's key on a new connection, which a peer "
        "of another job, with another key, does not accept: "
    )
    (line,) = [line for line in result.err.splitlines() if differs in line]
    assert line.startswith("[new]<stderr>:")
    assert "no more workers are started on localhost: 2 workers failed or left there" in result.said

"""`horovodrun --doctor`, and how it is on several hosts (namespaces, as cluster.py makes them)."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster import COUNT, WIRE, Cluster, address, must
from launcher import Ended, Jobs, horovodrun, wait_until

pytest.importorskip("horovod._core")


def examined(
    cluster: Cluster, folder: Path, *flags: str, env: dict[str, str] | None = None
) -> tuple[Ended, dict[str, Any]]:
    """Three hosts, without loading frameworks; the findings that are not "ok", by block."""
    words = [f"--host={address(host)}=1" for host in range(1, COUNT + 1)]
    words += [f"--here={address(1)}", f"--program={horovodrun()}", "--json", *flags]
    result = cluster.run(
        "-m", "horovod.doctor", *words, cwd=folder, env=env, program=sys.executable
    )
    assert result.out, result.err
    blocks = json.loads(result.out)
    return result, {block["title"]: block for block in blocks}


def said(block: dict[str, Any], severity: str) -> list[str]:
    return [one["what"] for one in block["findings"] if one["severity"] == severity]


def title(host: int) -> str:
    return f"{address(host)} (node{host}), 1 rank"


# ---- one host ----------------------------------------------------------------------------------


def test_this_host_is_examined_and_its_frameworks_are_loaded(tmp_path: Path) -> None:
    result = subprocess.run(
        [horovodrun(), "--doctor"], cwd=tmp_path, capture_output=True, text=True, timeout=240,
        env={**os.environ, "HOROVOD_FUSION_TRESHOLD": "a secret"},
    )  # fmt: skip
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert any(line.startswith("  ok       Python ") for line in lines)
    assert "  advice   the variable HOROVOD_FUSION_TRESHOLD is set, but is not read" in lines
    assert any("fix: export HOROVOD_FUSION_THRESHOLD=" in line for line in lines)
    assert "a secret" not in result.stdout
    text = " ".join(result.stdout.split())
    for name in ("torch", "tensorflow", "keras"):
        assert importlib.util.find_spec(name) is None or f"horovod.{name} loads" in text
    assert (result.returncode == 0) == lines[-1].startswith("no problems, ")


#: As TensorFlow writes it, before its own lines and after everything.
LOG = "2026-11-27 02:00:00.000001: I tensorflow/core/util/port.cc:153] oneDNN custom operations\n"


def test_a_framework_that_does_not_load_is_a_problem_with_the_last_line_that_is_no_log(
    jobs: Jobs, tmp_path: Path
) -> None:
    for name in ("torch", "tensorflow", "keras"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "import atexit, os\n"
            f"def log(): os.write(1, {LOG.encode()!r}); os.write(2, {LOG.encode()!r})\n"
            "log(); atexit.register(log)\n"
            f"raise OSError('no lib{name}.so')\n"
        )
    result = jobs.run("--doctor", env={"PYTHONPATH": str(tmp_path)})
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith(socket.gethostname())
    text = " ".join(result.out.split())
    assert "oneDNN" not in text
    for name in ("torch", "tensorflow", "keras"):
        assert f"does not load: OSError: no lib{name}.so" in text


@pytest.mark.parametrize(("redirection", "why"), [(">/dev/full", "No space"), (">&-", "Bad file")])
def test_a_report_that_cannot_be_written_is_an_error(redirection: str, why: str) -> None:
    command = f"{horovodrun()} --doctor {redirection}"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=240)
    assert result.returncode == 1
    assert result.stderr.startswith(f"horovodrun: standard output cannot be written: {why}")
    assert result.stderr.count("\n") == 1


def test_a_limit_of_this_shell_is_a_problem(jobs: Jobs, tmp_path: Path) -> None:
    doctor = [sys.executable, "-m", "horovod.doctor", "--frameworks=", "--host=localhost=64"]
    doctor += ["--here=localhost", f"--program={horovodrun()}"]
    command = ["sh", "-c", 'ulimit -S -n 200; exec "$@"', "sh", *doctor]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 1
    assert "a process may open 200 files; a rank of 64 needs 512" in result.stdout
    assert "fix: ulimit -n 4096" in result.stdout


def test_a_package_that_cannot_be_loaded_is_told_by_horovodrun(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("import what_is_not_there\n")
    result = jobs.run("--doctor", env={"PYTHONPATH": str(tmp_path)})
    assert result.code == 1
    assert "cannot load the package horovod: ModuleNotFoundError" in result.said[0]
    assert "pip install" in result.err


def test_a_program_without_python_says_so(jobs: Jobs, tmp_path: Path) -> None:
    alone = tmp_path / "bin" / "horovodrun"
    alone.parent.mkdir()
    shutil.copy(horovodrun(), alone)
    result = subprocess.run(
        [alone, "--doctor"], env={"PATH": "/nowhere"}, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "there is no python3 beside" in result.stderr and "apt-get" in result.stderr


def test_a_knob_that_cannot_be_is_a_problem_and_the_rest_is_examined(
    jobs: Jobs, tmp_path: Path
) -> None:
    doctor = ["-m", "horovod.doctor", "--frameworks=", f"--program={horovodrun()}"]
    result = subprocess.run(
        [sys.executable, *doctor], cwd=tmp_path, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "HOROVOD_CYCLE_TIME": "soon"},
    )  # fmt: skip
    assert result.returncode == 1
    assert "problem  horovodrun starts no job: HOROVOD_CYCLE_TIME" in result.stdout
    assert "ok       Python" in result.stdout


@pytest.mark.parametrize("manager", ["LSF", "an operator of Kubernetes"])
def test_inside_a_job_of_other_hosts_this_host_alone_is_examined(
    manager: str, tmp_path: Path
) -> None:
    (tmp_path / "hosts").write_text("node.invalid slots=1\n")
    env = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "node.invalid 1"}
    if manager != "LSF":
        env = {"K_MPI_JOB_ROLE": "launcher"}
        env["OMPI_MCA_orte_default_hostfile"] = str(tmp_path / "hosts")
    doctor = ["-m", "horovod.doctor", "--frameworks=", f"--program={horovodrun()}", "--json"]
    result = subprocess.run(
        [sys.executable, *doctor], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, **env}, timeout=120,
    )  # fmt: skip
    (block,) = json.loads(result.stdout)
    assert block["title"] == socket.gethostname()
    assert any(what.startswith("Horovod ") for what in said(block, "ok"))


def test_an_interrupted_doctor_waits_for_its_job(tmp_path: Path) -> None:
    """The stand-in for horovodrun takes a second to end, and then looks for the folder."""
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, signal, sys, time\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--output-filename') + 1]).parent\n"
        "def end(number, frame):\n"
        "    time.sleep(1)\n"
        "    pathlib.Path('seen').write_text(str(folder.exists()))\n"
        "    sys.exit(130)\n"
        "signal.signal(signal.SIGINT, end)\n"
        "pathlib.Path('ready').touch()\n"
        "signal.pause()\n"
    )
    program.chmod(0o755)
    # A shell may have started the tests with interruptions ignored.
    begin = "import signal, sys; from horovod.doctor.command import main; "
    begin += "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(main())"
    command = [sys.executable, "-c", begin, "--frameworks=", f"--program={program}"]
    process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    try:
        wait_until((tmp_path / "ready").exists, "the job of the doctor")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert (tmp_path / "seen").read_text() == "True"


# ---- several -----------------------------------------------------------------------------------


def test_three_hosts_are_measured_pair_by_pair_over_the_wire(
    cluster: Cluster, tmp_path: Path
) -> None:
    _, blocks = examined(cluster, tmp_path, "--frameworks=")
    assert list(blocks) == [*map(title, (1, 2, 3)), "between hosts"]
    table = [line.split() for line in blocks["between hosts"]["table"]]
    assert [row[:3] for row in table[1:]] == [
        [address(1), address(2), WIRE],
        [address(1), address(3), WIRE],
        [address(2), address(3), WIRE],
    ]
    # How fast a way is depends on what else runs here.
    assert not [what for what in said(blocks["between hosts"], "problem") if " broke: " in what]
    assert any(line.startswith("clocks within") for line in said(blocks["between hosts"], "ok"))


def test_a_host_that_cannot_be_reached_does_not_hide_the_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.stop_sshd(2)
    try:
        result, blocks = examined(cluster, tmp_path, "--frameworks=")
    finally:
        cluster.start_sshd(2)
    assert result.code == 1
    (found,) = blocks[f"{address(2)}, 1 rank"]["findings"]
    assert found["what"].startswith("ssh: ") and "Connection refused" in found["what"]
    assert any("systemctl start ssh" in step for step in found["fix"])
    for host in (1, 3):
        assert "Horovod" in " ".join(said(blocks[title(host)], "ok"))
    assert len(blocks["between hosts"]["table"]) == 2


def test_a_host_whose_python_dies_does_not_hide_the_others(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, socket, sys\nif socket.gethostname() == 'node2':\n"
        "    print('this Python is broken', file=sys.stderr, flush=True)\n    os._exit(3)\n"
    )
    result, blocks = examined(cluster, tmp_path, "--frameworks=", env={"PYTHONPATH": str(tmp_path)})
    assert result.code == 1
    (found,) = said(blocks[f"{address(2)}, 1 rank"], "problem")
    assert found == "the check could not run: this Python is broken"
    for host in (1, 3):
        assert "Horovod" in " ".join(said(blocks[title(host)], "ok"))
    assert len(blocks["between hosts"]["table"]) == 2


def test_a_host_with_another_version_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """The stand-in says another version on node3, and our adapter does not take it anywhere."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import socket\n__version__ = '2.4.0' if socket.gethostname() == 'node3' else '2.5.0'\n"
    )
    env = {"PYTHONPATH": str(tmp_path)}
    result, blocks = examined(cluster, tmp_path, "--frameworks=torch", env=env)
    assert result.code == 1
    expected = f"torch differs: 2.5.0 on {address(1)}, {address(2)}; 2.4.0 on {address(3)}"
    assert expected in said(blocks["between hosts"], "problem")


def test_a_host_with_a_slow_interface_is_named(cluster: Cluster, tmp_path: Path) -> None:
    limit = ["tbf", "rate", "20mbit", "burst", "64kb", "latency", "400ms"]
    if shutil.which("tc") is None:
        pytest.skip("there is no tc")
    made = subprocess.run(
        ["ip", "netns", "exec", cluster.name(3), "tc", "qdisc", "add", "dev", WIRE, "root", *limit],
        capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip(f"this kernel limits no interface: {made.stderr.strip()}")
    try:
        result, blocks = examined(cluster, tmp_path, "--frameworks=")
    finally:
        must("ip", "netns", "exec", cluster.name(3), "tc", "qdisc", "del", "dev", WIRE, "root")
    assert result.code == 1
    (found,) = [line for line in said(blocks["between hosts"], "problem") if "exchange" in line]
    assert (
        found.startswith(f"{address(3)} exchanges ") and "the fastest connection reaches" in found
    )

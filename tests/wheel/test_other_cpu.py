"""The wheel for another CPU, with a Python of that CPU, under qemu-user. Its compiled unit tests
are the suite `aarch64`."""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import debian_root
import pytest
from commands import must
from started import free_port
from systems import HERE

from devtool import emulated, setup
from devtool.paths import ROOT
from devtool.wheel import Build, wheel_of

pytestmark = pytest.mark.slow
#: Debian 12 has it, and its cloudpickle.
RELEASE, VERSION, PACKAGES = "bookworm", (3, 11), "python3,python3-cloudpickle"
DEBIAN_CPUS = {"aarch64": "arm64"}
SECONDS = 300


@dataclass(frozen=True)
class Emulated:
    """Debian's packages for the CPU, unpacked, with the wheel. Nothing in it has been run."""

    root: Path

    def command(self, program: str, *arguments: str) -> list[str]:
        emulator, *_ = emulated.EMULATOR
        return [emulator, "-L", str(self.root), str(self.root / program), *arguments]

    def rank(self, rank: int, script: str, more: dict[str, str]) -> subprocess.Popen[str]:
        env = {**os.environ, **more, "PYTHONPATH": str(self.root / "wheel")}
        env |= {"HOROVOD_RANK": str(rank), "HOROVOD_LOCAL_RANK": str(rank)}
        env |= {"HOROVOD_SIZE": "2", "HOROVOD_LOCAL_SIZE": "2"}
        command = self.command("usr/bin/python3.{}".format(*VERSION[1:]), str(HERE / script))
        return subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )


@pytest.fixture(scope="module")
def machine() -> Iterator[Emulated]:
    if why := debian_root.why_not():
        pytest.skip(why)
    setup.install_debian_packages([emulated.DEBIAN])
    cpu = emulated.TARGET.cpu
    must(str(ROOT / "dev"), "wheel", "--target", cpu, "--python", "3.11", seconds=7200)
    with tempfile.TemporaryDirectory(prefix="hvd-emulated-", dir="/var/tmp") as folder:
        root = Path(folder)
        foreign = [f"--arch={DEBIAN_CPUS[cpu]}", "--foreign", f"--include={PACKAGES}"]
        debian_root.make(RELEASE, root, *foreign)
        for package in (root / "var/cache/apt/archives").glob("*.deb"):
            must("dpkg-deb", "--extract", str(package), str(root))
        with zipfile.ZipFile(wheel_of(Build(emulated.TARGET, VERSION, python=""))) as wheel:
            wheel.extractall(root / "wheel")
        yield Emulated(root)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_two_ranks_reduce(machine: Emulated, transport: str) -> None:
    """Started by hand: under qemu-user, horovodrun can only start programs of this CPU."""
    meeting = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1"}
    meeting |= {"HOROVOD_GLOO_RENDEZVOUS_PORT": free_port(), "HOROVOD_TRANSPORT": transport}
    ranks = [machine.rank(rank, "sum_of_ranks.py", meeting) for rank in range(2)]
    for number, rank in enumerate(ranks):
        said, _ = rank.communicate(timeout=SECONDS)
        assert said == f"rank {number} of 2: sums are right\n"


def test_the_launcher_says_that_it_is_experimental(machine: Emulated) -> None:
    (launcher,) = (machine.root / "wheel").glob("horovod-*.data/scripts/horovodrun")
    launcher.chmod(0o755)
    shown = must(*machine.command(str(launcher.relative_to(machine.root)), "--check-build"))
    assert f"Experimental: tested for {emulated.TARGET.cpu} by emulation only" in shown

"""The images: what their files say, and, slowly, that the CPU one can be built and trains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from dockerfile import Build, Ignored, Image, in_image, instructions, is_below
from pods import mpijob, why_no_pods

from devtool.paths import ROOT

FOLDER = ROOT / "deploy" / "docker"
FILES = [FOLDER / "Dockerfile", FOLDER / "Dockerfile.cuda"]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
#: What compiles without an MPI has no plugin for one.
MPI_HEADERS = {"libmpich-dev", "libopenmpi-dev"}
PIP_FILES = [Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf"]


def tracked() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for path in listing.stdout.splitlines() if (ROOT / path).is_file()]


def test_a_line_may_go_on_and_comments_are_none() -> None:
    found = instructions("# no\nRUN a \\\n # nor this\n  b\n\nUSER me\n")
    assert [(one.word, one.rest.split()) for one in found] == [
        ("RUN", ["a", "b"]),
        ("USER", ["me"]),
    ]


def test_the_last_pattern_that_fits_decides_what_docker_sees() -> None:
    ignored = Ignored("# all but\n*\n!core\n!deploy/docker\n**/__pycache__\n")
    assert not ignored("core/base/log.cc") and not ignored("deploy/docker/Dockerfile")
    assert ignored("docs/x.md") and ignored("deploy/slurm/x") and ignored("core/__pycache__/x.pyc")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_images_are_built_apart_and_run_as_a_user(file: Path) -> None:
    found = instructions(file.read_text())
    words = [one.word for one in found]
    assert words.count("FROM") == 2, "what compiles stays behind"
    last = found[len(words) - words[::-1].index("FROM") - 1 :]
    assert next(one.rest for one in reversed(last) if one.word == "USER") != "root"
    assert not any("-dev" in one.rest for one in last if one.word == "RUN")


def packages_of_the_build(file: Path) -> set[str]:
    """What the first stage installs."""
    found = instructions(file.read_text())
    line = next(one.rest for one in found if one.rest.startswith("apt-get"))
    return {word for word in line.partition("install")[2].split() if not word.startswith("-")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_images_are_compiled_with_packages_that_development_has_too(file: Path) -> None:
    listed = (ROOT / "tools" / "debian-packages.txt").read_text().split()
    packages = packages_of_the_build(file)
    assert packages - {"ca-certificates", "g++"} <= set(listed)
    assert packages >= MPI_HEADERS


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_is_in_the_context(file: Path) -> None:
    ignored = Ignored((ROOT / ".dockerignore").read_text())
    context = [path for path in tracked() if not ignored(path)]
    sources = [
        one.rest.split()[0]
        for one in instructions(file.read_text())
        if one.word == "COPY" and not one.rest.startswith("--from")
    ]
    assert sources
    for source in sources:
        assert any(is_below(path, source) for path in context), source


def test_the_context_has_what_cmake_reads() -> None:
    ignored = Ignored((ROOT / ".dockerignore").read_text())
    listed = (ROOT / "CMakeLists.txt").read_text()
    for folder in re.findall(r"add_subdirectory\((\S+)\)", listed):
        assert not ignored(f"{folder}/CMakeLists.txt"), folder


def test_the_image_of_cuda_differs_in_torch_and_what_the_driver_needs() -> None:
    plain, cuda = (instructions(file.read_text()) for file in FILES)
    assert [one.word for one in plain if one not in cuda] == ["ARG"]
    assert [one.rest.partition("=")[0] for one in cuda if one not in plain] == [
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    ]


def around(root: Path, command: list[str]) -> list[str]:
    """Where the image has /proc and /dev, and pip finds what it finds here."""
    mounts = [f"mount -t proc proc {root}/proc", f"mount --rbind /dev {root}/dev"]
    mounts += ["mount -t tmpfs tmp " + str(root / "tmp"), f"chmod 1777 {root}/tmp"]
    wheels = Path(os.environ.get("PIP_FIND_LINKS", "/nothing"))
    if wheels.is_dir():
        mounts += [f"mkdir -p {root}{wheels}", f"mount --bind {wheels} {root}{wheels}"]
    return ["unshare", "-m", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh", *command]


def arguments() -> dict[str, str]:
    """What this machine needs to reach its package indexes, as a proxy's settings would be."""
    names = [name for name in os.environ if name.startswith("PIP_")]
    names += ["http_proxy", "https_proxy", "no_proxy"]
    found = {name: os.environ[name] for name in names if name in os.environ}
    if CERTIFICATES.exists():
        found["PIP_CERT"] = "/opt/certificates.crt"
    found |= {"CMAKE_BUILD_PARALLEL_LEVEL": str(len(os.sched_getaffinity(0)))}
    return found | {"PIP_EXTRA_INDEX_URL": "", "DEBIAN_FRONTEND": "noninteractive"}


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Built once; a gigabyte, and minutes."""
    for program in ("debootstrap", "unshare", "chroot"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    if why := why_no_pods():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="hvd-image-", dir="/var/tmp"))
    folder.chmod(0o755)
    pristine = folder / "debian"

    def base(root: Path) -> None:
        if not pristine.exists():
            made = subprocess.run(
                ["debootstrap", "--variant=minbase", "bookworm", str(pristine)],
                capture_output=True,
                text=True,
            )
            assert made.returncode == 0, made.stdout[-2000:]
        subprocess.run(["cp", "-a", str(pristine), str(root)], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        if CERTIFICATES.exists():
            shutil.copy(CERTIFICATES, root / "opt/certificates.crt")
        for file in PIP_FILES:
            if file.exists():
                at = root / str(file).lstrip("/")
                at.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, at)

    try:
        yield Build(ROOT, tracked(), folder, base, arguments(), around).run(FILES[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_in(image: Image, command: list[str]) -> str:
    environment = image.environment | {"HOME": image.folder}
    ended = subprocess.run(
        around(image.root, in_image(image, command)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_image_runs_the_demo_as_a_user(image: Image) -> None:
    assert run_in(image, ["id", "-u"]) == "1000\n"
    output = run_in(image, [*image.command[:-1], "1"])
    assert "epoch 1: " in output
    assert float(re.findall(r"test accuracy ([\d.]+)", output)[-1]) > 0.7


@pytest.mark.slow
def test_the_image_has_no_compiler_and_is_small(image: Image) -> None:
    assert not list((image.root / "usr/bin").glob("*g++*"))
    used = subprocess.run(["du", "-sxm", str(image.root)], capture_output=True, text=True)
    size_mib = int(used.stdout.split()[0])
    print(f"the image has {size_mib} MiB")
    assert size_mib < 1600, "mostly torch"


@pytest.mark.slow
def test_the_image_has_the_plugins_for_mpi_and_no_mpi(image: Image) -> None:
    _, _, operations = run_in(image, ["horovodrun", "--check-build"]).partition("Operations:")
    assert "[X] MPI" in operations
    plugins = [path.name for path in (image.root / "opt/venv").rglob("*horovod_mpi_*.so")]
    assert sorted(plugins) == ["libhorovod_mpi_mpich.so", "libhorovod_mpi_openmpi.so"]
    assert not list((image.root / "usr/bin").glob("mpi*"))


@pytest.mark.slow
def test_an_mpijob_trains_in_it_as_a_user(image: Image, tmp_path: Path) -> None:
    ended = mpijob(tmp_path, image)
    assert ended.returncode == 0, ended.output
    assert ended.output.count("epoch 1: ") == 1, ended.output
    assert ended.output.count("Accepted publickey for horovod") == 2, ended.output

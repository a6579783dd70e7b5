"""The images: what their files say, and, slowly, that the CPU one can be built and trains."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import debian_root
import pytest
from commands import must
from dockerfile import Build, Ignored, Image, in_image, instructions, is_below
from pods import mpijob, why_no_pods

from devtool.paths import ROOT

FOLDER = ROOT / "deploy" / "docker"
FILES = [FOLDER / "Dockerfile", FOLDER / "Dockerfile.cuda"]
WHEELS = "dist"  #: what `./dev wheel` builds is not tracked


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


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_images_are_built_without_a_compiler(file: Path) -> None:
    lines = [one.rest for one in instructions(file.read_text()) if one.rest.startswith("apt-get")]
    packages = {word for line in lines for word in line.partition("install")[2].split()}
    assert "python3" in packages
    assert not [name for name in packages if name.endswith("-dev") or name in ("g++", "cmake")]


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
    assert WHEELS in sources and not ignored(f"{WHEELS}/horovod.whl")
    for source in set(sources) - {WHEELS}:
        assert any(is_below(path, source) for path in context), source


def test_the_image_of_cuda_differs_in_torch_and_what_the_driver_needs() -> None:
    plain, cuda = (instructions(file.read_text()) for file in FILES)
    assert [one.word for one in plain if one not in cuda] == ["ARG"]
    assert [one.rest.partition("=")[0] for one in cuda if one not in plain] == [
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    ]


def arguments() -> dict[str, str]:
    """What this machine needs to reach its package indexes, and of Docker's --build-arg."""
    return debian_root.variables() | {"PIP_EXTRA_INDEX_URL": ""}


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Built once; a gigabyte, and minutes."""
    if why := debian_root.why_not() or why_no_pods():
        pytest.skip(why)
    subprocess.run([ROOT / "dev", "wheel", "--python", "3.11"], check=True)
    wheels = [path.relative_to(ROOT).as_posix() for path in (ROOT / WHEELS).glob("*.whl")]
    folder = Path(tempfile.mkdtemp(prefix="hvd-image-", dir="/var/tmp"))
    folder.chmod(0o755)
    pristine = folder / "debian"

    def base(root: Path) -> None:
        if not pristine.exists():
            debian_root.make("bookworm", pristine)
        subprocess.run(["cp", "-a", str(pristine), str(root)], check=True)
        debian_root.connect(root)

    try:
        files = tracked() + wheels
        build = Build(ROOT, files, folder, base, arguments(), debian_root.with_mounts)
        yield build.run(FILES[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_in(image: Image, command: list[str]) -> str:
    environment = image.environment | {"HOME": image.folder}
    return must(*debian_root.with_mounts(image.root, in_image(image, command)), env=environment)


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

"""What portable wheels are made from: a digest of it, and the time of its last change."""

from __future__ import annotations

import hashlib

from devtool import libraries
from devtool.paths import ROOT
from devtool.setup import BUILD_REQUIREMENTS, SOURCE_FILES, SOURCE_FOLDERS, package_fingerprint
from devtool.toolchain import TOOLS_REQUIREMENTS, Target, printed

#: Beside the sources: the metadata, and the versions of the tools.
OTHERS = (ROOT / "LICENSE", ROOT / "README.md", BUILD_REQUIREMENTS, TOOLS_REQUIREMENTS)
#: The steps, and the limits that are checked.
RECIPES = tuple(
    ROOT / "tools" / "devtool" / f"{name}.py"
    for name in ("bill", "binaries", "libraries", "toolchain", "wheel")
)
#: Their headers are read outside the prefix of the libraries.
MPI_PACKAGES = ("libmpich-dev", "libopenmpi-dev")


def fingerprint(target: Target, python: str, tag: str) -> str:
    """Returns a digest of all that decides the bytes of the wheel with `tag`, for `python`. Builds
    the static libraries if there are none."""
    files = [*OTHERS, *RECIPES]
    facts = [
        libraries.static_libraries(target).resolve().name,
        printed([python, "-VV"]),
        printed(["dpkg-query", "-W", *MPI_PACKAGES]),
        last_change(),
    ]
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return package_fingerprint(tag, *facts, *digests)


def last_change() -> str:
    """Returns when the sources were last changed by a commit, in seconds since 1970: the time of
    all files in a wheel. A commit of other files gives the same wheel."""
    paths = [str(path.relative_to(ROOT)) for path in (*SOURCE_FILES, *OTHERS)]
    git = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct", "--", *paths, *SOURCE_FOLDERS]
    return printed(git)

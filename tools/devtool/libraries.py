"""The libraries that are linked into portable wheels: static ones, compiled for the target, and
those that are headers only.

They are built once per user, target and version, in a folder of the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtool.paths import BUILD
from devtool.process import Failed, must, run_logged
from devtool.setup import cores
from devtool.toolchain import (
    TOOLCHAIN,
    Target,
    compiler_environment,
    defined,
    definitions,
    printed,
    zig_version,
)

FOLDER = BUILD / "wheel-libraries"


@dataclass(frozen=True)
class Library:
    """A library that is linked statically, or that is headers only. Debian's package says which
    version it is; one that is compiled comes from the source package of the same version."""

    name: str
    package: str  #: Debian's, with the headers
    licence: str  #: in terms of SPDX
    headers: str  #: the folder below include/
    archive: str = ""  #: empty: headers only
    compiled_by: str = ""  #: "cmake" or "configure"
    options: tuple[str, ...] = ()


LIBRARIES = (
    Library(
        "highway",
        "libhwy-dev",
        "Apache-2.0",
        "hwy",
        "libhwy.a",
        "cmake",
        ("-DHWY_ENABLE_CONTRIB=OFF", "-DHWY_ENABLE_EXAMPLES=OFF", "-DHWY_ENABLE_TESTS=OFF"),
    ),
    Library(
        "yaml-cpp",
        "libyaml-cpp-dev",
        "MIT",
        "yaml-cpp",
        "libyaml-cpp.a",
        "cmake",
        (
            "-DYAML_CPP_BUILD_CONTRIB=OFF",
            "-DYAML_CPP_BUILD_TESTS=OFF",
            "-DYAML_CPP_BUILD_TOOLS=OFF",
            # It was written for a CMake that the present one has stopped to imitate.
            "-DCMAKE_POLICY_VERSION_MINIMUM=3.5",
        ),
    ),
    Library(
        "libsodium",
        "libsodium-dev",
        "ISC",
        "sodium",
        "libsodium.a",
        "configure",
        ("--disable-shared", "--enable-static", "--with-pic"),
    ),
    Library("fmt", "libfmt-dev", "MIT", "fmt"),
    Library("spdlog", "libspdlog-dev", "MIT", "spdlog"),
    Library("nlohmann-json", "nlohmann-json3-dev", "MIT", "nlohmann"),
)


@dataclass(frozen=True)
class Source:
    """A source package of Debian."""

    name: str
    version: str


def installed_sources() -> dict[str, Source]:
    """Returns the source of each library in the version that Debian has installed, by its name."""
    packages = {library.package: library.name for library in LIBRARIES}
    form = "${Package} ${source:Package} ${source:Version}\n"
    listing = printed(["dpkg-query", "-W", "-f", form, *packages])
    lines = [line.split() for line in listing.splitlines()]
    return {packages[package]: Source(name, version) for package, name, version in lines}


def prefix_name(target: Target, sources: Mapping[str, Source], recipe: bytes) -> str:
    """Names the folder of the libraries by all that they are made from."""
    versions = {name: source.version for name, source in sources.items()}
    digest = hashlib.sha256(recipe + json.dumps(versions, sort_keys=True).encode())
    return f"{target.triple}-{digest.hexdigest()[:12]}"


def static_libraries(target: Target) -> Path:
    """Returns a prefix with the libraries for `target`, and builds them if there is none. The path
    is the same for all versions and clones, so that ccache finds what has not changed."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    sources = installed_sources()
    recipe = Path(__file__).read_bytes() + TOOLCHAIN.read_bytes() + zig_version().encode()
    prefix = cache / "horovod-dev" / prefix_name(target, sources, recipe)
    if not prefix.is_dir():
        build_libraries(target, sources, prefix)
    link = FOLDER / target.triple
    FOLDER.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(prefix)
    return link


def build_libraries(target: Target, sources: Mapping[str, Source], prefix: Path) -> None:
    """Builds in a folder beside `prefix`, so that a prefix is complete once it has its name."""
    work = FOLDER / f"{target.triple}-build"
    shutil.rmtree(work, ignore_errors=True)
    made = work / "prefix"
    for folder in ("include", "lib", "licences"):
        (made / folder).mkdir(parents=True)
    compiled = [library for library in LIBRARIES if library.archive]
    fetched = fetch([sources[library.name] for library in compiled], work)
    make_scripts(target, work)
    for library in LIBRARIES:
        if library.archive:
            recipes = {"cmake": build_by_cmake, "configure": build_by_configure}
            recipes[library.compiled_by](library, target, work)
        else:
            shutil.copytree(f"/usr/include/{library.headers}", made / "include" / library.headers)
        copyright = f"/usr/share/doc/{library.package}/copyright"
        shutil.copy(copyright, made / "licences" / library.name)
    # CMake asks for these two. Their headers are found without.
    for name in ("fmt", "spdlog"):
        (made / "lib" / "cmake" / name).mkdir()
        (made / "lib" / "cmake" / name / f"{name}-config.cmake").touch()
    found = {name: fetched.get(source.name, source) for name, source in sources.items()}
    used = {name: {"source": it.name, "version": it.version} for name, it in found.items()}
    (made / "versions.json").write_text(json.dumps(used, indent=2) + "\n")
    prefix.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(made, partial := prefix.with_name(f"{prefix.name}.{os.getpid()}"))
    try:
        partial.rename(prefix)
    except OSError:  # another build was first
        shutil.rmtree(partial)


def apt_get(folder: Path) -> list[str]:
    """Returns a command that fetches source packages, with lists and settings of its own in
    `folder`: those of the system stay as they are. apt checks signatures."""
    for name in ("sources", "lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            (folder / "sources" / path.name).write_text(sources_only(path.read_text()))
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": str(folder / "sources"),
        "Dir::State::lists": str(folder / "lists"),
        "Dir::Cache": str(folder / "cache"),
        "APT::Sandbox::User": "root",  # another user cannot write here
    }
    return ["apt-get", *[word for item in options.items() for word in ("-o", "=".join(item))]]


def fetch(sources: Sequence[Source], work: Path) -> dict[str, Source]:
    """Unpacks source packages into `work`, each into a folder of its own name. Returns what was
    found, by name: an archive may have only a newer version than the one that is installed."""
    apt = work / "apt"
    command = apt_get(apt)
    must([*command, "update"], "wheel-apt-update")
    return {source.name: fetch_one(source, command, apt, work) for source in sources}


def fetch_one(source: Source, command: Sequence[str], apt: Path, work: Path) -> Source:
    download = ["env", f"--chdir={apt}", *command, "source", "--download-only", "--only-source"]
    log = f"wheel-apt-{source.name}"
    same = run_logged([*download, f"{source.name}={source.version}"], log, deadline_s=600)
    if same.code != 0:
        must([*download, source.name], log)
    (description,) = apt.glob(f"{source.name}_*.dsc")
    unpack = ["dpkg-source", "--extract", str(description), str(work / source.name)]
    must(unpack, f"wheel-unpack-{source.name}")
    return Source(source.name, version_in(description.read_text()))


def version_in(description: str) -> str:
    """Returns the version that the description of a source package (.dsc) has."""
    found = re.search(r"^Version: (\S+)$", description, re.MULTILINE)
    if found is None:
        raise Failed("the description of a source package has no version")
    return found[1]


def sources_only(text: str) -> str:
    """Returns a list of package archives with their sources instead of their packages."""
    text = re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.MULTILINE)
    return re.sub(r"^deb(-src)?\s", "deb-src ", text, flags=re.MULTILINE)


def make_scripts(target: Target, work: Path) -> None:
    """Writes the scripts that call zig for `target` as compiler and archiver to work/tools."""
    known = {**definitions(target, work / "prefix"), "HVD_ZIG_TOOLS": str(work / "tools")}
    must(["cmake", *defined(known), "-P", str(TOOLCHAIN)], "wheel-scripts")


def build_by_cmake(library: Library, target: Target, work: Path) -> None:
    build = work / f"{library.name}-build"
    known = {
        **definitions(target, work / "prefix"),
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_INSTALL_LIBDIR": "lib",
        "CMAKE_INSTALL_PREFIX": str(work / "prefix"),
        "CMAKE_POSITION_INDEPENDENT_CODE": "ON",
        "BUILD_SHARED_LIBS": "OFF",
        "BUILD_TESTING": "OFF",
    }
    env = compiler_environment(target)
    log = f"wheel-{library.name}"
    configure = ["cmake", "-GNinja", "-S", str(work / library.name), "-B", str(build)]
    must([*configure, *defined(known), *library.options], f"{log}-configure", env=env)
    must(["ninja", "-C", str(build), f"-j{cores()}", "install"], log, env=env)


def build_by_configure(library: Library, target: Target, work: Path) -> None:
    source = work / library.name
    env = {
        **compiler_environment(target),
        "CC": f"ccache {work / 'tools' / 'cc'}",
        "AR": str(work / "tools" / "ar"),
        "RANLIB": str(work / "tools" / "ranlib"),
        "CFLAGS": "-O3",
    }
    log = f"wheel-{library.name}"
    must(["autoreconf", "--force", "--install", str(source)], f"{log}-autoreconf")
    there = ["env", f"--chdir={source}"]
    where = [f"--host={target.cpu}-linux-gnu", f"--prefix={work / 'prefix'}"]
    must([*there, "./configure", *where, *library.options], f"{log}-configure", env=env)
    must([*there, "make", f"-j{cores()}", "-C", "src", "install"], log, env=env)

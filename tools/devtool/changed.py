"""Selects the tests for `./dev test --changed`: those that use a file which differs from main."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from devtool.process import Failed
from devtool.uses import Uses

MAIN = ("main", "origin/main")
#: Always runs completely: it reads the whole tree, and takes half a minute.
ALWAYS = "house"
TESTS = re.compile(r"\bhvd_tests\(\s*(\w+)\s([^)]*)\)")
FUZZER = re.compile(r"\badd_executable\(\s*(fuzz)\s([^)]*)\)")
VARIABLE = re.compile(r"\bset\((\w+)\s([^)]*)\)")


@dataclass(frozen=True)
class Part:
    """The smallest unit of a suite that can run alone: a pytest file, or a test program."""

    suite: str  #: folder below tests/; "cpp" for all suites of test programs; "fuzz"
    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Reason:
    part: Part
    way: tuple[str, ...]  #: from a source of the part to a changed file


def git(root: Path, *arguments: str) -> list[str]:
    """Returns the names that git prints, separated by zero bytes. Raises Failed."""
    ended = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if ended.returncode != 0:
        raise Failed(f"`git {' '.join(arguments)}` failed: {ended.stderr.strip()}")
    return [word for word in re.split(r"[\0\n]", ended.stdout) if word]


def merge_base(root: Path) -> str:
    """Returns the commit at which the branch left main; on main, at which main left origin's
    main."""
    branch = git(root, "rev-parse", "--abbrev-ref", "HEAD")[0]
    there = git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes")
    for name in MAIN:
        if name in there and name != branch:
            return git(root, "merge-base", "HEAD", name)[0]
    return "HEAD"


def changed_files(root: Path, base: str) -> list[str]:
    """Returns files that differ from `base`: committed or not, new or deleted, but not ignored."""
    differ = git(root, "diff", "--no-renames", "--name-only", "-z", base)
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted({*differ, *new})


def text_at(root: Path, commit: str, name: str) -> str:
    """Returns a file as it was at a commit; empty if it did not exist."""
    ended = subprocess.run(
        ["git", "show", f"{commit}:{name}"], cwd=root, capture_output=True, text=True
    )
    return ended.stdout


def all_files(root: Path) -> list[str]:
    names = git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    return sorted(name for name in set(names) if (root / name).is_file())


def parts_of(uses: Uses, names: Iterable[str]) -> Iterator[Part]:
    for name in names:
        path = PurePosixPath(name)
        if re.fullmatch(r"tests/\w+/test_\w+\.py", name):
            yield Part(path.parent.name, name, (name,))
        elif path.name == "CMakeLists.txt":
            yield from programs_of(str(path.parent), uses.text(name))


def programs_of(folder: str, recipe: str) -> Iterator[Part]:
    """Returns the test programs that a CMakeLists.txt declares, and the fuzzer."""
    known = dict(VARIABLE.findall(recipe))
    for suite, pattern in (("cpp", TESTS), ("fuzz", FUZZER)):
        for program, words in pattern.findall(recipe):
            files = [known.get(word.strip("${}"), word) for word in words.split()]
            sources = [file for file in " ".join(files).split() if file.endswith(".cc")]
            yield Part(suite, program, tuple(f"{folder}/{file}" for file in sources))


def shapes_everything(name: str) -> bool:
    """True for files that configure every build: at the root, in cmake/ and in tools/ (except this
    tool, which has its own tests)."""
    path = PurePosixPath(name)
    if path.suffix == ".md" or path.name in ("LICENSE", ".gitignore", ".clang-format"):
        return False
    return str(path.parent) in (".", "cmake", "tools", ".ci")


def declares_other_tests_only(before: str, now: str) -> bool:
    """True if two texts of a CMakeLists.txt differ only in their test programs."""
    return TESTS.sub("", before) == TESTS.sub("", now)


def reasons_for(
    uses: Uses, names: Sequence[str], changed: Sequence[str], test_lists: Sequence[str] = ()
) -> list[Reason]:
    """Returns the parts that use one of the changed files, each with its chain of uses. In
    `test_lists`, which are CMakeLists.txt files, only the test programs have changed."""
    whole = [name for name in changed if shapes_everything(name)]
    ends = {*changed} - {*test_lists}
    found = []
    for part in parts_of(uses, names):
        if part.suite == ALWAYS:
            continue
        own = {f"{PurePosixPath(source).parent}/CMakeLists.txt" for source in part.sources}
        listed = [name for name in test_lists if part.suite == "cpp" and is_above(name, own)]
        way = whole[:1] or uses.way(part.sources, ends) or listed[:1]
        if way:
            found.append(Reason(part, tuple(way)))
    return found


def is_above(recipe: str, others: Iterable[str]) -> bool:
    """True if a CMakeLists.txt is in or above the folder of another one."""
    folder = PurePosixPath(recipe).parent
    return any(folder in PurePosixPath(other).parents for other in others)


def lines(
    base: str, changed: Sequence[str], found: Sequence[Reason], parts: Sequence[Part]
) -> Iterator[str]:
    """Yields the reason for each selected part; one line for a folder whose parts all run."""
    some = f"{len(found)} of {len(parts)} parts use them"
    yield f"{len(changed)} files differ from {base[:12]}; {some}"
    yield f"  {ALWAYS}: always, it reads the whole tree"
    by_suite: dict[str, list[Reason]] = {}
    for reason in found:
        by_suite.setdefault(reason.part.suite, []).append(reason)
    for suite, reasons in by_suite.items():
        if len(reasons) > 1 and len(reasons) == sum(part.suite == suite for part in parts):
            nearest = min(reasons, key=lambda reason: len(reason.way))
            yield f"  {suite}, all of it, as {nearest.part.name}: {told(nearest)}"
            continue
        for reason in reasons:
            program = "" if reason.part.name.startswith("tests/") else "program "
            yield f"  {program}{reason.part.name}: {told(reason)}"
    used = {reason.way[-1] for reason in found}
    for name in changed:
        if name not in used:
            yield f"  no further test for {name}"


def told(reason: Reason) -> str:
    """The chain of uses, without the part itself."""
    ways = [name for name in reason.way if name not in reason.part.sources]
    return " > ".join(ways) or "it differs"


@dataclass(frozen=True)
class Choice:
    """`only`: the selected parts per suite, in the form of all_suites()."""

    only: dict[str, list[str]]
    why: list[str]


def choose(root: Path) -> Choice:
    base = merge_base(root)
    changed = changed_files(root, base)
    names = all_files(root)
    uses = Uses(root, {*names, *changed})
    parts = [part for part in parts_of(uses, names) if part.suite != ALWAYS]
    test_lists = [
        name
        for name in changed
        if PurePosixPath(name).name == "CMakeLists.txt"
        and declares_other_tests_only(text_at(root, base, name), uses.text(name))
    ]
    found = reasons_for(uses, names, changed, test_lists)
    only = {ALWAYS: [f"tests/{ALWAYS}"]}
    for reason in found:
        only.setdefault(reason.part.suite, []).append(reason.part.name)
    return Choice(only, list(lines(base, changed, found, parts)))

"""Finds which file of the tree uses which, from their texts: imports, includes, names of other
files, and the sources of CMake targets. It contains no list of files that could become outdated."""

from __future__ import annotations

import ast
import functools
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from devtool.paths import CPP_SUFFIXES

IMPORT = re.compile(r"\bfrom\s+([\w.]+)\s+import\s+(\([^)]*\)|[\w, ]+)|\bimport\s+([\w., ]+)")
DOTTED = re.compile(r"\b\w+(?:\.\w+)+\b")  # in texts: modules that are started or patched by name
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
STRING = re.compile(r'"([^"\n]*)"')
NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)*")
#: `ROOT / "docs" / "x.md"` names the same file as `"docs/x.md"`.
JOINED = re.compile(r'"?\s/\s"')
TARGET = re.compile(r"\b(nanobind_add_module|add_library|add_executable)\(\s*(\w+)\s([^)]*)\)")
LINKED = re.compile(r"\btarget_link_libraries\(\s*(\w+)\s([^)]*)\)")
#: The name by which a target is loaded or started, by the command that declares it.
CALLED = {"nanobind_add_module": "{}", "add_library": "lib{}", "add_executable": "{}"}
#: Starts ranks for other tests. Tests of how jobs end call `run_job` directly.
STARTER = "tests/support/rank_jobs.py"
LAUNCHER = "horovodrun"
STARTS = re.compile(r"\bhorovodrun\b|^(?!\s*def ).*\brun_job\(", re.MULTILINE)
PACKAGE = "python/horovod/"
TESTS = "tests/"
SCRIPT_SUFFIXES = {".py", ".pyi", ".ipynb"}


class Uses:
    """The files of a checkout and what each uses. `names` are relative to `root`. A deleted file
    uses nothing, but may still be used."""

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        self._root = root
        self._names = sorted(names)
        self._known = set(self._names)
        self._by_folder: dict[str, list[str]] = {}
        for name in self._names:
            for folder in PurePosixPath(name).parents:
                self._by_folder.setdefault(str(folder), []).append(name)
        self._search = self._search_path()
        self._built, self._links = self._targets()

    def text(self, name: str) -> str:
        path = self._root / name
        return path.read_text(errors="replace") if path.is_file() else ""

    def way(self, begin: Iterable[str], ends: set[str]) -> list[str]:
        """Returns the shortest chain of uses from one of `begin` to one of `ends`; empty if there
        is none."""
        before: dict[str, str | None] = dict.fromkeys(begin)
        words = self._words(before)
        queue = deque(before)
        while queue:
            name = queue.popleft()
            for end in (name, *packages_of(name)):
                if end in ends:
                    return [*self._chain(name, before), *([] if end == name else [end])]
            for used in self.used_by(name):
                if used not in before and is_wanted(name, used, words):
                    before[used] = name
                    queue.append(used)
        return []

    def _words(self, begin: Iterable[str]) -> set[str]:
        """Returns the words of tests, and of files in tests/ that they use."""
        seen = dict.fromkeys(begin)
        queue = deque(seen)
        words: set[str] = set()
        while queue:
            name = queue.popleft()
            words |= set(re.findall(r"[a-z]+", self.text(name)))
            for used in self.used_by(name):
                if used.startswith(TESTS) and used not in seen:
                    seen[used] = None
                    queue.append(used)
        return words

    @staticmethod
    def _chain(end: str, before: dict[str, str | None]) -> list[str]:
        chain = [end]
        while (previous := before[chain[-1]]) is not None:
            chain.append(previous)
        return chain[::-1]

    @functools.cache  # noqa: B019 (one instance per run of the tool)
    def used_by(self, name: str) -> list[str]:
        """Returns the files that `name` uses directly."""
        suffix = PurePosixPath(name).suffix
        found: Iterator[str] = iter(())
        if suffix in SCRIPT_SUFFIXES:
            found = self._used_by_script(name)
        elif suffix in CPP_SUFFIXES:
            found = self._used_by_source(name)
        return list(dict.fromkeys(one for one in found if one != name))

    # ---- Python ----
    def _used_by_script(self, name: str) -> Iterator[str]:
        text = self.text(name)
        folder = str(PurePosixPath(name).parent)
        if name.startswith(PACKAGE):
            modules, words = used_by_code(text)
        else:
            modules, words = used_by_text(text)
        for module in modules:
            yield from self._module(module, folder)
        yield from self._named(words, folder)
        yield from self._loaded(text, name)
        conftest = f"{folder}/conftest.py"
        if conftest in self._known:
            yield conftest

    def _module(self, module: str, folder: str) -> Iterator[str]:
        """Returns the file of a module, and the native library that it loads; empty for foreign
        modules."""
        path = module.replace(".", "/")
        for top in (folder, *self._search):
            stem = str(PurePosixPath(top, path))
            for file in (f"{stem}.py", f"{stem}/__init__.py", f"{stem}.pyi"):
                if file in self._known:
                    yield file
                    yield from self._built.get(PurePosixPath(stem).name, [])
                    return

    def _loaded(self, text: str, name: str) -> Iterator[str]:
        """Returns the targets that are loaded or started by name. Many texts name the launcher, but
        only some tests start it for its own sake."""
        for target, sources in self._built.items():
            if target == LAUNCHER:
                if name.startswith(TESTS) and name != STARTER and STARTS.search(text):
                    yield from sources
            elif target.startswith("lib") and re.search(rf"\b{target}\b", text):
                yield from sources

    # ---- C++ ----
    def _used_by_source(self, name: str) -> Iterator[str]:
        text = self.text(name)
        folder = str(PurePosixPath(name).parent)
        for include in INCLUDE.findall(text):
            for candidate in (include, f"include/{include}", f"{folder}/{include}"):
                if candidate in self._known:
                    yield candidate
            if f"{include}.in" in self._known:
                yield f"{include}.in"
        if name.endswith((".h", ".hpp")):
            yield from self._implementations(name, folder)
        yield from self._links.get(name, [])
        yield from self._named(NAME.findall(" ".join(STRING.findall(text))), folder)
        for above in PurePosixPath(name).parents:  # the files that define how it is compiled
            if f"{above}/CMakeLists.txt" in self._known:
                yield f"{above}/CMakeLists.txt"

    def _implementations(self, header: str, folder: str) -> Iterator[str]:
        """Returns the sources in the header's folder that include it: one of them defines what it
        declares."""
        for name in self._by_folder.get(folder, []):
            beside = str(PurePosixPath(name).parent) == folder
            source = name.endswith((".cc", ".c")) and not name.endswith("_test.cc")
            if beside and source and header in INCLUDE.findall(self.text(name)):
                yield name

    # ---- both ----
    def _named(self, words: Iterable[str], folder: str) -> Iterator[str]:
        """Returns files and folders among `words`, relative to the root or to the text."""
        for word in dict.fromkeys(words):
            path = word.removeprefix("ROOT/")
            if path in self._known:
                yield path
            elif "/" in word and path in self._by_folder:
                yield from self._by_folder[path]
            elif "." in word and f"{folder}/{word}" in self._known:
                yield f"{folder}/{word}"

    # ---- CMake ----
    def _targets(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Returns the sources per target, by the name under which tests find it, and per source the
        sources of the targets that are linked with it."""
        sources: dict[str, list[str]] = {}
        called: dict[str, str] = {}
        linked: list[tuple[str, str]] = []
        for recipe in (name for name in self._names if name.endswith("CMakeLists.txt")):
            text, folder = self.text(recipe), PurePosixPath(recipe).parent
            for command, target, words in TARGET.findall(text):
                files = [str(folder / word) for word in words.split()]
                sources[target] = [file for file in files if file in self._known]
                called[target] = CALLED[command].format(target)
            for target, words in LINKED.findall(text):
                linked += [(target, word) for word in words.split()]
        links: dict[str, list[str]] = {}
        for target, library in linked:
            for source in sources.get(target, []):
                links.setdefault(source, []).extend(sources.get(library, []))
        return {called[target]: files for target, files in sources.items() if files}, links

    def _search_path(self) -> list[str]:
        """Returns the folders that tests import from: the package, and pytest's pythonpath."""
        configured = re.search(r"^pythonpath = \[(.*)\]", self.text("pyproject.toml"), re.MULTILINE)
        return ["python", *(STRING.findall(configured[1]) if configured else [])]


def is_wanted(name: str, used: str, words: set[str]) -> bool:
    """True if a test with these words gets from `name` to `used`. Code in the package of one
    framework for another framework is loaded only if both are used, and such a test names both."""
    if not (name.startswith(PACKAGE) and used.startswith(PACKAGE)):
        return True
    one, other = (PurePosixPath(path).parts[2] for path in (name, used))
    return (
        one == "__init__.py"
        or other in (one, "common")
        or other.endswith((".py", ".pyi"))
        or other.strip("_") in words
    )


def packages_of(name: str) -> list[str]:
    """Returns the packages of a module, which Python runs before it."""
    if PurePosixPath(name).suffix not in SCRIPT_SUFFIXES:
        return []
    return [f"{folder}/__init__.py" for folder in PurePosixPath(name).parents]


def used_by_text(text: str) -> tuple[list[str], list[str]]:
    """Returns modules and words anywhere in a test or a script, including strings: a test may start
    a script from a string."""
    modules = DOTTED.findall(text)
    for module, names, several in IMPORT.findall(text):
        if module:
            modules += [module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))]
        modules += [one.split()[0] for one in several.split(",") if one.split()]
    return modules, NAME.findall(JOINED.sub("/", text))


def used_by_code(text: str) -> tuple[list[str], list[str]]:
    """Returns the uses of a module of the package: its imports, and strings that only consist of a
    module name. Its messages and docstrings name many files that it does not use."""
    modules = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
            if node.module.count("."):  # of the package itself, only modules are included
                modules.append(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            modules += [node.value] if DOTTED.fullmatch(node.value) else []
    return modules, []

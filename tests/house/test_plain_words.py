"""Checks the wording of documents, comments, string literals and commit subjects.

Each rule finds one habit that is hard to read, and its message has the wording to use instead.
Identifiers, text in backticks, link targets and paths are not checked.
"""

from __future__ import annotations

import functools
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sources import NOT_CODE, is_test, name

from devtool.paths import ROOT, cpp_files, python_files

COUNTED = (
    r"one|two|three|four|\d+|memory|bytes|[kKMG]i?B|us|ms|ns|microseconds?|seconds?|ssh|"
    r"threads?|times|cores?|lines?|frames?|messages?|connections?|descriptors?"
)
COUNTED_BY = (
    r"rank|host|peer|process|node|core|tensor|batch|group|job|worker|message|byte|call|cell|second"
)


@dataclass(frozen=True)
class Rule:
    """A space in `pattern` matches any whitespace. `write` is the replacement."""

    pattern: str
    write: str
    before: str  #: an example that the rule finds
    after: str  #: the same in plain words; no rule finds it
    where: str = ""  #: prefixes of paths, separated by spaces; empty: all files

    def found_in(self, text: str) -> Iterator[re.Match[str]]:
        return re.finditer(self.pattern.replace(" ", r"\s+"), text, re.MULTILINE)

    def applies_to(self, path: str) -> bool:
        if self.where == PRODUCT and (is_test(ROOT / path) or path.startswith("core/sim/")):
            return False
        return not self.where or path.startswith(tuple(self.where.split()))


# What users and new readers of the code read. Rules for it skip tests and the simulator.
PRODUCT = (
    "ARCHITECTURE.md CONTRIBUTING.md README.md docs/ include/ core/ launcher/ python/ adapters/"
)

RULES = [
    # ---- ranks and processes are things
    Rule(
        r"\b[Ww]ho(ever|soever|mever)\b",
        '"the rank that ...", "the process that ...", "any thread that ..."',
        "done by whoever has a core",
        "ranks that are running do the work",
    ),
    Rule(
        r"\b([Hh]e|[Hh]is|[Hh]im|[Hh]imself)\b(?! et al)",
        '"it", "its", or name the process',
        "a stranger ends his own connection",
        "a client without the key ends only its own connection",
    ),
    Rule(
        r"\b([Nn]obody|[Ee]verybody|[Ss]omebody)\b",
        '"no rank", "all ranks", "another thread": name what it is',
        "before the end nobody is told",
        "no rank is told before the end",
        PRODUCT,
    ),
    # ---- per
    Rule(
        rf"\b({COUNTED}) an? ({COUNTED_BY})\b(?! that| time)",
        '"per": "one ssh per host"',
        "memory a rank",
        "memory per rank",
    ),
    # ---- the field's terms
    Rule(
        r"\bpast the caches?\b",
        '"non-temporal stores"',
        "results are stored past the caches",
        "results are written by non-temporal stores",
    ),
    Rule(
        r"\b[Pp]eer memory\b|\beach other's memory\b|\b[Dd]irect calls?\b",
        '"cross-memory attach (CMA)", "single-copy"',
        "ranks read and write each other's memory",
        "ranks use cross-memory attach",
    ),
    Rule(r"\b[Ee]ager slots?\b", '"eager buffer"', "an eager slot", "an eager buffer"),
    Rule(
        r"\b[Ii]ntroduc(e|es|ed|ing|tions?)\b",
        '"rendezvous" for how ranks first find each other; "add" for a new thing',
        "the launcher introduces the ranks",
        "the launcher carries the rendezvous",
    ),
    Rule(
        r"\boutnumber(s|ed|ing)?\b|\branks (that )?share (the |their )?cores\b",
        '"oversubscribed", "more ranks than cores"',
        "where ranks outnumber cores",
        "on oversubscribed cores",
    ),
    Rule(
        r"\b[Ll]ent memory\b",
        '"zero-copy send", "posted receive"',
        "a frame of lent memory",
        "a zero-copy send",
    ),
    Rule(
        r"\b[Tt]he driver\b",
        '"the progress engine", "the progress thread"',
        "the driver sleeps here",
        "the progress engine blocks here",
        "ARCHITECTURE.md core/base core/blocking core/bootstrap core/engine core/group "
        "core/negotiate core/observe core/transport",
    ),
    Rule(
        r"\b[Tt]he page(?!s)\b",
        '"the benchmark report"',
        "the page says of every goal whether it is met",
        "the benchmark report shows whether each goal is met",
        "bench/ tools/ tests/house/test_bench CONTRIBUTING.md docs/performance",
    ),
    Rule(
        r"\b[Hh]ouse tests?\b",
        '"repository lint"',
        "run the house tests",
        "run the repository lint",
    ),
    Rule(
        r"\b([Ss]mall|[Ll]arge) calls?\b",
        '"latency-bound call", "bandwidth-bound call"',
        "faster for small calls",
        "faster for latency-bound calls",
    ),
    # ---- sentences
    Rule(
        r"\b(go|goes|gone|going) the (long|other|same|slow|general) way\b",
        '"falls back to ..."',
        "What is not small goes the long way.",
        "Everything else falls back to the executor.",
    ),
    Rule(
        r"\bThe same (for|of|from|by)\b|\bThe same[:;]",
        "what it does: repeat the verb",
        "The same for several.",
        "Submits several requests.",
        PRODUCT,
    ),
    Rule(
        r"\b(Not where|Not if|None where|Nothing unless|Nothing where|False for all but)\b",
        'subject, verb, object: "Returns false unless ..."',
        "Nothing where there is no mesh.",
        "Does nothing if the group has no mesh.",
        PRODUCT,
    ),
    Rule(
        r"(?:^[ \t]*|\. )Of [^.,:]{3,60}([,:] | there (is|are) (no|none)\b)",
        "the subject first",
        "Of works of one size each there are no `--sizes`.",
        "`--sizes` does not apply to fixed-size benchmarks.",
        PRODUCT,
    ),
    Rule(
        r"\b(twentieth|tenth|hundredth)\b",
        'a number: "5 % slower", "2x faster"',
        "a twentieth longer",
        "5 % slower",
    ),
    # ---- headings
    Rule(
        r"^#{1,6} .*('s (way|journey|road)|\b([Ww]hence|[Ww]hom|from .* to)\b.*)$",
        "a noun phrase that names the topic",
        "## A tensor's way",
        "## Life of a tensor",
        "ARCHITECTURE.md CONTRIBUTING.md README.md docs/",
    ),
]

# Correct text that a rule finds: path and matched words, and the reason.
ALLOWED: dict[tuple[str, str], str] = {}

# Earlier subjects are not checked: they precede the rule.
FIRST_SUBJECT_AFTER = "7be6edc9f01fab7a07bfcbc4a4304dbb4a4a2c8f"
SUBJECT_LIMIT = 72
SUBJECTS_READ = 50
NO_VERB = re.compile(
    r"(an?|the|this|that|these|what|which|who|where|when|how|why|one|of|in|it|no|not)\b|[A-Z]"
)


def blank(match: re.Match[str]) -> str:
    """Spaces of the same length, with the same line breaks."""
    return re.sub(r"[^\n]", " ", match.group())


def without_references(text: str) -> str:
    """Removes text in backticks, link targets and paths."""
    text = re.sub(r"`[^`\n]+`", lambda match: "\0" * len(match.group()), text)
    text = re.sub(r"\]\([^)\n]*\)|https?://\S+", blank, text)
    return re.sub(r"\b\w+/[\w./-]+", blank, text)


def prose_of_document(text: str) -> str:
    return without_references(
        re.sub(r"^ *```.*?^ *```", blank, text, flags=re.DOTALL | re.MULTILINE)
    )


def is_name(quoted: str) -> bool:
    """Returns whether a string literal is a key or an identifier: it has no space."""
    return quoted[:1] in "\"'" and not re.search(r"\s", quoted)


def only(text: str, spans: list[tuple[int, int]]) -> str:
    """Keeps `spans` and all whitespace; replaces other text by zeros. A phrase may then continue on
    the next line of a comment, but not across code."""
    hidden = list(re.sub(r"\S", "\0", text))
    for begin, end in spans:
        if not is_name(text[begin:end]):
            hidden[begin:end] = re.sub(r"(?m)//[/!]?<?|^\s*\*|[\"#]", blank, text[begin:end])
    return without_references("".join(hidden))


def prose_of_cpp(text: str) -> str:
    return only(text, [match.span() for match in NOT_CODE.finditer(text)])


def prose_of_python(text: str) -> str:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spans = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            (row, column), (end_row, end_column) = token.start, token.end
            spans.append((starts[row - 1] + column, starts[end_row - 1] + end_column))
    return only(text, spans)


def documents() -> list[Path]:
    found = [*ROOT.glob("*.md")]
    for folder in ("docs", "bench", "examples", "deploy"):
        found += (ROOT / folder).rglob("*.md")
    return sorted(path for path in found if path.stem != "CHANGELOG")


def prose() -> Iterator[tuple[str, str]]:
    """Yields path and prose of each checked file. This file is not checked: it has the examples."""
    for path in documents():
        yield name(path), prose_of_document(path.read_text())
    for path in cpp_files():
        yield name(path), prose_of_cpp(path.read_text())
    for path in python_files():
        if path != Path(__file__).resolve():
            yield name(path), prose_of_python(path.read_text())


@functools.cache
def all_prose() -> list[tuple[str, str]]:
    return list(prose())


def complaints(rule: Rule, path: str, text: str) -> list[str]:
    found = []
    for match in rule.found_in(text):
        words = " ".join(match.group().split())
        if (path, words) not in ALLOWED:
            line = text.count(
                "\n", 0, match.start() + len(match.group()) - len(match.group().lstrip())
            )
            found.append(f"{path}:{line + 1}: {words!r}: write {rule.write}")
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: re.sub(r"\W+", "-", rule.before))
def test_words_are_plain(rule: Rule) -> None:
    found = []
    for path, text in all_prose():
        if rule.applies_to(path):
            found += complaints(rule, path, text)
    assert not found, "\n" + "\n".join(found)


def test_every_exception_is_needed() -> None:
    texts = dict(all_prose())
    for path, words in ALLOWED:
        matches = [match.group() for rule in RULES for match in rule.found_in(texts[path])]
        assert words in {" ".join(match.split()) for match in matches}, (path, words)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: re.sub(r"\W+", "-", rule.before))
def test_a_rule_tells_its_examples_apart(rule: Rule) -> None:
    assert complaints(rule, "README.md", prose_of_document(rule.before))
    for other in RULES:
        assert not complaints(other, "README.md", prose_of_document(rule.after)), other.pattern


def test_only_prose_is_read() -> None:
    cpp = (
        'int whoever = at("whoever");  // it is\n  // past\n  // the caches\nfail("by whoever");\n'
    )
    assert "whoever" not in prose_of_cpp(cpp.replace("by whoever", "by it"))
    assert [match.start() for match in RULES[0].found_in(prose_of_cpp(cpp))] == [
        cpp.rindex("whoever")
    ]
    assert any(list(rule.found_in(prose_of_cpp(cpp))) for rule in RULES if "past" in rule.pattern)
    python = 'whoever = f("whoever")  # past\n# the caches\ndef f(x):\n    """By whoever."""\n'
    assert prose_of_python(python).count("whoever") == 1
    assert any(
        list(rule.found_in(prose_of_python(python))) for rule in RULES if "past" in rule.pattern
    )
    assert "whoever" not in prose_of_document(
        "`whoever` [a](0018-by-whoever.md)\n```\nwhoever\n```\n"
    )


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 180


def faults_of_subject(subject: str) -> list[str]:
    matched = re.fullmatch(r"([a-z][\w ./-]*(?:, [a-z][\w ./-]*)*): (\S.*)", subject)
    if not matched:
        return ["is not `area: what it does`"]
    says = matched.group(2)
    found = []
    if len(subject) > SUBJECT_LIMIT:
        found.append(f"is longer than {SUBJECT_LIMIT} characters")
    if ";" in says or ": " in says:
        found.append("has a second colon or a semicolon; the body has room")
    if NO_VERB.match(says) or says.endswith("."):
        found.append("does not begin with a verb in the imperative, or ends with a full stop")
    return found


def git(*arguments: str) -> str | None:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return ended.stdout if ended.returncode == 0 else None


def test_commit_subjects_are_area_and_imperative() -> None:
    if git("merge-base", "--is-ancestor", FIRST_SUBJECT_AFTER, "HEAD") is None:
        pytest.skip("the history is not here")
    log = git(
        "log", "--no-merges", f"-{SUBJECTS_READ}", "--format=%s", f"{FIRST_SUBJECT_AFTER}..HEAD"
    )
    found = []
    for subject in (log or "").splitlines():
        found += [f"{subject!r} {fault}" for fault in faults_of_subject(subject)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "subject",
    [
        "The page says by what runs an alltoall was looked at",
        "docs: the minutes of each suite as last measured",
        "shm: Reduce in place for two ranks",
        "shm: reduce in place; say so in the docs",
        "shm: reduce in place, " + "and then again " * 5,
    ],
)
def test_a_subject_that_is_a_story_is_found(subject: str) -> None:
    assert faults_of_subject(subject)


def test_a_plain_subject_is_not_found() -> None:
    assert not faults_of_subject("launcher, bootstrap: give them folders of their own")

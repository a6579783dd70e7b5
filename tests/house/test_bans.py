"""What may stand only in a few places. Each list below is the whole list of those places."""

from __future__ import annotations

import re

import pytest
from sources import code_only, is_test, name, sources

from devtool.paths import ROOT
from devtool.threads import STARTS

BANS = {
    # Threads share nothing that they need not: there are few, and one place starts each kind.
    "thread": STARTS,
    # The environment is read once, at the border.
    "getenv": re.compile(r"\b(secure_)?getenv\b|\benviron\b"),
    # One function throws.
    "throw": re.compile(r"\bthrow\b"),
    # An exception ends at a border, not on its way there.
    "catch": re.compile(r"\bcatch\s*\("),
    # Waiting is for a reason, and the reason can be watched.
    "sleep": re.compile(r"\bsleep_(for|until)\b|\b(u|nano)?sleep\s*\("),
    # A missing feature is a file that the build picks, not a condition in the middle of a function.
    "conditional": re.compile(r"^\s*#\s*(ifdef|ifndef|if)\b", re.MULTILINE),
}
ALLOWED: dict[str, set[str]] = {
    "thread": {
        "adapters/common/completions.cc",  # what a framework does holds up no engine
        "core/backend/nccl/endings.cc",  # NCCL may wait for a lost rank, for ever
        "core/base/start_thread.h",  # how all but those of the adapters start
        "core/engine/progress_thread.h",  # the engine's own
        "core/engine/progress_thread.cc",
        "core/observe/observer.cc",  # what writes to disk does not hold up the engine
        "core/observe/observer.h",
        "core/bootstrap/store_host.h",  # others need answers while rank 0 does something else
        "core/bootstrap/store_host.cc",
        "core/transport/process_poll.cc",  # its descriptor can be waited for like a pidfd
    },
    "getenv": {"core/base/knobs.cc"},  # once, into an Environment
    "throw": {
        "core/base/error.cc",  # fail()
        "python/arguments.h",  # what cannot be tensors becomes a TypeError
        "python/elastic.cc",  # a status becomes the exception of Python
        "python/errors.h",  # the same
        "python/group.cc",  # the same for a group that is closed
        "python/module.cc",  # the same
        "python/tensor_reader.h",  # an error of Python is set
    },
    "catch": {
        "core/backend/nccl/endings.cc",  # nothing is above a thread
        "core/backend/nccl/ipc_meeting.cc",  # a rank without shared memory tells the others
        "core/blocking/blocking_group.cc",  # tells the other ranks why a call ends
        "core/capi/capi.cc",  # a generation that did not form is followed by the next one
        "core/capi/process.h",  # nothing is thrown into C
        "core/capi/submission.cc",  # names the operation whose device cannot be used
        "core/capi/context.cc",  # reports the end, if the launcher still runs
        "core/engine/engine.cc",  # the other connections may tell why one has ended
        "core/engine/progress_thread.cc",  # a turn that fails ends the generation
        "core/transport/channel.cc",  # what came before the end of a connection is taken first
        "core/bootstrap/local_peers.cc",  # publishes why the leader of a host fails
        "core/bootstrap/membership.cc",  # what it means that the launcher does not answer
        "core/bootstrap/pmix/helper.cc",  # nothing is above a forked child
        "core/bootstrap/store_at_address.cc",  # a Store of an earlier generation may close
        "core/bootstrap/store_host.cc",  # nothing is above a thread
        "core/transport/gate.cc",  # a client without the key ends only its own connection
        "core/transport/store_client.cc",  # another address may be the right one
        "core/transport/store_server.cc",  # a lost client does not end the server
        "launcher/dump/collect.cc",  # a rank that writes while it is read has no state to show
        "launcher/discovery.cc",  # a script that prints nonsense does not end the job
        "launcher/dump/gathered.cc",  # nlohmann::json throws
        "launcher/dump/py_spy.cc",  # the same
        "launcher/local/local_link.cc",  # a dump that cannot be made does not end the job
        "launcher/remote/agent_connection.cc",  # an error in the frames of a host ends only its ssh
        "launcher/options/config_file.cc",  # yaml-cpp throws
        "launcher/main.cc",  # nothing passes the launcher's main but an exit code
        "python/module.cc",  # what a function of Python raises is raised when init has ended
        "python/outputs.h",  # what a function of Python raises ends the job
    },
    "sleep": {
        "launcher/process/descendants.cc",  # between two looks at processes that are being ended
        "python/gil.h",  # threads let a process exit that has begun to
    },
    "conditional": {  # Highway compiles these files once for each kind of CPU
        "core/kernel/convert.cc",
        "core/kernel/copy.cc",
        "core/kernel/lanes-inl.h",
        "core/kernel/reduce.cc",
        "core/kernel/reduce_wide.cc",
        "core/kernel/scale.cc",
    },
}


def users(ban: str) -> set[str]:
    files = [
        path for path in sources("core/", "launcher/", "python/", "adapters/") if not is_test(path)
    ]
    files = [path for path in files if not name(path).startswith("core/sim/")]
    return {name(path) for path in files if BANS[ban].search(code_only(path.read_text()))}


@pytest.mark.parametrize("ban", BANS)
def test_only_the_listed_files_use(ban: str) -> None:
    assert users(ban) - ALLOWED[ban] == set()


@pytest.mark.parametrize("ban", BANS)
def test_no_list_names_a_file_that_has_no_need_of_it(ban: str) -> None:
    assert ALLOWED[ban] - users(ban) == set()


def test_words_in_comments_and_texts_are_not_code() -> None:
    text = 'a(); // throw\n/* getenv */ b("catch (x"); c(\'"\'); throw 1;'
    code = code_only(text)
    assert "getenv" not in code and "catch" not in code
    assert code.count("throw") == 1


def test_headers_open_with_what_they_are_for() -> None:
    for path in sources("core/", "launcher/", "adapters/"):
        if path.suffix == ".h" and not path.stem.endswith("-inl"):
            lines = path.read_text().splitlines()
            assert lines[0].startswith("// "), name(path)
            assert "#pragma once" in lines, name(path)


def test_nothing_is_left_to_do() -> None:
    word = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    for path in sources("core/", "include/", "launcher/", "python/", "adapters/"):
        assert not word.search(path.read_text()), name(path)


def test_no_file_is_longer_than_500_lines() -> None:
    for path in sources("core/", "include/", "launcher/", "python/", "adapters/"):
        assert len(path.read_text().splitlines()) <= 500, name(path)


def test_documents_name_files_that_exist() -> None:
    link = re.compile(r"\]\((?!https?:|#)([^)#]+)")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in link.findall(page.read_text()):
            assert (page.parent / target).exists(), f"{name(page)} points to {target}"

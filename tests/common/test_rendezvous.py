"""What `init` does with the answers of a rendezvous in Python."""

from __future__ import annotations

import subprocess
import sys

#: In a process of its own: it may hang.
ANSWERS = r"""
import faulthandler
import horovod._core as core

faulthandler.dump_traceback_later(60, exit=True)
for answer in (5, "\udcff", None):
    try:
        core.init(rank=1, size=2, rendezvous=lambda name, root_address: answer)
    except (TypeError, UnicodeEncodeError) as error:
        print(type(error).__name__, flush=True)
"""


def test_an_answer_that_is_no_text_is_an_error() -> None:
    command = [sys.executable, "-c", ANSWERS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.stdout.split() == ["TypeError", "UnicodeEncodeError", "TypeError"], ended

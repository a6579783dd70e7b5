"""The exception of `horovod.run`."""

from __future__ import annotations

from typing import Any


class RankFailed(RuntimeError):
    """A rank of `horovod.run` raised an exception, or ended without a result.

    `rank`: the first rank that failed; None if no rank was started. `exit_code`: exit code of the
    job. `traceback`: the text of the rank's traceback, "" if there is none. `__cause__`: the
    exception of the rank, if it could be pickled.
    """

    def __init__(self, message: str, rank: int | None, exit_code: int, traceback: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code
        self.traceback = traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return RankFailed, (self.args[0], self.rank, self.exit_code, self.traceback)

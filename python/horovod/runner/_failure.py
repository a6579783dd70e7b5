"""What `horovod.run` raises."""

from __future__ import annotations

from typing import Any


class RankFailed(RuntimeError):
    """A rank of `horovod.run` raised an exception, or ended without a result.

    `rank`: the first that failed, None when none was started. `exit_code`: that of the job.
    `traceback`: the text of the rank's traceback, "" when there is none. The exception of the rank
    is the `__cause__`, if it could be sent.
    """

    def __init__(self, message: str, rank: int | None, exit_code: int, traceback: str = "") -> None:
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code
        self.traceback = traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return RankFailed, (self.args[0], self.rank, self.exit_code, self.traceback)

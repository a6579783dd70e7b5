"""The end of a time for which this process waits."""

from __future__ import annotations

import time

#: A process that waits looks at the clock far more often. After a longer pause it did not run: it
#: was stopped, or its machine was suspended.
_LONGEST_PAUSE_SECONDS = 10.0


class Deadline:
    """Time in which this process does not run is not counted: in a job that is suspended, the other
    ranks do not run either."""

    def __init__(self, seconds: float) -> None:
        self._looked_at = time.monotonic()
        self._end = self._looked_at + seconds

    def is_over(self) -> bool:
        """Call it often."""
        now = time.monotonic()
        self._end += max(0.0, now - self._looked_at - _LONGEST_PAUSE_SECONDS)
        self._looked_at = now
        return now >= self._end

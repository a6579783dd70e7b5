"""A time limit that several activities share."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """The time of a `Timeout` is up."""


class Timeout:
    """Ends `timeout` seconds from now. `message` may have the fields {activity} and {timeout}."""

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Returns the remaining seconds, at least 0."""
        return max(0.0, self._deadline - time.monotonic())

    def timed_out(self) -> bool:
        """Returns whether the time is up."""
        return self.remaining() == 0

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException naming `activity` if the time is up."""
        if self.timed_out():
            text = self._message.format(activity=activity, timeout=self._timeout)
            raise TimeoutException(text)

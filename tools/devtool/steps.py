"""Runs the steps of a set-up, side by side as far as they do not need each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from devtool.process import done_step, say, side_by_side

#: A step that takes longer says what it does. In a later run, most steps have nothing to do.
QUIET_S = 1.0


@dataclass(frozen=True)
class Step:
    title: str
    what: str  #: shown while it runs
    work: Callable[[], str]  #: returns the result in a few words; raises Failed
    after: tuple[str, ...] = ()  #: titles of the steps that must be done before


def run_steps(steps: Sequence[Step]) -> None:
    """Runs each step once the steps that it needs are done, and prints its result and its seconds.
    If one fails, ends the others and raises its Failed."""
    waiting = list(steps)
    running: dict[Future[str], Step] = {}
    quiet: list[Future[str]] = []  # those that have not printed anything
    done: set[str] = set()
    with side_by_side(len(steps)) as threads:
        while waiting or running:
            for step in [one for one in waiting if done.issuperset(one.after)]:
                waiting.remove(step)
                quiet.append(threads.submit(done_step, step.title, step.work))
                running[quiet[-1]] = step
            if not running:
                raise ValueError(f"these steps wait for each other: {waiting}")
            ended, _ = wait(running, QUIET_S if quiet else None, FIRST_COMPLETED)
            if not ended:
                for future in quiet:
                    say(f"  {running[future].title:<18}{running[future].what} ...")
                quiet.clear()
            for future in ended:
                done.add(finish(running.pop(future), future))
            quiet = [future for future in quiet if future in running]


def finish(step: Step, future: Future[str]) -> str:
    """Prints the result of a step. Returns its title."""
    if future.exception() is not None:
        say(f"  {step.title:<18}failed")
    say(future.result())
    return step.title

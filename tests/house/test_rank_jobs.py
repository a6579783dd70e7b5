"""What is said of tests that share a job of ranks."""

from __future__ import annotations

from rank_jobs import Job, Outcome, outcomes_of

TESTS = ("first", "second")


def test_a_test_has_the_problems_and_the_core_seconds_of_all_its_ranks() -> None:
    job = Job(0, "", [[[None, 1.0], ["it broke", 2.0]], [[None, 0.5], [None, 0.25]]])
    assert outcomes_of(job, TESTS) == {
        "first": Outcome(None, 1.5),
        "second": Outcome("rank 0:\nit broke", 2.25),
    }


def test_a_test_is_skipped_where_all_ranks_skip_it() -> None:
    job = Job(0, "", [[["skipped", 0.0], ["skipped", 0.0]], [["skipped", 0.0], [None, 0.0]]])
    found = outcomes_of(job, TESTS)
    assert found["first"].problem == "skipped" and found["second"].problem == "rank 0:\nskipped"


def test_the_test_at_which_a_job_ends_has_failed_and_those_after_it_are_still_to_run() -> None:
    job = Job(9, "the reason", [[[None, 0.0]], []])
    ((test, found),) = outcomes_of(job, TESTS).items()
    assert test == "first" and found.problem is not None
    assert "exit code 9" in found.problem and "the reason" in found.problem


def test_a_job_that_ends_badly_after_its_last_test_is_the_failure_of_that_test() -> None:
    job = Job(6, "the reason", [[[None, 0.0], [None, 0.0]]])
    found = outcomes_of(job, TESTS)
    assert found["first"].problem is None and "exit code 6" in str(found["second"].problem)

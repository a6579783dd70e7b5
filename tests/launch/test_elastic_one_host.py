"""Elastic jobs on one host: what is left after a loss goes on in the same processes."""

from __future__ import annotations

import signal

import pytest
from elastic_training import entries, training
from launcher import Jobs, ended, wait_until

pytest.importorskip("horovod._core")

#: The rank that was 1 at the start kills itself at step 10.
KILL_ONE = "if (generation, rank, step) == (0, 1, 10): os.kill(os.getpid(), signal.SIGKILL)"
FOUR = ("-np", "4", "--min-np", "2")


def test_survivors_of_a_loss_go_on_in_the_same_processes(jobs: Jobs) -> None:
    command = training(jobs.folder, KILL_ONE, "generation >= 1 and step >= 20")
    result = jobs.run("-np", "4", "--min-np", "2", "--reset-limit", "1", *command)
    assert result.code == 0, result.err
    assert "rank 1 was killed by signal 9 (SIGKILL); the job goes on without it" in result.said
    found = entries(result)
    assert sorted(found) == [0, 1]
    first, second = found[0], found[1]
    assert (len(first), len(second)) == (4, 3)
    assert [second[rank].pid for rank in range(3)] == [first[rank].pid for rank in (0, 2, 3)]
    assert all(entry.before >= 10 for entry in second.values())
    assert [second[rank].local for rank in range(3)] == ["0/3", "1/3", "2/3"]
    assert result.out.count("lost=") == 3
    assert sum(line.endswith(":ended") for line in result.out_lines) == 3


def test_a_replacement_joins_at_a_later_commit(jobs: Jobs) -> None:
    command = training(jobs.folder, KILL_ONE, "generation >= 2")
    result = jobs.run(*FOUR, *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert sorted(found) == [0, 1, 2]
    survivors = [found[0][rank].pid for rank in (0, 2, 3)]
    assert [found[1][rank].pid for rank in range(3)] == survivors
    assert [found[2][rank].pid for rank in range(3)] == survivors
    joined = found[2][3]
    assert joined.pid not in [entry.pid for entry in found[0].values()]
    assert joined.before == 0 and joined.step == found[2][0].step >= 10
    assert sum(line.endswith(":ended") for line in result.out_lines) == 4


def test_rank_0_may_be_lost(jobs: Jobs) -> None:
    command = training(jobs.folder, KILL_ONE.replace("(0, 1, 10)", "(0, 0, 10)"), "generation >= 2")
    result = jobs.run(*FOUR, *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert found[1][0].pid == found[0][1].pid
    assert found[1][0].before >= 10
    assert len(found[2]) == 4


def test_one_loss_after_the_other(jobs: Jobs) -> None:
    deed = "if rank == size - 1 and generation < 2 and step >= 10 * (generation + 1): os._exit(3)"
    command = training(jobs.folder, deed, "generation >= 2")
    result = jobs.run("-np", "4", "--min-np", "2", *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert found[0][0].pid == found[1][0].pid == found[2][0].pid
    assert [line for line in result.said if "exited with code 3; the job goes on" in line]


def test_no_rank_is_started_on_a_host_after_two_failures_there(jobs: Jobs) -> None:
    deed = "if rank == size - 1 and generation < 2 and step >= 10 * (generation + 1): os._exit(3)"
    command = training(jobs.folder, deed, "generation >= 3 and step >= 300")
    result = jobs.run("-np", "4", "--min-np", "2", *command)
    assert result.code == 0, result.err
    found = entries(result)
    pids = {entry.pid for generation in found.values() for entry in generation.values()}
    assert len(pids) == 4 + 1, "only the first one was replaced"
    dropped = "no more workers are started on localhost: 2 workers failed or left there"
    assert result.said.count(dropped) == 1


def test_two_ranks_may_be_lost_at_the_same_time(jobs: Jobs) -> None:
    deed = (
        "if generation == 0 and rank in (1, 2) and step == 10: os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = training(jobs.folder, deed, "generation >= 1 and step >= 30")
    result = jobs.run(*FOUR, *command)
    assert result.code == 0, result.err
    found = entries(result)
    last = found[max(found)]
    assert [entry.pid for _, entry in sorted(last.items())] == [found[0][0].pid, found[0][3].pid]


def test_a_job_of_one_survivor_goes_on(jobs: Jobs) -> None:
    deed = "if generation == 0 and rank > 0 and step == 10: os.kill(os.getpid(), signal.SIGKILL)"
    command = training(jobs.folder, deed, "generation >= 1 and step >= 30")
    result = jobs.run("-np", "3", "--min-np", "1", *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert found[max(found)][0].pid == found[0][0].pid


def test_a_job_grows_to_its_maximum(jobs: Jobs) -> None:
    command = training(jobs.folder, "pass", "size == 4")
    limits = ("-np", "2", "--min-np", "2", "--max-np", "4", "-H", "localhost:4")
    result = jobs.run(*limits, "--verbose", *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert len(found[0]) == 2
    last = found[max(found)]
    assert [last[rank].pid for rank in range(2)] == [found[0][rank].pid for rank in range(2)]
    assert any("elastic: tells the workers that others join" in line for line in result.said)


def test_fewer_than_the_minimum_end_the_job_with_a_sentence(jobs: Jobs) -> None:
    deed = "if rank > 0 and step == 10: os.kill(os.getpid(), signal.SIGKILL)"
    command = training(jobs.folder, deed, "False")
    result = jobs.run("-np", "3", "--min-np", "2", *command)
    assert result.code == 137
    assert any("fewer than the 2 of --min-np" in line for line in result.said), result.err


def test_a_job_with_too_few_ranks_says_once_what_it_waits_for(jobs: Jobs) -> None:
    command = training(jobs.folder, KILL_ONE, "generation >= 1 and step >= 20")
    result = jobs.run("-np", "2", "--min-np", "2", *command)
    assert result.code == 0, result.err
    assert [line for line in result.said if "--min-np" in line] == [
        "1 worker is left, fewer than the 2 of --min-np: the job waits up to 600 s "
        "(--elastic-timeout) for a worker that is starting"
    ]
    assert [len(ranks) for _, ranks in sorted(entries(result).items())] == [2, 2]


def test_the_elastic_timeout_ends_the_wait_for_a_replacement(jobs: Jobs) -> None:
    deed = "if rank == 1 and step == 10: os.kill(os.getpid(), signal.SIGKILL)"
    command = training(jobs.folder, deed, "False")
    # The replacement never initializes.
    script = jobs.script('[ "$HOROVOD_GENERATION" = 0 ] || exec sleep 1000\nexec "$@"\n')
    result = jobs.run("-np", "2", "--min-np", "2", "--elastic-timeout", "1", script, *command)
    assert result.code == 137
    assert any("joined within 1 s (--elastic-timeout)" in line for line in result.said), result.err


def test_the_reset_limit_ends_the_job(jobs: Jobs) -> None:
    deed = "if rank == 1 and step >= 10: os.kill(os.getpid(), signal.SIGKILL)"
    command = training(jobs.folder, deed, "False")
    result = jobs.run("-np", "3", "--min-np", "1", "--reset-limit", "1", *command)
    assert result.code == 137
    assert any("the limit (--reset-limit)" in line for line in result.said), result.err


def test_a_loss_during_init_does_not_end_the_others(jobs: Jobs) -> None:
    """They wait in init for a rank that never comes, and begin the next generation in it."""
    command = training(jobs.folder, "pass", "generation >= 1")
    script = jobs.script(
        '[ "$HOROVOD_GENERATION/$HOROVOD_RANK" = 0/1 ] && { sleep 1; kill -9 $$; }\nexec "$@"\n'
    )
    result = jobs.run(*FOUR, script, *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert 0 not in found
    assert len(found[1]) == 3


def test_with_a_cooldown_a_host_is_used_again_after_a_pause(jobs: Jobs) -> None:
    """Also after more than two failures."""
    deed = "if rank == size - 1 and generation in (0, 2, 4) and step >= 10: os._exit(3)"
    command = training(jobs.folder, deed, "generation >= 6")
    flags = ("-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "1", "2", "--verbose")
    result = jobs.run(*flags, *command)
    assert result.code == 0, result.err
    assert [len(ranks) for _, ranks in sorted(entries(result).items())] == [2, 1] * 3 + [2]
    again = [line for line in result.said if line.endswith(" may be used again")]
    assert len(again) == 3


def test_chaos_kills_ranks_and_tells_which(jobs: Jobs) -> None:
    command = training(jobs.folder, "pass", "generation >= 4")
    limits = ("-np", "3", "--min-np", "1")
    result = jobs.run(*limits, "--chaos", "kill=2s,seed=5", *command)
    assert result.code == 0, result.err
    kills = [line for line in result.said if line.startswith("--chaos kills rank ")]
    assert kills[0].endswith("(kill 1, seed 5)")
    assert kills[1].endswith("(kill 2, seed 5)")
    lost = [line for line in result.said if line.endswith("(SIGKILL); the job goes on without it")]
    assert len(lost) == len(kills)


def test_a_stopped_survivor_is_given_up_and_rejected_when_it_wakes_up(jobs: Jobs) -> None:
    deed = f"""
{KILL_ONE}
if (generation, rank, step) == (0, 2, 10):
    open("stopped", "w").write(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
if generation >= 1 and rank == 0 and step == 30:
    stopped = int(open("stopped").read())
    os.kill(stopped, signal.SIGCONT)
"""
    over = "generation >= 1 and step > 30 and not os.path.exists(f'/proc/{stopped}')"
    command = training(jobs.folder, deed, over)
    result = jobs.run(*FOUR, "--survivor-timeout", "2", *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert {found[0][0].pid, found[0][3].pid} == {found[1][rank].pid for rank in (0, 1)}
    given_up = "was given up: it did not ask for its next place within 2 s"
    assert sum(given_up in line for line in result.said) == 1
    woken = [line for line in result.err.splitlines() if line.startswith("[2]<stderr>")]
    assert given_up in woken[-1], "the last line of the rank that woke up"
    assert found[0][2].pid not in [entry.pid for entry in found[max(found)].values()]


def test_a_stopped_survivor_is_given_up_after_the_heartbeat(jobs: Jobs) -> None:
    """No operation waits for it, in which others would notice: the generation has ended."""
    deed = f"""
{KILL_ONE}
if (generation, rank, step) == (0, 2, 10):
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    command = training(jobs.folder, deed, "generation >= 1 and step > 30")
    result = jobs.run(*FOUR, "--heartbeat-seconds", "1", *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert {found[0][0].pid, found[0][3].pid} == {found[1][rank].pid for rank in (0, 1)}
    given_up = "rank 2 in slot 2 of localhost was given up: its process is stopped (SIGSTOP), and "
    assert sum(line.startswith(given_up) for line in result.said) == 1, result.err


def test_the_launcher_shows_where_a_rank_is_that_others_wait_for(jobs: Jobs) -> None:
    """It swallows the error of the loss, and sleeps."""
    deed = f"""
{KILL_ONE}
if (generation, rank, step) == (0, 2, 10):
    try:
        largest("never", 0)
    except HorovodInternalError:
        time.sleep(1000)
"""
    command = training(jobs.folder, deed, "generation >= 1 and step >= 20")
    result = jobs.run(*FOUR, "--survivor-timeout", "6", *command)
    assert result.code == 0, result.err
    begin = "rank 2 has not asked for its place in the next generation"
    causes = [index for index, line in enumerate(result.said) if line.startswith(begin)]
    given_up = "was given up: it did not ask for its next place within 6 s"
    (late,) = [index for index, line in enumerate(result.said) if given_up in line]
    assert len(causes) == 1 and causes[0] < late, result.err


def test_a_rank_that_holds_the_gil_is_given_up_and_rejected_when_it_releases_it(jobs: Jobs) -> None:
    """Its process answers others meanwhile, so it is not silent. It is in the middle of a step."""
    deed = f"""
{KILL_ONE}
if (generation, rank, step) == (0, 2, 10):
    import ctypes
    open("holder", "w").write(str(os.getpid()))
    left = 3  # a signal of the launcher, which asks where it is, interrupts it
    while left:
        left = ctypes.PyDLL(None).sleep(left)
if generation >= 1 and step == 20:
    holder = open("holder").read()
    print("on without it", os.path.exists(f"/proc/{{holder}}"), flush=True)
"""
    over = "step > 20 and not os.path.exists(f'/proc/{holder}')"
    command = training(jobs.folder, deed, over)
    flags = (*FOUR, "--survivor-timeout", "1", "--heartbeat-seconds", "1")
    result = jobs.run(*flags, *command)
    assert result.code == 0, result.err
    found = entries(result)
    assert {found[0][0].pid, found[0][3].pid} == {found[1][rank].pid for rank in (0, 1)}
    assert "on without it True" in result.out and "on without it False" not in result.out
    given_up = "was given up: it did not ask for its next place within 1 s"
    assert sum(given_up in line for line in result.said) == 1, result.err
    released = [line for line in result.err.splitlines() if line.startswith("[2]<stderr>")]
    assert given_up in released[-1], result.err


def test_the_job_ends_when_it_is_interrupted(jobs: Jobs) -> None:

    deed = "open(f'{rank}.up', 'w').close()"
    process = jobs.start(*FOUR, *training(jobs.folder, deed, "False"))
    wait_until(lambda: len(list(jobs.folder.glob("*.up"))) == 4, "all ranks")
    process.send_signal(signal.SIGTERM)
    assert ended(process).code == 143


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-np", "2", "--min-np", "3"), "--min-np 3 is more than -np 2"),
        (("-np", "4", "--max-np", "3", "--min-np", "2"), "--max-np 3 is less than -np 4"),
        (("-np", "2", "--min-np", "2", "--mpi"), "leave out --mpi"),
    ],
)
def test_limits_that_make_no_sense_are_refused(
    jobs: Jobs, flags: tuple[str, ...], message: str
) -> None:
    result = jobs.run(*flags, "true")
    assert result.code == 2
    assert message in result.err

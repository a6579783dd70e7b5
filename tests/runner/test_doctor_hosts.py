"""What the doctor concludes from the facts of several hosts and of the ways between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from doctor_facts import HEALTHY, TORCH, worse

from horovod.doctor import hosts, wire
from horovod.doctor.facts import Facts, Interface
from horovod.doctor.finding import Finding
from horovod.doctor.hosts import Network
from horovod.doctor.wire import Reached, Way, rounds, told


def three(**third: Any) -> dict[str, Facts]:
    def one(number: int, **change: Any) -> Facts:
        wire = Interface("eth0", [f"10.0.0.{number}"], mbit_s=10000)
        return replace(HEALTHY, hostname=f"n{number}", **{"interfaces": [wire], **change})

    return {"n1": one(1), "n2": one(2), "n3": one(3, **third)}


def way(a: int, b: int, rate: float = 1e9, **more: Any) -> Way:
    values = {"round_trip_seconds": 1e-4, "clock_seconds": 1e-4, "clock_error_seconds": 5e-5}
    return Way(a, b, rate, rate, **(values | more))


def reached(a: int, b: int) -> Reached:
    return Reached(a, f"10.0.0.{a + 1}", f"10.0.0.{b + 1}")


ALL_REACHED = [reached(0, 1), reached(2, 0), reached(1, 2)]


def between(*ways: Way, **third: Any) -> list[Finding]:
    return worse(Network(three(**third), [*ways, *ALL_REACHED]).findings())


def test_equal_hosts_on_a_good_network_are_well() -> None:
    assert worse(hosts.compare(three())) == []
    assert between(way(0, 1), way(0, 2), way(1, 2)) == []
    assert between(way(0, 1, 4e8), way(0, 2), way(1, 2)) == []  # within reason
    assert between() == []


@pytest.mark.parametrize(
    ("change", "severity", "what"),
    [
        ({"horovod": "1.1"}, "problem", "Horovod differs: 1.0 on n1, n2; 1.1 on n3"),
        ({"python": "3.12.0"}, "problem", "Python differs: 3.11 on n1, n2; 3.12 on n3"),
        ({"frameworks": [replace(TORCH, version="2.1.0")]}, "problem",
         "torch differs: 2.9.1 on n1, n2; 2.1.0 on n3"),
        ({"frameworks": [replace(TORCH, version="2.9.0"), HEALTHY.frameworks[1]]}, "advice",
         "torch differs: 2.9.1 on n1, n2; 2.9.0 on n3"),
        ({"frameworks": [TORCH]}, "problem", "jax differs: 0.10.2 on n1, n2; missing on n3"),
    ],
)  # fmt: skip
def test_versions_that_differ_are_told_with_their_hosts(
    change: dict[str, Any], severity: str, what: str
) -> None:
    found = worse(hosts.compare(three(**change)))
    (one,) = [one for one in found if one.what == what]
    assert one.severity == severity and one.why and one.fix


@pytest.mark.parametrize(
    ("version", "fix"),
    [
        ("2.10.0", '"torch==2.10.0"'),  # which is later, though not as text
        ("2.10.0+cu126", '"torch==2.10.0"'),
        ("2.9.1+cpu", '--force-reinstall "torch==2.9.1"'),
    ],
)
def test_the_remedy_of_versions_that_differ_is_the_latest_as_pip_knows_it(
    version: str, fix: str
) -> None:
    change = {"frameworks": [replace(TORCH, version=version), HEALTHY.frameworks[1]]}
    (found,) = worse(hosts.compare(three(**change)))
    assert found.fix[0].startswith(f"pip install {fix} ")


def test_what_is_the_same_is_told_in_one_line() -> None:
    (found,) = hosts.compare(three())
    assert found.what == (
        "the same everywhere: Horovod 1.0, Python 3.11, jax 0.10.2, torch 2.9.1, Linux 6.1.0"
    )


def test_a_patch_of_python_and_another_kernel_are_no_matter() -> None:
    assert worse(hosts.compare(three(python="3.11.9", kernel="5.15"))) == []


def test_a_host_that_is_slow_to_all_others_is_named_once() -> None:
    (found,) = between(way(0, 1), way(0, 2, 5e6), way(1, 2, 6e6))
    assert found.severity == "problem"
    assert (
        found.what
        == "n3 exchanges 6 MB/s with each other host; the fastest connection reaches 1.0 GB/s"
    )
    assert "on n3: ethtool eth0" in found.fix[0]


def test_a_slow_way_between_two_good_hosts_is_told_as_a_pair() -> None:
    found = between(way(0, 1), way(0, 2), way(1, 2, 5e6))
    assert [one.what for one in found] == [
        "n2 and n3 exchange 5 MB/s; the fastest connection reaches 1.0 GB/s"
    ]


def test_the_slower_direction_counts() -> None:
    lame = Way(1, 2, there=1e9, back=5e6, round_trip_seconds=1e-4)
    (found,) = between(way(0, 1), way(0, 2), lame)
    assert found.what.startswith("n2 and n3 exchange 5 MB/s")


def test_a_network_that_is_slow_everywhere_is_one_advice() -> None:
    found = between(way(0, 1, 1e7), way(0, 2, 1e7), way(1, 2, 1e7))
    assert len(found) == 1 and found[0].severity == "advice"
    assert found[0].what == (
        "no two hosts exchange more than 10 MB/s; the speed of their interfaces is 1.2 GB/s"
    )
    assert "10.0 s of every step" in found[0].why


def test_a_way_far_below_what_its_interface_is_said_to_do_is_told() -> None:
    (found,) = between(way(0, 1, 2e8), way(0, 2, 4e8), way(1, 2, 4e8))
    assert found.what == "n1 and n2 exchange 200 MB/s over eth0, whose speed is 1.2 GB/s"


def test_hosts_far_apart_are_told_by_the_farthest() -> None:
    far = {"round_trip_seconds": 3e-3}
    (found,) = between(way(0, 1), way(0, 2, **far), way(1, 2, round_trip_seconds=2e-3))
    assert found.what == "a round trip between n1 and n3 takes 3.0 ms (2 such connections)"


@pytest.mark.parametrize(
    ("seconds", "severity", "what"),
    [
        (2.0, "advice", "the clock of n3 is 2.0 s ahead of that of n1"),
        (-3600.0, "problem", "the clock of n3 is 3600.0 s behind that of n1"),
    ],
)
def test_a_clock_that_is_off_is_told(seconds: float, severity: str, what: str) -> None:
    off = {"clock_seconds": seconds}
    (found,) = between(way(0, 1), way(0, 2, **off), way(1, 2, **off))
    assert (found.severity, found.what) == (severity, what)


def test_a_clock_is_not_accused_by_a_way_that_took_longer() -> None:
    vague = {"clock_seconds": 0.3, "clock_error_seconds": 0.25, "round_trip_seconds": 0.5}
    found = between(way(0, 1), way(0, 2, **vague), way(1, 2))
    assert not [one for one in found if "clock" in one.what]


def test_frames_of_different_size_on_one_way_are_told() -> None:
    jumbo = Interface("ens5", ["10.0.0.3"], mtu=9000)
    first, second = between(way(0, 1), way(0, 2), way(1, 2), interfaces=[jumbo])
    assert first.what == "the MTUs of n1 and n3 differ: 1500 and 9000 bytes"
    assert first.fix == ("on n3: ip link set dev ens5 mtu 1500",)
    assert second.what.startswith("the MTUs of n2 and n3")


def test_a_way_that_broke_is_a_problem_told_once() -> None:
    broken = Way(0, 1, problem="rank 1 was lost")
    (found,) = between(broken, broken, way(0, 2), way(1, 2))
    assert found.what == "the connection between n1 and n2 failed: rank 1 was lost"


def test_the_table_names_the_interfaces_and_is_cut_to_the_slowest() -> None:
    lines = Network(three(), [way(0, 1), way(1, 2, 2e9), *ALL_REACHED]).table(verbose=False)
    assert lines[0].split() == ["between", "by", "there", "back", "round", "trip", "clock"]
    assert lines[1].split() == ["n1", "n2", "eth0", "1.0", "GB/s", "1.0", "GB/s", "100", "us",
                                "+0.10", "ms"]  # fmt: skip
    many = {f"n{number}": HEALTHY for number in range(8)}
    ways = [way(a, b, 1e9 + b) for a in range(8) for b in range(a + 1, 8)]
    network = Network(many, ways)
    assert network.table(verbose=False)[-1] == "(13 faster ones omitted; --verbose shows all)"
    assert len(network.table(verbose=True)) == 1 + 28


@pytest.mark.parametrize("size", [2, 3, 4, 6, 7, 8, 16])
def test_every_pair_is_measured_once_and_nobody_twice_at_a_time(size: int) -> None:
    plan = rounds(size)
    for pairs in plan:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(ranks) == len(set(ranks))
    measured = [pair for pairs in plan for pair in pairs]
    assert sorted(measured) == [(a, b) for a in range(size) for b in range(a + 1, size)]
    assert size > 6 or all(len(pairs) == 1 for pairs in plan)


def test_of_many_hosts_each_is_measured_with_some() -> None:
    plan = rounds(200)
    assert len(plan) == 31 and all(len(pairs) == 100 for pairs in plan)


class _Wire:
    """A clock, and a group whose bytes take their time: 1 GB/s but for what `late` adds."""

    def __init__(self, late: Callable[[int, int], float]) -> None:
        self.now = 0.0
        self._late = late
        self._calls: Counter[int] = Counter()

    def monotonic(self) -> float:
        return self.now

    def broadcast(self, memory: object, count: int, root: int) -> None:
        self._calls[count] += 1
        self.now += 1e-5 + count / 1e9 + self._late(count, self._calls[count])


@pytest.mark.parametrize("order", [wire._THERE, wire._BACK])
@pytest.mark.parametrize(
    ("late", "least", "most"),
    [
        (lambda count, call: 0.0, 0.9e9, 1.1e9),
        (lambda count, call: 0.1 * (count == 1 << 18 and call == 1), 0.7e9, 1.1e9),  # a hiccup
        (lambda count, call: 0.5 * (count == 1 << 24 and call == 1), 0.9e9, 1.1e9),
        # Beyond the first 64 KiB: 10 MB/s.
        (lambda count, call: 0.099e-6 * count * (count > 1 << 16), 0.9e7, 1.1e7),
    ],
)
def test_a_rate_is_the_best_of_the_largest_size(
    order: int, late: Callable[[int, int], float], least: float, most: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    group = _Wire(late)
    monkeypatch.setattr(wire, "time", group)
    pair = wire._Pair(group)  # type: ignore[arg-type]
    assert least < pair._rate(order, 2e-5, 0.2) < most


def test_what_ranks_tell_is_found_among_other_output() -> None:
    text = 'noise\nhorovod-doctor: ["Reached", {"rank": 1, "own": "a", "other": "b"}]\n'
    assert told(text) == [Reached(1, "a", "b")]

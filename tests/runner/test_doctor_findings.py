"""What the doctor concludes from facts that are made up: each kind of trouble once, and none."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horovod.doctor import environment, frameworks, host, hosts, wire
from horovod.doctor.collect import collect
from horovod.doctor.facts import GIB, MIB, Facts, Framework, Interface, as_json, from_json
from horovod.doctor.finding import Block, Finding, advice, count, merged, ok, problem, report
from horovod.doctor.hosts import Network
from horovod.doctor.wire import Reached, Way, rounds, told

TORCH = Framework("torch", "2.9.1", "horovod.torch")
WIRE = Interface("eth0", ["10.0.0.1"], mtu=1500, mbit_s=10000, packets=10**6)
HEALTHY = Facts(
    horovod="1.0",
    frameworks=[TORCH, Framework("jax", "0.4.30")],
    slots=4,
    ranks=8,
    interfaces=[Interface("lo", ["127.0.0.1"], loopback=True), WIRE],
    mpi=["Open MPI (/usr/bin/mpirun)"],
    pmix="libpmix.so.2",
)


def worse(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.severity != "ok"]


def test_a_healthy_host_has_only_things_that_are_well() -> None:
    assert worse(host.findings(HEALTHY)) == []
    said = [one.what for one in host.findings(HEALTHY)]
    assert "torch 2.9.1: horovod.torch loads" in said
    assert "jax 0.4.30: through horovod.keras, with KERAS_BACKEND=jax" in said
    assert "8 cores" in said


def test_one_rank_of_unknown_number_needs_little() -> None:
    small = replace(HEALTHY, slots=0, ranks=0, cores=1, open_files=1024)
    assert worse(host.findings(small)) == []


TROUBLES: list[tuple[dict[str, Any], str, str, str]] = [
    ({"native_problem": "libstdc++.so.6 is missing"}, "problem",
     "compiled part of Horovod does not load: libstdc++.so.6 is missing",
     "/usr/bin/python3 -m pip install --no-cache-dir --force-reinstall horovod"),
    ({"other_python": "/opt/bin/python"}, "advice", "/opt/bin/python, which `python` means",
     'export PATH="/usr/bin:$PATH"'),
    ({"has_cloudpickle": False}, "advice", "cloudpickle", "pip install cloudpickle"),
    ({"frameworks": []}, "advice", "no framework", 'pip install "torch>=2.1"'),
    ({"frameworks": [replace(TORCH, failed="torch", problem="OSError: libcudart.so.12")]},
     "problem", "torch 2.9.1 does not load: OSError: libcudart.so.12",
     "pip install --force-reinstall torch"),
    ({"frameworks": [replace(TORCH, failed="horovod.torch", problem="ImportError: no")]},
     "problem", "horovod.torch does not load with torch 2.9.1: ImportError: no",
     "pip install --no-cache-dir --force-reinstall horovod"),
    ({"frameworks": [replace(TORCH, version="1.13.1", failed="horovod.torch", problem="old")]},
     "problem", "torch 1.13.1 is too old for horovod.torch", 'pip install --upgrade "torch>=2.1"'),
    ({"frameworks": [Framework("keras", "3.5.0", "horovod.keras", "keras",
                               "ModuleNotFoundError: No module named 'tensorflow'")]},
     "problem", "keras 3.5.0 does not load", "export KERAS_BACKEND=torch"),
    ({"frameworks": [replace(TORCH, failed="torch", problem="not after 120 s", is_slow=True)]},
     "advice", "torch 2.9.1: not after 120 s", "-X importtime -c 'import torch'"),
    ({"frameworks": [replace(TORCH, failed="torch, horovod.torch", problem="it was killed",
                             at_exit=True)]},
     "advice", "torch 2.9.1: it was killed", "-X faulthandler -c 'import torch, horovod.torch'"),
    ({"frameworks": [TORCH, Framework("mxnet", "1.9.1")]}, "advice",
     "there is no horovod.mxnet", "keep such scripts"),
    ({"strange_variables": [("HOROVOD_FUSION_TRESHOLD", "HOROVOD_FUSION_THRESHOLD")]}, "advice",
     "HOROVOD_FUSION_TRESHOLD is set, and nothing reads it",
     'export HOROVOD_FUSION_THRESHOLD="$HOROVOD_FUSION_TRESHOLD"'),
    ({"strange_variables": [("HOROVOD_MINE", "")]}, "advice", "HOROVOD_MINE", "unset HOROVOD_MINE"),
    ({"open_files": 256}, "problem", "256 open files, of 288 for a rank among 8", "ulimit -n 4096"),
    ({"open_files": 256, "open_files_most": 1024}, "problem", "256 open files", "ulimit -n 1024"),
    ({"open_files": 256, "open_files_most": 256}, "problem", "256 open files", "limits.conf"),
    ({"processes": 100}, "problem", "4 ranks on 8 cores may start 192", "ulimit -u 192"),
    ({"core_quota": 2.5}, "problem", "2.5 cores' time for 4 ranks", "docker run --cpus=4"),
    ({"cores": 2}, "advice", "4 ranks share 2 cores", "-H host:2"),
    ({"omp_threads": 8}, "advice", "OMP_NUM_THREADS=8 on each of 4", "export OMP_NUM_THREADS=2"),
    ({"available_bytes": 64 * MIB}, "problem", "64 MiB of memory, of which the ranks share 64 MiB",
     "--staging-mb 4"),
    ({"available_bytes": 2 * GIB}, "advice", "there are 2.0 GiB of memory for 4", "fewer ranks"),
    ({"memory_limit_bytes": GIB}, "advice", "the container may use 1.0 GiB", "--memory=8g"),
    ({"shm_bytes": 64 * MIB, "shm_free_bytes": 60 * MIB}, "problem",
     "/dev/shm has 60 MiB free of 64 MiB", "--shm-size=8g"),
    ({"shm_free_bytes": 100 * MIB}, "advice", "/dev/shm has 100 MiB free of 32 GiB", "du -sh"),
    ({"has_infiniband": True, "locked_bytes": 64 * 1024}, "advice", "memory may be locked",
     "ulimit -l unlimited"),
    ({"interfaces": [replace(WIRE, errors=1000)]}, "advice",
     "eth0 has received 1000 of 1000000 packets with errors", "ip -s -s link show eth0"),
    ({"mpi": ["unknown (/opt/bin/mpirun)"]}, "advice", "(/opt/bin/mpirun)", "mpirun --version"),
    ({"pmix": ""}, "advice", "libpmix", "apt-get install libpmix2"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "severity", "what", "fix"), TROUBLES)
def test_each_trouble_is_one_finding_with_a_reason_and_a_remedy(
    change: dict[str, Any], severity: str, what: str, fix: str
) -> None:
    (found,) = worse(host.findings(replace(HEALTHY, **change)))
    assert found.severity == severity
    assert what in found.what
    assert any(fix in step for step in found.fix), found.fix
    assert found.why


def test_little_shared_memory_harms_only_data_loaders() -> None:
    tiny = replace(HEALTHY, frameworks=[], shm_bytes=MIB, shm_free_bytes=MIB)
    assert {one.severity for one in worse(host.findings(tiny))} == {"advice"}


def test_facts_travel_as_json() -> None:
    facts = replace(HEALTHY, strange_variables=[("HOROVOD_X", "")], core_quota=1.5)
    assert from_json(as_json(facts)) == facts
    with pytest.raises((ValueError, TypeError, KeyError)):
        from_json('{"of": "another version"}')


def test_the_facts_of_this_host_can_be_had_and_judged() -> None:
    facts = collect(1, 1, only=[])
    assert facts.cores >= 1 and facts.available_bytes > 0 and facts.native_problem == ""
    assert any(one.loopback and one.addresses for one in facts.interfaces)
    assert not any(one.problem or (one.adapter and one.is_loaded) for one in facts.frameworks)
    assert from_json(as_json(facts)) == facts
    assert len(host.findings(facts)) >= len(host.RULES) // 2


def test_variables_that_nothing_reads_are_found_by_name_with_the_nearest_one() -> None:
    names = ["HOROVOD_FUSION_TRESHOLD", "HOROVOD_RANK", "HOROVOD_LOG_LEVEL", "PATH"]
    names += ["HOROVOD_MY_OWN_THING", "HOROVOD_WITH_PYTORCH", "horovod_cycle_time"]
    names += ["HOROVOD_SECRET_KEY"]
    assert environment.strange(names) == [
        ("HOROVOD_FUSION_TRESHOLD", "HOROVOD_FUSION_THRESHOLD"),
        ("HOROVOD_MY_OWN_THING", ""),
        ("horovod_cycle_time", "HOROVOD_CYCLE_TIME"),
    ]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("raise RuntimeError('of another machine')", "torch 9.9 does not load: RuntimeError: of "
         "another machine"),
        ("import os; os.abort()", "torch 9.9 does not load: it was killed by signal 6 (Aborted) "
         "while loading"),
        ("import time; time.sleep(60)", "torch 9.9: it had not loaded after 1 s"),
        ("__version__ = '1.13'", "torch 1.13 is too old for horovod.torch: "),
        ("__version__ = '9.8'\nclass Tensor: register_post_accumulate_grad_hook = 1",
         "horovod.torch does not load with torch 9.8: "),
    ],
)  # fmt: skip
def test_a_stand_in_that_does_not_load_is_told_with_its_last_line(
    body: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(body)
    about = tmp_path / "torch-9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(frameworks, "SECONDS", 1 if "sleep" in body else 60)
    there, probes = frameworks.start(["torch"])
    frameworks.wait(probes)
    found = worse(host.findings(replace(HEALTHY, frameworks=there)))
    assert any(one.what.startswith(what) for one in found), found


def test_a_crash_after_all_has_loaded_is_advice_and_no_failure_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "adapter"):
        (tmp_path / f"{name}.py").write_text("import atexit, os\natexit.register(os.abort)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(frameworks.ADAPTERS, "torch", "adapter")
    there, probes = frameworks.start(["torch"])
    frameworks.wait(probes)
    (torch,) = [one for one in there if one.name == "torch"]
    (found,) = worse(host.findings(replace(HEALTHY, frameworks=[torch])))
    assert found.severity == "advice"
    assert found.what.endswith(
        "an interpreter had loaded it, and was killed by signal 6 (Aborted) at its end"
    )
    assert "import torch, adapter" in found.fix[0]


def test_the_python_of_another_environment_is_not_taken_for_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are links to the same program."""
    make = [sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"]
    subprocess.run(make, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "venv/bin"))
    assert collect(1, 1, only=[]).other_python == str(tmp_path / "venv/bin/python")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert collect(1, 1, only=[]).other_python == ""


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, None),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "250000 100000",
          "sys/fs/cgroup/a/b/cpu.max": "150000 50000"}, 2.5),
        # Of the first version each group has a period of its own.
        ({"proc/self/cgroup": "4:cpu,cpuacct:/a\n0::/",
          "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
          "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "150000",
          "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "50000"}, 2.0),
        ({"proc/self/cgroup": "4:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)  # fmt: skip
def test_the_quota_of_cores_is_the_least_of_all_groups_above(
    files: dict[str, str], quota: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr("horovod.doctor.collect._ROOT", tmp_path)
    assert collect(1, 1, only=[]).core_quota == quota


def test_what_a_failure_kept_from_being_tried_is_tried_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorflow", "keras"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise OSError('no {name}')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    there, probes = frameworks.start(["tensorflow", "keras"])
    assert len(probes) == 1
    frameworks.wait(probes)
    problems = {one.name: one.problem for one in there if one.is_loaded}
    assert problems == {"tensorflow": "OSError: no tensorflow", "keras": "OSError: no keras"}


# ---- several hosts -----------------------------------------------------------------------------


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
        ({"frameworks": [TORCH]}, "problem", "jax differs: 0.4.30 on n1, n2; missing on n3"),
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
        "the same everywhere: Horovod 1.0, Python 3.11, jax 0.4.30, torch 2.9.1, Linux 6.1.0"
    )


def test_a_patch_of_python_and_another_kernel_are_no_matter() -> None:
    assert worse(hosts.compare(three(python="3.11.9", kernel="5.15"))) == []


def test_a_host_that_is_slow_to_all_others_is_named_once() -> None:
    (found,) = between(way(0, 1), way(0, 2, 5e6), way(1, 2, 6e6))
    assert found.severity == "problem"
    assert found.what == "n3 exchanges 6 MB/s with each other host, where others do 1.0 GB/s"
    assert "on n3: ethtool eth0" in found.fix[0]


def test_a_slow_way_between_two_good_hosts_is_told_as_a_pair() -> None:
    found = between(way(0, 1), way(0, 2), way(1, 2, 5e6))
    assert [one.what for one in found] == ["n2 and n3 exchange 5 MB/s, where others do 1.0 GB/s"]


def test_the_slower_direction_counts() -> None:
    lame = Way(1, 2, there=1e9, back=5e6, round_trip_seconds=1e-4)
    (found,) = between(way(0, 1), way(0, 2), lame)
    assert found.what.startswith("n2 and n3 exchange 5 MB/s")


def test_a_network_that_is_slow_everywhere_is_one_advice() -> None:
    found = between(way(0, 1, 1e7), way(0, 2, 1e7), way(1, 2, 1e7))
    assert len(found) == 1 and found[0].severity == "advice"
    assert found[0].what == (
        "no two hosts exchange more than 10 MB/s; their interfaces are said to do 1.2 GB/s"
    )
    assert "10.0 s of every step" in found[0].why


def test_a_way_far_below_what_its_interface_is_said_to_do_is_told() -> None:
    (found,) = between(way(0, 1, 2e8), way(0, 2, 4e8), way(1, 2, 4e8))
    assert found.what == "n1 and n2 exchange 200 MB/s over eth0, which is said to do 1.2 GB/s"


def test_hosts_far_apart_are_told_by_the_farthest() -> None:
    far = {"round_trip_seconds": 3e-3}
    (found,) = between(way(0, 1), way(0, 2, **far), way(1, 2, round_trip_seconds=2e-3))
    assert found.what == "a message between n1 and n3 and its answer take 3.0 ms (2 such ways)"


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
    assert first.what == "frames of n1 and n3 may have 1500 and 9000 bytes"
    assert first.fix == ("on n3: ip link set dev ens5 mtu 1500",)
    assert second.what.startswith("frames of n2 and n3")


def test_a_way_that_broke_is_a_problem_told_once() -> None:
    broken = Way(0, 1, problem="rank 1 was lost")
    (found,) = between(broken, broken, way(0, 2), way(1, 2))
    assert found.what == "the way between n1 and n2 broke: rank 1 was lost"


def test_the_table_names_the_interfaces_and_is_cut_to_the_slowest() -> None:
    lines = Network(three(), [way(0, 1), way(1, 2, 2e9), *ALL_REACHED]).table(verbose=False)
    assert lines[0].split() == ["between", "by", "there", "back", "round", "trip", "clock"]
    assert lines[1].split() == ["n1", "n2", "eth0", "1.0", "GB/s", "1.0", "GB/s", "100", "us",
                                "+0.10", "ms"]  # fmt: skip
    many = {f"n{number}": HEALTHY for number in range(8)}
    ways = [way(a, b, 1e9 + b) for a in range(8) for b in range(a + 1, 8)]
    network = Network(many, ways)
    assert network.table(verbose=False)[-1] == "(13 faster ones: --verbose)"
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


# ---- the report --------------------------------------------------------------------------------


def test_the_report_begins_with_the_worst_and_ends_with_the_count() -> None:
    blocks = [
        Block("n1", [ok("this"), ok("that"), advice("hm", "because", "do"), problem("oh", "so")]),
        Block("n2", [ok("all")], ["a table"]),
    ]
    assert report(blocks, verbose=False) == [
        "n1",
        "  problem  oh",
        "           why: so",
        "  advice   hm",
        "           why: because",
        "           fix: do",
        "  ok       this; that",
        "",
        "n2",
        "  ok       all",
        "  a table",
        "",
        "1 problem, 1 piece of advice",
    ]
    assert report(blocks, verbose=True)[6:8] == ["  ok       this", "  ok       that"]
    assert (count(blocks, "problem"), count(blocks, "ok")) == (1, 3)
    assert report([], verbose=False) == ["no problems, no advice"]


def test_hosts_about_which_the_same_is_said_are_told_together() -> None:
    same = [problem("oh", "so", "do"), ok("Python")]
    blocks = [Block(f"n{number}", [*same, ok(f"eth{number}")]) for number in range(8)]
    blocks[3].findings = [ok("Python")]
    assert merged(blocks) == [
        Block("n0, n1, n2, n4, n5, n6 and 1 more", same),
        Block("n3", [ok("Python")]),
    ]


def test_what_others_say_cannot_move_the_cursor_and_is_wrapped() -> None:
    lines = report([Block("n", [problem("a\x1b[2J\nb " + "word " * 40, "why")])], verbose=False)
    assert "\x1b" not in "".join(lines) and lines[1].startswith("  problem  a [2J b")
    assert max(map(len, lines)) <= 100

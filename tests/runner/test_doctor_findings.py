"""What the doctor concludes from facts that are made up: each kind of trouble once, and none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doctor_facts import HEALTHY, TORCH, WIRE, worse

from horovod.doctor import environment, frameworks, host
from horovod.doctor.collect import collect
from horovod.doctor.facts import GIB, MIB, Framework, as_json, from_json
from horovod.doctor.finding import Block, advice, count, merged, ok, problem, report


def test_a_healthy_host_has_only_things_that_are_well() -> None:
    assert worse(host.findings(HEALTHY)) == []
    said = [one.what for one in host.findings(HEALTHY)]
    assert "torch 2.9.1: horovod.torch loads" in said
    assert "jax 0.10.2: horovod.jax loads" in said
    assert "8 cores" in said


def test_one_rank_of_unknown_number_needs_little() -> None:
    small = replace(HEALTHY, slots=0, ranks=0, cores=1, open_files=1024)
    assert worse(host.findings(small)) == []


TROUBLES: list[tuple[dict[str, Any], str, str, str]] = [
    ({"native_problem": "libstdc++.so.6 is missing"}, "problem",
     "compiled library of Horovod does not load: libstdc++.so.6 is missing",
     "/usr/bin/python3 -m pip install --no-cache-dir --force-reinstall horovod"),
    ({"other_python": "/opt/bin/python"}, "advice", "/opt/bin/python, the `python` of PATH",
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
    ({"strange_variables": [("HOROVOD_FUSION_TRESHOLD", "HOROVOD_FUSION_THRESHOLD")]}, "advice",
     "HOROVOD_FUSION_TRESHOLD is set, but is not read",
     'export HOROVOD_FUSION_THRESHOLD="$HOROVOD_FUSION_TRESHOLD"'),
    ({"strange_variables": [("HOROVOD_MINE", "")]}, "advice", "HOROVOD_MINE", "unset HOROVOD_MINE"),
    ({"open_files": 256}, "problem", "may open 256 files; a rank of 8 needs 288", "ulimit -n 4096"),
    ({"open_files": 256, "open_files_most": 1024}, "problem", "may open 256 files",
     "ulimit -n 1024"),
    ({"open_files": 256, "open_files_most": 256}, "problem", "may open 256 files", "limits.conf"),
    ({"processes": 100}, "problem", "4 ranks on 8 cores may start 192", "ulimit -u 192"),
    ({"core_quota": 2.5}, "problem", "2.5 CPUs for 4 ranks", "docker run --cpus=4"),
    ({"cores": 2}, "advice", "4 ranks share 2 cores", "-H host:2"),
    ({"omp_threads": 8}, "advice", "OMP_NUM_THREADS=8 on each of 4", "export OMP_NUM_THREADS=2"),
    ({"available_bytes": 12 * MIB}, "problem", "12 MiB of memory are free; the ranks need 8 MiB",
     "HOROVOD_STAGING_BYTES=65536"),
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


def test_where_the_compiled_part_does_not_load_no_variable_is_called_strange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "horovod._core", None)
    monkeypatch.delattr("horovod._core", raising=False)
    assert environment.strange(["HOROVOD_CYCLE_TIME", "HOROVOD_MY_OWN_THING"]) == []


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("raise RuntimeError('of another machine')", "torch 9.9 does not load: RuntimeError: of "
         "another machine"),
        ("import os; os.abort()", "torch 9.9 does not load: it was killed by signal 6 (Aborted) "
         "while loading"),
        ("import time; time.sleep(60)", "torch 9.9: it did not load within 1 s"),
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
        "an interpreter loaded it, but was killed by signal 6 (Aborted) when it ended"
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

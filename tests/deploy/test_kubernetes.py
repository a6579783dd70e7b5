"""The manifests: their fields, and that what they start trains by what the operators set."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pods
import pytest
import yaml
from pods import (
    Pod,
    command_of,
    container,
    manifest,
    mpijob,
    mpijob_pods,
    shortened,
    this_machine,
    variables_of,
    why_no_pods,
)
from state_training import entries, parts_of_newest, training, written_step

from devtool.paths import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
SCHEMAS = ROOT / "build" / "deploy" / "schemas"
MPI_JOBS = ["mpijob.yaml", "elastic-mpijob.yaml"]
REQUIREMENTS = ["kubernetes-validate==1.37.0", "kubeflow_trainer_api==2.3.0"]
#: kubeflow.org/v2beta1, which nobody publishes as a package. What a field holds: fields again, a
#: type, or the values that the operator accepts. A pod template is checked as a core kind.
REPLICA = {"replicas": int, "restartPolicy": {"Never", "OnFailure"}, "template": dict}
SCHEDULING = {
    "minAvailable": int,
    "minResources": dict,
    "priorityClass": str,
    "queue": str,
    "scheduleTimeoutSeconds": int,
}
RUN_POLICY = {
    "activeDeadlineSeconds": int,
    "backoffLimit": int,
    "cleanPodPolicy": {"All", "None", "Running"},
    "managedBy": {"kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue"},
    "schedulingPolicy": SCHEDULING,
    "suspend": bool,
    "ttlSecondsAfterFinished": int,
}
MPI_JOB = {
    "apiVersion": {"kubeflow.org/v2beta1"},
    "kind": {"MPIJob"},
    "metadata": {"name": str, "namespace": str, "labels": dict, "annotations": dict},
    "spec": {
        "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
        "mpiImplementation": {"Intel", "MPICH", "OpenMPI"},
        "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA},
        "runLauncherAsWorker": bool,
        "runPolicy": RUN_POLICY,
        "slotsPerWorker": int,
        "sshAuthMountPath": str,
    },
}


@pytest.fixture(scope="session")
def schemas() -> Path:
    """The Python of an environment with what publishes them, made the first time."""
    python = SCHEMAS / "bin" / "python"
    stamp = SCHEMAS / ".requirements"
    if stamp.is_file() and stamp.read_text() == str(REQUIREMENTS):
        return python
    shutil.rmtree(SCHEMAS, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(SCHEMAS)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS]
    ended = subprocess.run(install, capture_output=True, text=True, timeout=300)
    if ended.returncode != 0:
        pytest.skip(f"{', '.join(REQUIREMENTS)} cannot be had here: {ended.stderr[-300:]}")
    stamp.write_text(str(REQUIREMENTS))
    return python


def problems(python: Path, documents: list[dict[str, Any]], folder: Path) -> str:
    """What the published schemas of Kubernetes say against them; unknown fields as well."""
    file = folder / "documents.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    program = str(python.parent / "kubernetes-validate")
    ended = subprocess.run([program, "--strict", str(file)], capture_output=True, text=True)
    said = ended.stdout + ended.stderr
    return "" if ended.returncode == 0 and "WARN" not in said else said


def misfits(value: Any, known: Any, at: str = "") -> list[str]:
    """What of a manifest the operator would not know or not accept."""
    if isinstance(known, set):
        return [] if value in known else [f"{at}: {value!r} is none of {sorted(known)}"]
    if isinstance(known, type):
        return [] if type(value) is known else [f"{at}: {value!r} is no {known.__name__}"]
    if not isinstance(value, dict):
        return [f"{at}: {value!r} has no fields"]
    found = [f"{at}.{name} is unknown" for name in value if name not in known]
    for name in value.keys() & known.keys():
        found += misfits(value[name], known[name], f"{at}.{name}")
    return found


@pytest.mark.slow
def test_the_job_without_an_operator_fits_the_schemas_of_kubernetes(
    schemas: Path, tmp_path: Path
) -> None:
    assert problems(schemas, manifest("indexed-job.yaml"), tmp_path) == ""


@pytest.mark.slow
def test_the_check_sees_a_field_that_does_not_exist(schemas: Path, tmp_path: Path) -> None:
    documents = manifest("indexed-job.yaml")
    documents[1]["spec"]["completionsMode"] = "Indexed"
    assert "completionsMode" in problems(schemas, documents, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("file", MPI_JOBS)
def test_pods_of_an_mpijob_fit_the_schemas_of_kubernetes(
    file: str, schemas: Path, tmp_path: Path
) -> None:
    (job,) = manifest(file)
    templates = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **one["template"]}
        for one in job["spec"]["mpiReplicaSpecs"].values()
    ]
    assert len(templates) == 2
    assert problems(schemas, templates, tmp_path) == ""


@pytest.mark.parametrize("file", MPI_JOBS)
def test_an_mpijob_has_what_its_version_accepts(file: str) -> None:
    (job,) = manifest(file)
    assert misfits(job, MPI_JOB) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["spec", "slots"], 1),
        (["spec", "slotsPerWorker"], "1"),
        (["spec", "runLauncherAsWorker"], 0),
        (["spec", "mpiImplementation"], "OpenMpi"),
        (["spec", "runPolicy", "cleanPodPolicy"], "running"),
        (["spec", "runPolicy"], None),
        (["spec", "mpiReplicaSpecs", "Worker", "replicas"], 2.0),
        (["spec", "mpiReplicaSpecs", "Launcher", "restartPolicy"], "Always"),
    ],
    ids=lambda part: part[-1] if isinstance(part, list) else "",
)
def test_the_check_of_the_mpijob_sees(path: list[str], value: object) -> None:
    (job,) = manifest("mpijob.yaml")
    above = job
    for name in path[:-1]:
        above = above[name]
    above[path[-1]] = value
    (found,) = misfits(job, MPI_JOB)
    assert found.startswith("." + ".".join(path))


def images() -> list[str]:
    """Those of all manifests."""
    text = "".join(file.read_text() for file in sorted(FOLDER.glob("*.yaml")))
    return re.findall(r"image: (\S+)", text)


def test_the_manifests_name_the_image_that_is_built() -> None:
    """By a tag that is not `latest`, so that a node which has it need not ask a registry."""
    for file in (ROOT / "docs" / "deploy.md", ROOT / "deploy" / "docker" / "Dockerfile"):
        (built,) = re.findall(r"docker build .*-t (\S+)", file.read_text())
        assert re.fullmatch(r"\w+:(?!latest)\w+", built)
        assert set(images()) == {built}, file


def test_one_lost_rank_of_an_indexed_job_counts_once_however_many_pods_end() -> None:
    _, job = manifest("indexed-job.yaml")
    assert job["spec"]["backoffLimitPerIndex"] > 0
    assert job["spec"]["maxFailedIndexes"] == 0, "the others would wait for a pod that never comes"
    assert "backoffLimit" not in job["spec"]


@pytest.mark.parametrize("file", MPI_JOBS)
def test_an_mpijob_starts_as_many_ranks_as_it_has_slots(file: str) -> None:
    (job,) = manifest(file)
    replicas = job["spec"]["mpiReplicaSpecs"]
    command = command_of(container(replicas["Launcher"]["template"]))
    slots = replicas["Worker"]["replicas"] * job["spec"]["slotsPerWorker"]
    assert command[command.index("-np") + 1] == str(slots)


@pytest.mark.slow
def test_the_trainjob_fits_the_api_of_kubeflow(schemas: Path) -> None:
    """Read into its classes, which check types but forget unknown names, and back again."""
    (job,) = manifest("trainjob.yaml")
    program = (
        "import json, sys; from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob as Job; "
        "print(json.dumps(Job.from_dict(json.load(sys.stdin)).to_dict()))"
    )
    ended = subprocess.run(
        [str(schemas), "-c", program], input=json.dumps(job), capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == job


def needs_pods() -> None:
    if why := why_no_pods():
        pytest.skip(why)


def expect_training(ended: pods.Ended) -> None:
    assert ended.returncode == 0, ended.output
    assert ended.output.count("epoch 1: ") == 1, ended.output


def test_an_mpijob_trains(tmp_path: Path) -> None:
    needs_pods()
    expect_training(mpijob(tmp_path, this_machine()))


def test_an_mpijob_that_is_started_again_continues_from_its_state_folder(tmp_path: Path) -> None:
    needs_pods()
    volume = tmp_path / "volume"
    volume.mkdir()
    folder = {"HOROVOD_STATE_DIR": "/volume/state", "HOROVOD_STATE_SECONDS": "0.001"}

    def job(name: str, deed: str) -> pods.Ended:
        (tmp_path / name).mkdir()
        program = ["python", "/volume/train.py", *training(volume, deed, "state.step >= 30")[2:]]
        at, image, mounted = tmp_path / name, this_machine(), {volume: "/volume"}
        some = mpijob_pods(at, image, program=program, volume=mounted, environment=folder)
        return mpijob(at, image, some)

    first = job("first", "if (rank(), state.step) == (1, 20): os.kill(os.getpid(), signal.SIGKILL)")
    step = written_step(volume / "state")
    assert first.returncode != 0 and step in (20, 21), first.output
    second = job("second", "pass")
    assert second.returncode == 0, second.output
    assert [one.step for one in entries(second.output)] == [step, step]


def test_a_pod_of_an_elastic_mpijob_is_deleted_and_replaced(tmp_path: Path) -> None:
    """Its rank leaves in time, the other one goes on, and a new one joins from the new pod."""
    needs_pods()
    (job,) = manifest("elastic-mpijob.yaml")
    template = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    (mount,) = container(template)["volumeMounts"]
    volume = tmp_path / "volume"
    volume.mkdir()
    some = mpijob_pods(
        tmp_path, this_machine(), "elastic-mpijob.yaml", volume={volume: mount["mountPath"]}
    )
    *workers, launcher = range(len(some))
    command = some[launcher].command
    assert command[command.index("--state-dir") + 1].startswith(mount["mountPath"] + "/")
    grace = int(command[command.index("--grace-seconds") + 1])
    assert grace < template["spec"]["terminationGracePeriodSeconds"]
    with pods.running(tmp_path, this_machine(), some) as running:
        running.await_text(launcher, " ranks", count=2)
        assert running.delete(workers[1]) == 128 + signal.SIGTERM
        running.await_text(launcher, "is rank 0 of 1")
        running.start(workers[1])
        running.await_text(launcher, "is rank 1 of 2", count=2)
        running.processes[launcher].terminate()
    text = running.logs[launcher].read_text()
    assert "leaves at a commit; the job goes on without it" in text, text
    epochs = [int(number) for number in re.findall(r"epoch (\d+): accuracy", text)]
    assert epochs == list(range(1, len(epochs) + 1)), text


def trainjob_pods(command: list[str], more: dict[str, str], files: dict[Path, str]) -> list[Pod]:
    """Those of trainjob.yaml. `command`: torchrun's. `more`: variables."""
    (job,) = manifest("trainjob.yaml")
    trainer, name = job["spec"]["trainer"], job["metadata"]["name"]
    count = trainer["numNodes"]
    names = [f"{name}-node-0-{index}.{name}" for index in range(count)]
    common = variables_of(trainer) | {
        "PET_NNODES": str(count),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_MASTER_ADDR": names[0],
        "PET_MASTER_PORT": "29500",
        **more,
    }
    return [
        Pod(one, command, common | {"PET_NODE_RANK": str(index)}, files)
        for index, one in enumerate(names)
    ]


def test_a_trainjob_trains(tmp_path: Path) -> None:
    needs_pods()
    (job,) = manifest("trainjob.yaml")
    some = trainjob_pods(shortened(command_of(job["spec"]["trainer"])), {}, {})
    expect_training(pods.run(tmp_path, this_machine(), some, list(range(len(some)))))


def indexed_pods(folder: Path) -> list[Pod]:
    """Those of indexed-job.yaml, with a secret as it is mounted."""
    service, job = manifest("indexed-job.yaml")
    template, count = job["spec"]["template"], job["spec"]["completions"]
    one = container(template)
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    secret = folder / "secret"
    secret.mkdir()
    (secret / "key").write_text("a secret of at least sixteen bytes")
    (secret / "key").chmod(0o440)
    files = {secret: one["volumeMounts"][0]["mountPath"]}
    variables = variables_of(one)
    assert variables["PODS"] == str(count)
    return [
        Pod(
            f"{job['metadata']['name']}-{index}.{service['metadata']['name']}",
            shortened(command_of(one)),
            variables | {"JOB_COMPLETION_INDEX": str(index)},
            files,
        )
        for index in range(count)
    ]


def test_an_indexed_job_trains(tmp_path: Path) -> None:
    needs_pods()
    some = indexed_pods(tmp_path)
    expect_training(pods.run(tmp_path, this_machine(), some, list(range(len(some)))))


@pytest.mark.parametrize("kind", ["trainjob", "indexed"])
def test_when_a_pod_is_deleted_all_leave_at_a_commit_and_the_next_start_continues(
    kind: str, tmp_path: Path
) -> None:
    needs_pods()
    volume = tmp_path / "volume"
    volume.mkdir()
    folder = {"HOROVOD_STATE_DIR": "/volume/state", "HOROVOD_STATE_SECONDS": "1000"}

    def job(name: str, deed: str, end: str) -> tuple[Path, list[Pod]]:
        at, files = tmp_path / name, {volume: "/volume"}
        at.mkdir()
        program = ["/volume/train.py", *training(volume, deed, end)[2:]]
        if kind == "trainjob":
            return at, trainjob_pods(["torchrun", *program], folder, files)
        return at, [
            replace(
                pod,
                command=[pod.command[0], "python", *program],
                environment={**pod.environment, **folder},
                files={**pod.files, **files},
            )
            for pod in indexed_pods(at)
        ]

    at, some = job("first", "if state.step == 10: print('is at 10', flush=True)", "False")
    with pods.running(at, this_machine(), some) as running:
        running.await_text(0, "is at 10")
        assert running.delete(1) == (1 if kind == "trainjob" else 128 + signal.SIGTERM)
        assert running.processes[0].wait(timeout=pods.SECONDS) != 0
    step = written_step(volume / "state")
    assert step > 10 and parts_of_newest(volume / "state") == len(some)
    at, some = job("second", "pass", f"state.step >= {step + 20}")
    second = pods.run(at, this_machine(), some, list(range(len(some))))
    assert second.returncode == 0, second.output
    assert [one.step for one in entries(second.output)] == [step] * len(some)

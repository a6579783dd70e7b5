"""Derives findings from the facts of one host. Pure: each rule is a function of Facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from horovod.doctor import gpus
from horovod.doctor.facts import GIB, MIB, Facts, Framework, amount, version_numbers
from horovod.doctor.finding import Finding, advice, ok, problem

#: Each rank has sockets to its peers, some files of its framework, and its data.
_FILES_OF_A_RANK = 256
_FILES_A_PEER = 4
#: Threads of a framework: one pool per kind of work, each with one thread per core.
_THREADS_OF_A_RANK = 32
_POOLS = 2
#: Memory of a small model with its framework. With less, the kernel kills ranks.
_MEMORY_OF_A_RANK = GIB
#: Docker's default is 64 MiB; workers of data loaders store whole batches there.
_LITTLE_SHM = GIB
_NO_SHM = 64 * MIB
#: Of all packets; a higher rate indicates a failing cable or port.
_MANY_ERRORS = 1e-4
_OLDEST = {"torch": (2, 1), "tensorflow": (2, 15), "jax": (0, 7, 2), "mxnet": (1, 9)}


def findings(facts: Facts) -> list[Finding]:
    return [finding for rule in RULES for finding in rule(facts)]


# ---- what is installed -------------------------------------------------------------------------


def _installation(facts: Facts) -> Iterator[Finding]:
    yield ok(f"Python {facts.python} ({facts.interpreter})")
    pip = f"{facts.interpreter} -m pip install"
    if facts.native_problem:
        yield problem(
            f"the compiled library of Horovod does not load: {facts.native_problem}",
            "no rank can start on this host",
            f"{pip} --no-cache-dir --force-reinstall horovod",
        )
    else:
        yield ok(f"Horovod {facts.horovod}")
    if facts.other_python:
        yield advice(
            f"{facts.other_python}, the `python` of PATH, has no Horovod",
            f"scripts started by it cannot `import horovod`; those of {facts.interpreter} can",
            f'export PATH="{facts.interpreter.rpartition("/")[0]}:$PATH"',
        )
    if not facts.has_cloudpickle:
        yield advice(
            "the package cloudpickle is not installed",
            "horovod.run, notebooks and broadcast_object use it to send objects",
            f"{pip} cloudpickle",
        )


def _frameworks(facts: Facts) -> Iterator[Finding]:
    if not any(one.adapter for one in facts.frameworks):
        yield advice(
            "no framework is installed for this Python",
            "programs in C and C++ need none; scripts need PyTorch, TensorFlow, Keras or JAX",
            f'{facts.interpreter} -m pip install "torch>=2.1"',
        )
    for one in facts.frameworks:
        oldest = _OLDEST.get(one.name, ())
        if one.at_exit:
            yield _fails_at_exit(one, facts.interpreter)
        elif one.is_slow:
            yield _slow(one, facts.interpreter)
        elif one.problem and one.version and version_numbers(one.version) < oldest:
            yield _too_old(one, facts.interpreter, ".".join(map(str, oldest)))
        elif one.problem:
            yield _does_not_load(one, facts)
        elif one.adapter:
            loads = f"{one.adapter} loads" if one.is_loaded else "not loaded"
            yield ok(f"{one.name} {one.version}: {loads}")


def _fails_at_exit(one: Framework, interpreter: str) -> Finding:
    return advice(
        f"{one.name} {one.version}: {one.problem}",
        "a script may fail like this after its work is done, so that its job fails",
        f"to see where: {interpreter} -X faulthandler -c 'import {one.failed}'",
    )


def _slow(one: Framework, interpreter: str) -> Finding:
    return advice(
        f"{one.name} {one.version}: {one.problem}",
        "either it hangs, or every rank waits this long at each start, e.g. if many read one "
        "file system at once",
        f"to see what takes the time: {interpreter} -X importtime -c 'import {one.failed}'",
    )


def _too_old(one: Framework, interpreter: str, oldest: str) -> Finding:
    return problem(
        f"{one.name} {one.version} is too old for {one.adapter}: {one.problem}",
        f"{one.adapter} needs {one.name} {oldest} or later",
        f'{interpreter} -m pip install --upgrade "{one.name}>={oldest}"',
    )


def _does_not_load(one: Framework, facts: Facts) -> Finding:
    pip = f"{facts.interpreter} -m pip install"
    name = f"{one.name} {one.version}".rstrip()
    if one.failed != one.adapter:
        fix = f"{pip} --force-reinstall {one.name}"
        missing = re.search(r"No module named '(\w+)'", one.problem)
        if one.name == "keras" and missing and missing[1] in ("tensorflow", "jax", "torch"):
            fix = f"{pip} {missing[1]}   (or choose another: export KERAS_BACKEND=torch)"
        return problem(
            f"{name} does not load: {one.problem}", "scripts that import it fail too", fix
        )
    return problem(
        f"{one.adapter} does not load with {name}: {one.problem}",
        f"scripts that import it fail, although {one.name} itself loads",
        f"{pip} --no-cache-dir --force-reinstall horovod",
        f'to see the full error: {facts.interpreter} -c "import {one.adapter}"',
    )


def _variables(facts: Facts) -> Iterator[Finding]:
    for name, near in facts.strange_variables:
        yield advice(
            f"the variable {name} is set, but is not read",
            f"{near} was probably meant, which now has its default"
            if near
            else "the setting has no effect; docs/knobs.md lists all settings",
            *([f'export {near}="${name}"; unset {name}'] if near else [f"unset {name}"]),
        )


# ---- limits ------------------------------------------------------------------------------------


def _open_files(facts: Facts) -> Iterator[Finding]:
    ranks = max(facts.ranks, facts.slots, 1)
    needed = _FILES_OF_A_RANK + _FILES_A_PEER * ranks
    if facts.open_files is None or facts.open_files >= needed:
        shown = "unlimited" if facts.open_files is None else str(facts.open_files)
        yield ok(f"open files {shown}")
        return
    most = facts.open_files_most
    wanted = max(needed, 4096)
    yield problem(
        f"a process may open {facts.open_files} files; a rank of {ranks} needs {needed}",
        "ranks end with 'Too many open files' when they connect or read data",
        f"ulimit -n {wanted if most is None else min(wanted, most)}"
        if most is None or most >= needed
        else f"in /etc/security/limits.conf: '* hard nofile {wanted}', then log in again",
    )


def _processes(facts: Facts) -> Iterator[Finding]:
    slots = max(facts.slots, 1)
    needed = slots * (_THREADS_OF_A_RANK + _POOLS * facts.cores)
    if facts.processes is None or facts.processes >= needed:
        shown = "unlimited" if facts.processes is None else str(facts.processes)
        yield ok(f"threads {shown}")
        return
    yield problem(
        f"at most {facts.processes} processes and threads are allowed; {slots} "
        f"rank{'' if slots == 1 else 's'} on {facts.cores} cores may start {needed}",
        "frameworks fail with 'Resource temporarily unavailable' when they start threads",
        f"ulimit -u {needed}",
        "in a container: docker run --pids-limit=-1 ...",
    )


def _cores(facts: Facts) -> Iterator[Finding]:
    slots = max(facts.slots, 1)
    said = f"{facts.cores} core{'' if facts.cores == 1 else 's'}"
    quota = facts.core_quota
    if quota is not None and quota < min(slots, facts.cores):
        yield problem(
            f"the container may use {quota:g} CPUs for {slots} rank{'' if slots == 1 else 's'}",
            "a rank that exceeds its share is suspended for up to 0.1 s at a time, and all "
            "other ranks wait for it",
            f"docker run --cpus={slots} ..., in Kubernetes resources.limits.cpu: {slots}; or "
            "fewer ranks",
        )
    elif facts.cores < slots:
        yield advice(
            f"{slots} ranks share {said}",
            "the host is oversubscribed: more ranks than cores are not faster",
            f"use at most as many slots as cores: -H {facts.hostname}:{facts.cores}",
        )
    else:
        yield ok(said + (f", of which {quota:g} at a time" if quota is not None else ""))
    if facts.omp_threads * slots > facts.cores and slots > 1:
        threads = max(1, facts.cores // slots)
        yield advice(
            f"OMP_NUM_THREADS={facts.omp_threads} on each of {slots} ranks, with {said}",
            "threads of different ranks compete for the same cores",
            f"export OMP_NUM_THREADS={threads}",
        )


def _memory(facts: Facts) -> Iterator[Finding]:
    slots = max(facts.slots, 1)
    limit, free = facts.memory_limit_bytes, facts.available_bytes
    usable = min(free, limit) if limit is not None else free
    shared = slots * facts.staging_bytes
    if usable < 2 * shared:
        yield problem(
            f"{amount(usable)} of memory are free; the ranks need {amount(shared)} of buffers to "
            "exchange data",
            "the kernel kills ranks when memory runs out",
            "start fewer ranks here, or reduce the buffers: export HOROVOD_STAGING_BYTES=65536",
        )
    elif usable < slots * _MEMORY_OF_A_RANK:
        whose = "the container may use" if usable == limit else "there are"
        yield advice(
            f"{whose} {amount(usable)} of memory for {slots} rank{'' if slots == 1 else 's'}",
            "a framework alone takes half a GiB per rank, and the kernel kills ranks that "
            "do not fit",
            f"docker run --memory={slots * 2}g ..."
            if usable == limit
            else "start fewer ranks here",
        )
    else:
        yield ok(f"memory {amount(usable)}")


def _shared_memory(facts: Facts) -> Iterator[Finding]:
    """Horovod does not use /dev/shm: its shared memory has no file. NCCL and data loaders do."""
    if facts.shm_free_bytes >= _LITTLE_SHM:
        yield ok(f"/dev/shm {amount(facts.shm_bytes)}")
        return
    with_torch = any(one.name == "torch" for one in facts.frameworks)
    with_nccl = len(facts.gpu.gpus) > 1
    is_full = (with_torch or with_nccl) and facts.shm_free_bytes < _NO_SHM
    users = "workers of torch's DataLoader store batches there and fail with 'Bus error'"
    if with_nccl:
        users += ", and NCCL fails with 'unhandled system error',"
    yield (problem if is_full else advice)(
        f"/dev/shm has {amount(facts.shm_free_bytes)} free of {amount(facts.shm_bytes)}",
        f"Horovod does not use it, but {users} when it is full",
        *(
            (
                "mount -o remount,size=8G /dev/shm",
                "in a container: docker run --shm-size=8g ..., in Kubernetes an emptyDir with "
                "medium: Memory at /dev/shm",
            )
            if facts.shm_bytes < _LITTLE_SHM
            else ("to see what fills it: du -sh /dev/shm/* | sort -h | tail",)
        ),
    )


def _locked_memory(facts: Facts) -> Iterator[Finding]:
    if not facts.gpu.gpus and not facts.has_infiniband:
        return
    if facts.locked_bytes is None or facts.locked_bytes >= GIB:
        yield ok("locked memory sufficient")
        return
    yield advice(
        f"{amount(facts.locked_bytes)} of memory may be locked",
        "GPUs and InfiniBand need locked memory, and fail to register more than this",
        "ulimit -l unlimited",
        "for ssh: in /etc/security/limits.conf: '* - memlock unlimited'; in a container: docker "
        "run --ulimit memlock=-1 ...",
    )


def _core_files(facts: Facts) -> Iterator[Finding]:
    if facts.core_file_bytes == 0:
        yield ok("a crash leaves no core file (ulimit -c unlimited would)")


# ---- devices -----------------------------------------------------------------------------------


def _interfaces(facts: Facts) -> Iterator[Finding]:
    up = [one for one in facts.interfaces if one.is_up and not one.loopback and one.addresses]
    names = [f"{one.name} {one.addresses[0]}{_speed(one.mbit_s)}" for one in up]
    yield ok(f"interfaces {', '.join(names)}" if names else "no interface but loopback")
    for one in up:
        if one.packets > 10000 and one.errors > one.packets * _MANY_ERRORS:
            yield advice(
                f"{one.name} has received {one.errors} of {one.packets} packets with errors",
                "each is retransmitted after a pause in which all ranks wait; a cable or port may "
                "be failing",
                f"to see which: ip -s -s link show {one.name}",
            )


def _speed(mbit_s: int) -> str:
    return f" ({mbit_s / 1000:g} Gbit/s)" if mbit_s else ""


def _mpi(facts: Facts) -> Iterator[Finding]:
    if not facts.mpi:
        yield ok("no mpirun (not needed by horovodrun)")
        return
    yield ok(f"mpirun: {', '.join(facts.mpi)}; PMIx: {facts.pmix or 'not found'}")
    unknown = [one for one in facts.mpi[:1] if one.startswith("unknown")]
    for one in unknown:
        yield advice(
            f"the mpirun of PATH is unknown: {one.partition(' ')[2]}",
            "horovodrun --mpi rejects it; horovodrun without --mpi does not need it",
            "mpirun --version",
        )
    if facts.mpi[0].startswith("Open MPI") and not facts.pmix:
        yield advice(
            "the loader does not find libpmix",
            "ranks that mpirun starts on several hosts need it to connect; Open MPI's own copy "
            "is found while mpirun runs, if it has one",
            "apt-get install libpmix2",
        )


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _installation,
    _frameworks,
    _variables,
    _open_files,
    _processes,
    _cores,
    _memory,
    _shared_memory,
    _locked_memory,
    _core_files,
    _interfaces,
    gpus.findings,
    _mpi,
)

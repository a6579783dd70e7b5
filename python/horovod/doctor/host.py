"""What follows from the facts of one host. Pure: each rule is a function of Facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from horovod.doctor.facts import GIB, MIB, Facts, Framework, version_numbers
from horovod.doctor.finding import Finding, advice, ok, problem

#: Each rank has sockets to its peers, a few files of its framework, and its data.
_FILES_OF_A_RANK = 256
_FILES_A_PEER = 4
#: Threads of a framework: a pool for each kind of work, as many as cores in each.
_THREADS_OF_A_RANK = 32
_POOLS = 2
#: A small model with its framework; below, the kernel ends ranks.
_MEMORY_OF_A_RANK = GIB
#: Docker gives 64 MiB; a worker of a data loader puts whole batches there.
_LITTLE_SHM = GIB
_NO_SHM = 64 * MIB
#: Of all packets; more is a cable or a port that is failing.
_MANY_ERRORS = 1e-4
_OLDEST = {"torch": (2, 1), "tensorflow": (2, 15)}


def findings(facts: Facts) -> list[Finding]:
    return [finding for rule in RULES for finding in rule(facts)]


def amount(count: int) -> str:
    if count < GIB:
        return f"{count / MIB:.0f} MiB"
    return f"{count / GIB:.1f} GiB" if count < 10 * GIB else f"{count / GIB:.0f} GiB"


# ---- what is installed -------------------------------------------------------------------------


def _installation(facts: Facts) -> Iterator[Finding]:
    yield ok(f"Python {facts.python} ({facts.interpreter})")
    pip = f"{facts.interpreter} -m pip install"
    if facts.native_problem:
        yield problem(
            f"the compiled part of Horovod does not load: {facts.native_problem}",
            "no rank can start on this host",
            f"{pip} --no-cache-dir --force-reinstall horovod",
        )
    else:
        yield ok(f"Horovod {facts.horovod}")
    if facts.other_python:
        yield advice(
            f"{facts.other_python}, which `python` means here, has no Horovod",
            f"a script that it starts cannot `import horovod`; {facts.interpreter} can",
            f'export PATH="{facts.interpreter.rpartition("/")[0]}:$PATH"',
        )
    if not facts.has_cloudpickle:
        yield advice(
            "the package cloudpickle is not installed",
            "horovod.run, notebooks and broadcast_object send what it has packed",
            f"{pip} cloudpickle",
        )


def _frameworks(facts: Facts) -> Iterator[Finding]:
    if not any(one.adapter for one in facts.frameworks):
        yield advice(
            "no framework is installed for this Python",
            "programs in C and C++ need none; a script needs PyTorch, TensorFlow or Keras",
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
        elif one.name == "jax":
            yield ok(f"jax {one.version}: through horovod.keras, with KERAS_BACKEND=jax")
        elif one.name == "mxnet":
            yield advice(
                f"mxnet {one.version}: there is no horovod.mxnet in this version",
                "scripts that import it cannot run",
                "keep such scripts on the package that they run with now",
            )


def _fails_at_exit(one: Framework, interpreter: str) -> Finding:
    return advice(
        f"{one.name} {one.version}: {one.problem}",
        "a script may end like this after its work is done, and its job counts as failed",
        f"to see where: {interpreter} -X faulthandler -c 'import {one.failed}'",
    )


def _slow(one: Framework, interpreter: str) -> Finding:
    return advice(
        f"{one.name} {one.version}: {one.problem}",
        "either it hangs, or each rank waits as long at every start, as it does when many read one "
        "file system at a time",
        f"to see what takes so long: {interpreter} -X importtime -c 'import {one.failed}'",
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
            fix = f"{pip} {missing[1]}   (or name another: export KERAS_BACKEND=torch)"
        return problem(f"{name} does not load: {one.problem}", "nor does any script of it", fix)
    return problem(
        f"{one.adapter} does not load with {name}: {one.problem}",
        f"a script that imports it ends at once, though {one.name} itself loads",
        f"{pip} --no-cache-dir --force-reinstall horovod",
        f'to see all of it: {facts.interpreter} -c "import {one.adapter}"',
    )


def _variables(facts: Facts) -> Iterator[Finding]:
    for name, near in facts.strange_variables:
        yield advice(
            f"the variable {name} is set, and nothing reads it",
            f"it is nearly {near}, which is at its default now"
            if near
            else "settings that are not read look as if they worked; docs/knobs.md lists all",
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
        f"a process may have {facts.open_files} open files, of {needed} for a rank among {ranks}",
        "ranks end with 'Too many open files' when they connect or read data",
        f"ulimit -n {wanted if most is None else min(wanted, most)}"
        if most is None or most >= needed
        else f"in /etc/security/limits.conf: '* hard nofile {wanted}', then log in anew",
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
        "frameworks end with 'Resource temporarily unavailable' when they start their threads",
        f"ulimit -u {needed}",
        "in a container: docker run --pids-limit=-1 ...",
    )


def _cores(facts: Facts) -> Iterator[Finding]:
    slots = max(facts.slots, 1)
    said = f"{facts.cores} core{'' if facts.cores == 1 else 's'}"
    quota = facts.core_quota
    if quota is not None and quota < min(slots, facts.cores):
        yield problem(
            f"the container may use {quota:g} cores' time for {slots} "
            f"rank{'' if slots == 1 else 's'}",
            "a rank that has used up its share stands still for up to 0.1 s at a time, and all "
            "others wait for it",
            f"docker run --cpus={slots} ..., in Kubernetes resources.limits.cpu: {slots}; or "
            "fewer ranks",
        )
    elif facts.cores < slots:
        yield advice(
            f"{slots} ranks share {said}",
            "they take turns, so that more ranks are not faster than fewer",
            f"as many slots as cores: -H {facts.hostname}:{facts.cores}",
        )
    else:
        yield ok(said + (f", of which {quota:g} at a time" if quota is not None else ""))
    if facts.omp_threads * slots > facts.cores and slots > 1:
        threads = max(1, facts.cores // slots)
        yield advice(
            f"OMP_NUM_THREADS={facts.omp_threads} on each of {slots} ranks, with {said}",
            "threads of different ranks push each other off the cores",
            f"export OMP_NUM_THREADS={threads}",
        )


def _memory(facts: Facts) -> Iterator[Finding]:
    slots = max(facts.slots, 1)
    limit, free = facts.memory_limit_bytes, facts.available_bytes
    usable = min(free, limit) if limit is not None else free
    shared = slots * facts.staging_bytes
    if usable < 2 * shared:
        yield problem(
            f"{amount(usable)} of memory, of which the ranks share {amount(shared)} only to "
            "exchange data",
            "the kernel ends ranks with SIGKILL when it runs out",
            "fewer ranks here, or less each: export HOROVOD_STAGING_BYTES=65536",
        )
    elif usable < slots * _MEMORY_OF_A_RANK:
        whose = "the container may use" if usable == limit else "there are"
        yield advice(
            f"{whose} {amount(usable)} of memory for {slots} rank{'' if slots == 1 else 's'}",
            "a framework alone takes half a GiB on each, and the kernel ends with SIGKILL what "
            "does not fit",
            f"docker run --memory={slots * 2}g ..." if usable == limit else "fewer ranks here",
        )
    else:
        yield ok(f"memory {amount(usable)}")


def _shared_memory(facts: Facts) -> Iterator[Finding]:
    """We have none of it: our shared memory has no file. Data loaders do."""
    if facts.shm_free_bytes >= _LITTLE_SHM:
        yield ok(f"/dev/shm {amount(facts.shm_bytes)}")
        return
    with_torch = any(one.name == "torch" for one in facts.frameworks)
    find = problem if with_torch and facts.shm_free_bytes < _NO_SHM else advice
    small = facts.shm_bytes < _LITTLE_SHM
    yield find(
        f"/dev/shm has {amount(facts.shm_free_bytes)} free of {amount(facts.shm_bytes)}",
        "Horovod needs none of it, but workers of torch's DataLoader put their batches there and "
        "end with 'Bus error' when it is full",
        *(
            (
                "mount -o remount,size=8G /dev/shm",
                "in a container: docker run --shm-size=8g ..., in Kubernetes an emptyDir with "
                "medium: Memory at /dev/shm",
            )
            if small
            else ("what fills it: du -sh /dev/shm/* | sort -h | tail",)
        ),
    )


def _locked_memory(facts: Facts) -> Iterator[Finding]:
    if not facts.gpus and not facts.has_infiniband:
        return
    if facts.locked_bytes is None or facts.locked_bytes >= GIB:
        yield ok("locked memory enough")
        return
    yield advice(
        f"{amount(facts.locked_bytes)} of memory may be locked",
        "GPUs and InfiniBand read only memory that is locked, and fail to register more",
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
                "each is sent again after a pause in which all ranks wait; a cable or a port is "
                "failing",
                f"to see which: ip -s -s link show {one.name}",
            )


def _speed(mbit_s: int) -> str:
    return f" ({mbit_s / 1000:g} Gbit/s)" if mbit_s else ""


def _gpus(facts: Facts) -> Iterator[Finding]:
    if facts.gpu_problem:
        yield problem(
            f"there is a GPU, but its driver does not answer: {facts.gpu_problem}",
            "frameworks fall back to the CPU or end when they look for it",
            "nvidia-smi   (a driver that was updated needs: rmmod nvidia_uvm nvidia && modprobe "
            "nvidia, or a restart)",
        )
    if not facts.gpus:
        return
    kinds = ", ".join(f"{facts.gpus.count(kind)} x {kind}" for kind in dict.fromkeys(facts.gpus))
    yield ok(f"{kinds}, driver {facts.gpu_driver}, NCCL {facts.nccl or 'not found'}")
    yield advice(
        f"{len(facts.gpus)} GPU{'' if len(facts.gpus) == 1 else 's'}: this version reduces tensors "
        "in host memory only",
        "an operation on a tensor of a GPU is refused",
        "os.environ['CUDA_VISIBLE_DEVICES'] = '' in the script, before it imports the framework "
        "(it runs on the CPU), or tensor.cpu()",
    )
    if not facts.nccl:
        yield advice(
            "no NCCL is found, neither in the packages of this Python nor by the loader",
            "torch.distributed and strategies of TensorFlow reduce on GPUs by it; Horovod itself "
            "does without",
            f"{facts.interpreter} -m pip install nvidia-nccl-cu{_cuda_major(facts)}",
        )
    if 0 < len(facts.gpus) < facts.slots:
        yield advice(
            f"{facts.slots} ranks for {len(facts.gpus)} GPUs",
            "scripts that choose the GPU of their local rank fail on the ranks beyond",
            f"as many slots as GPUs: -H {facts.hostname}:{len(facts.gpus)}",
        )


def _cuda_major(facts: Facts) -> int:
    """What torch was built with (2.9.1+cu130); 12, which all drivers of these years take, where its
    version says nothing."""
    builds = [re.search(r"\+cu(\d+)\d$", one.version) for one in facts.frameworks]
    return next((int(build[1]) for build in builds if build), 12)


def _mpi(facts: Facts) -> Iterator[Finding]:
    if not facts.mpi:
        yield ok("no mpirun (horovodrun needs none)")
        return
    yield ok(f"mpirun: {', '.join(facts.mpi)}; PMIx: {facts.pmix or 'not found'}")
    unknown = [one for one in facts.mpi[:1] if one.startswith("unknown")]
    for one in unknown:
        yield advice(
            f"the mpirun of PATH is none that is known: {one.partition(' ')[2]}",
            "horovodrun --mpi refuses it; horovodrun without --mpi does not need it",
            "mpirun --version",
        )
    if facts.mpi[0].startswith("Open MPI") and not facts.pmix:
        yield advice(
            "libpmix is not where the loader looks",
            "ranks that mpirun starts on several hosts find each other by it; Open MPI's own copy "
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
    _gpus,
    _mpi,
)

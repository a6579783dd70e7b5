"""The peers, and this project, between hosts that are network namespaces."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import options, peers, results
from harness.namespaces import NETWORK, WIRE, address, inside, name
from harness.peers import PINNED, Peer
from harness.places import PEERS

ENTER = str(Path(__file__).with_name("enter.py"))


def contestants(arguments: argparse.Namespace, hosts: int) -> list[Peer]:
    chosen = [
        peer for peer in all_peers(hosts) if options.is_asked_for(peer.short, arguments.peers)
    ]
    found = [ours(arguments.ours.resolve(), results.OURS, hosts), *chosen]
    if before := options.build_before(arguments):
        found.append(ours(before, results.BEFORE, hosts))
    return found


def from_first(launcher: Callable[[int], Sequence[str]]) -> Callable[[int], list[str]]:
    """Launchers run on the first host."""
    return lambda np: inside(name(0), launcher(np))


def ours(build: Path, label: str, hosts: int) -> Peer:
    across = str(build / "bench" / "bench_across")
    places = ",".join(name(host) for host in range(hosts))
    return Peer(
        label,
        "ours",
        "net",
        lambda: build / "bench" / "bench_ours",
        from_first(lambda np: [across, str(np), address(0), places]),
    )


def openmpi(version: int, hosts: int) -> Callable[[int], list[str]]:
    def launcher(np: int) -> list[str]:
        each = np // hosts
        slots = ",".join(f"{address(host)}:{each}" for host in range(hosts))
        network = f"{NETWORK}.0/24"
        if version == 4:
            mpirun = ["mpirun.openmpi", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", ENTER]
            mpirun += ["--mca", "oob_tcp_if_include", network, "--mca", "btl", "self,vader,tcp"]
        else:
            mpirun = [str(PEERS / "ompi5" / "bin" / "mpirun"), "--map-by", "slot:OVERSUBSCRIBE"]
            mpirun += ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", ENTER]
            mpirun += ["--prtemca", "prte_if_include", network, "--mca", "btl", "self,sm,tcp"]
        mpirun += ["--allow-run-as-root", "--bind-to", "none", "--mca", "pml", "ob1"]
        mpirun += ["--mca", "btl_tcp_if_include", network]
        mpirun += ["--mca", "mpi_yield_when_idle", str(int(peers.crowded(np)))]
        for variable, value in PINNED.items():
            mpirun += ["-x", f"{variable}={value}"]
        return [*mpirun, "-np", str(np), "--host", slots]

    return from_first(launcher)


def hydra(mpiexec: str, hosts: int) -> Callable[[int], list[str]]:
    def launcher(np: int) -> list[str]:
        places = ",".join(address(host) for host in range(hosts))
        how = ["-launcher", "ssh", "-launcher-exec", ENTER, "-hosts", places]
        return [mpiexec, *how, "-ppn", str(np // hosts), "-np", str(np)]

    return from_first(launcher)


def spawned(hosts: int) -> Callable[[int], list[str]]:
    places = [name(host) for host in range(hosts)]

    def launcher(np: int) -> list[str]:
        *command, end = peers.spawn(np)
        return [*command, "--address", address(0), "--in", *places, end]

    return launcher


MPICH5_NET = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}


def intel_env(np: int) -> dict[str, str]:
    over = {"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": WIRE}
    return {**peers.intel_env(np), **over, "I_MPI_PIN": "0", **PINNED}


def oneccl_env(np: int) -> dict[str, str]:
    over = {"FI_TCP_IFACE": WIRE, "CCL_KVS_IFACE": WIRE}
    return {**peers.oneccl_env(tcp=True)(np), **over}


def all_peers(hosts: int) -> list[Peer]:
    mpich5 = str(PEERS / "mpich5" / "bin" / "mpiexec")
    impi = str(PEERS / "ccl" / "bin" / "mpiexec.hydra")

    def gloo(algorithm: str) -> Callable[[int], dict[str, str]]:
        return lambda np: {"BENCH_ALGORITHM": algorithm, "BENCH_INTERFACE": WIRE}

    return [
        Peer("Open MPI 4", "openmpi4", "net", peers.openmpi4_program, openmpi(4, hosts)),
        Peer("Open MPI 5", "openmpi5", "net", peers.openmpi5_program, openmpi(5, hosts)),
        Peer(
            "MPICH 4",
            "mpich4",
            "net",
            peers.mpich4_program,
            hydra("mpirun.mpich", hosts),
            lambda np: {"UCX_TLS": "tcp,self", **peers.mpich_yields(np), **PINNED},
        ),
        Peer(
            "MPICH 5",
            "mpich5",
            "net",
            peers.mpich5_program,
            hydra(mpich5, hosts),
            lambda np: {**MPICH5_NET, **peers.mpich_yields(np), **PINNED},
        ),
        Peer("Intel MPI", "intelmpi", "net", peers.intelmpi_program, hydra(impi, hosts), intel_env),
        Peer("oneCCL", "oneccl", "net", peers.oneccl_program, spawned(hosts), oneccl_env),
        Peer("Gloo, ring", "gloo", "net", peers.gloo_program, spawned(hosts), gloo("ring")),
        Peer("Gloo, bcube", "gloo", "net", peers.gloo_program, spawned(hosts), gloo("bcube")),
        Peer(
            "Gloo of torch",
            "torch",
            "net",
            peers.torch_program,
            lambda np: [*spawned(hosts)(np), sys.executable],
            gloo(""),
        ),
    ]

"""Facts of hosts that are made up, for tests of what the doctor concludes from them."""

from __future__ import annotations

from horovod.doctor.facts import Facts, Framework, Interface
from horovod.doctor.finding import Finding

TORCH = Framework("torch", "2.9.1", "horovod.torch")
WIRE = Interface("eth0", ["10.0.0.1"], mtu=1500, mbit_s=10000, packets=10**6)
HEALTHY = Facts(
    horovod="1.0",
    frameworks=[TORCH, Framework("jax", "0.10.2", "horovod.jax")],
    slots=4,
    ranks=8,
    interfaces=[Interface("lo", ["127.0.0.1"], loopback=True), WIRE],
    mpi=["Open MPI (/usr/bin/mpirun)"],
    pmix="libpmix.so.2",
)


def worse(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.severity != "ok"]

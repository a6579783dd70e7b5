"""Run by ranks: the sum over all ranks, without a framework."""

import array

from horovod import _core

SUM = 1
COUNT = 100_000

_core.init()
world = _core.world()
values = array.array("f", [world.rank + 1.0]) * COUNT
address, count = values.buffer_info()
described = (address, (count,), _core.DTYPES["float32"], values)
operation = _core.Operation(_core.ALLREDUCE, SUM)
_core.finish(_core.submit_tensors(operation, "sum", described, described, None))
assert set(values) == {world.size * (world.size + 1) / 2}, set(values)
print(f"rank {world.rank} of {world.size}: sums are right")
_core.shutdown()

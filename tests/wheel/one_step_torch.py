"""Run by ranks: one step of a wrapped optimizer, after which all ranks have equal parameters."""

import torch

import horovod.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(100, 10)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
)
model(torch.randn(8, 100)).square().sum().backward()
optimizer.step()
everywhere = hvd.allgather(model.weight.detach().reshape(1, -1))
assert torch.equal(everywhere, everywhere[:1].expand_as(everywhere))
print(f"rank {hvd.rank()} of {hvd.size()}: torch {torch.__version__} trains")

"""Training that survives a change of ranks.

sampler = hvd.elastic.ElasticSampler(dataset)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)

@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, 90):
        state.sampler.set_epoch(state.epoch)
        for number, batch in enumerate(loader):
            ...
            state.sampler.record_batch(number, len(batch))
            state.commit()

train(state)
"""

from __future__ import annotations

from horovod.common._elastic_loop import run
from horovod.common.elastic_batches import ElasticBatchSampler
from horovod.torch.elastic._joining import import_what_training_needs
from horovod.torch.elastic.sampler import ElasticSampler, ElasticStream
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticBatchSampler", "ElasticSampler", "ElasticStream", "TorchState", "run"]

import_what_training_needs()

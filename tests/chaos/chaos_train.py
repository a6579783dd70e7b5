"""The training of a rank in a chaos run: notes every step, until a file appears."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from chaos_model import BATCH, SAMPLES, loss_of, network, plain_optimizer, samples, values_of
from chaos_notes import BEGINNING, COMMIT, END, EPOCH, STEP, Notebook, next_state

import horovod.torch as hvd
from horovod.common import elastic_job
from horovod.common.exceptions import HostsUpdatedInterrupt


def train(notes: Notebook, folder: Path, step_seconds: float, commit_every: int) -> None:
    """`folder/stop` ends the training at the end of an epoch. Each step sleeps, in place of work
    that would use the cores of other ranks."""
    torch.set_num_threads(1)
    model = network()
    plain = plain_optimizer(model)
    hvd.init()
    training = Training(notes, model, plain, step_seconds, commit_every)
    hvd.elastic.run(training.epochs)(training.state, folder / "stop")
    (folder / f"{hvd.rank()}.end").write_bytes(values_of(model, plain))
    notes.write(END, state=training.state.name)
    hvd.shutdown()


class Training:
    """`state.name`: see chaos_notes."""

    def __init__(
        self,
        notes: Notebook,
        model: torch.nn.Module,
        plain: torch.optim.Optimizer,
        step_seconds: float,
        commit_every: int,
    ) -> None:
        self._notes = notes
        self._model = model
        self._step_seconds = step_seconds
        self._commit_every = commit_every
        self._inputs, self._labels = samples()
        self._optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
        self._sampler = hvd.elastic.ElasticSampler(range(SAMPLES))
        self.state: Any = hvd.elastic.TorchState(
            model,
            self._optimizer,
            sampler=self._sampler,
            epoch=0,
            steps=0,
            name=BEGINNING,
            is_over=False,
        )

    def epochs(self, state: Any, stop: Path) -> None:
        loader: Any = torch.utils.data.DataLoader(
            range(SAMPLES), batch_size=BATCH, sampler=self._sampler
        )
        while not state.is_over:
            self._sampler.set_epoch(state.epoch)
            for number, batch in enumerate(loader):
                self._step(number, batch)
            repeated = self._sampler.repeated_num
            self._notes.write(EPOCH, state=state.name, epoch=state.epoch, repeated=repeated)
            state.is_over = any(hvd.allgather_object(stop.exists()))
            state.epoch += 1
            self._commit()

    def _step(self, number: int, batch: torch.Tensor) -> None:
        state, generation = self.state, elastic_job.generation()
        place = {"generation": generation, "rank": hvd.rank(), "size": hvd.size()}
        indices = batch.tolist()
        self._notes.write(STEP, before=state.name, epoch=state.epoch, indices=indices, **place)
        self._optimizer.zero_grad()
        loss_of(self._model, self._inputs[batch], self._labels[batch]).backward()
        time.sleep(self._step_seconds)
        self._optimizer.step()
        self._sampler.record_batch(number, len(batch))
        state.name = next_state(state.name, generation)
        state.steps += 1
        if state.steps % self._commit_every == 0:
            self._commit()

    def _commit(self) -> None:
        """All ranks have committed before any of them is told that the hosts have changed."""
        try:
            self.state.commit()
        except HostsUpdatedInterrupt:
            self._notes.write(COMMIT, state=self.state.name)
            raise
        self._notes.write(COMMIT, state=self.state.name)

"""Runs on every rank: `trainer_steps.py TRAINER BACKEND STEPS` trains 21 layers by a trainer, over
a backend of torch.distributed. Rank 0 prints the time between two steps as a line of JSON.

With the backend `horovod`, Lightning reduces by its strategy of this name.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

WIDTH, LAYERS, BATCH = 512, 21, 16
#: Steps before the first that counts.
WARM = 10
SIZE = int(os.environ["WORLD_SIZE"])


class Points(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(count, WIDTH, generator=generator)
        self.y = self.x.sum(dim=1, keepdim=True).sin()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[at], "y": self.y[at]}


class Model(torch.nn.Module):
    """5.3 million parameters, in the form of Transformers: returns the loss. Notes when each pass
    begins."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        widths = [WIDTH] * LAYERS + [1]
        self.layers = torch.nn.Sequential(
            *(torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        )
        self.began: list[float] = []

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        self.began.append(time.perf_counter())
        return {"loss": torch.nn.functional.mse_loss(self.layers(x), y)}


def by_lightning(backend: str, model: Model, points: Points, steps: int) -> None:
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    by_name = backend == "horovod"
    trainer = lightning.Trainer(
        strategy=backend if by_name else DDPStrategy(process_group_backend=backend),
        accelerator="cpu",
        devices=SIZE,
        max_steps=steps,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(points, batch_size=BATCH))


def by_accelerate(backend: str, model: Model, points: Points, _: int) -> None:
    import accelerate

    dist.init_process_group(backend)
    accelerator = accelerate.Accelerator(cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(points, batch_size=BATCH)
    prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(prepared(**batch)["loss"])
        optimizer.step()


def by_transformers(backend: str, model: Model, points: Points, steps: int) -> None:
    import transformers

    dist.init_process_group(backend)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            label_names=["y"],
            remove_unused_columns=False,
        )
        transformers.Trainer(model=model, args=arguments, train_dataset=points).train()


TRAINERS: dict[str, Callable[[str, Model, Points, int], None]] = {
    "Lightning": by_lightning,
    "Accelerate": by_accelerate,
    "Transformers": by_transformers,
}


def main(trainer: str, backend: str, steps: str) -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    model, count = Model(), int(steps)
    TRAINERS[trainer](backend, model, Points(count * BATCH * SIZE), count)
    began = model.began[WARM:]
    times = [b - a for a, b in itertools.pairwise(began)]
    if dist.get_rank() == 0:
        print(json.dumps({"us": statistics.median(times) * 1e6, "steps": len(model.began)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

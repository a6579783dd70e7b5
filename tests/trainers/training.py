"""Runs on every rank: `training.py FOLDER TRAINER BACKEND` trains a small model by a trainer, which
does not know hvd, and tells the loss and the parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch
import torch.distributed as dist
from rank_jobs import begin_telling, tell
from torch.utils.data import DataLoader, Dataset

STEPS = 4
BATCH = 4

Trained = tuple[float, torch.nn.Module]


class Points(Dataset[dict[str, torch.Tensor]]):
    """Points and a function of them, the same on all ranks."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(2 * STEPS * BATCH, 3, generator=generator)
        self.y = self.x.sum(dim=1, keepdim=True).sin()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[at], "y": self.y[at]}


class Model(torch.nn.Module):
    """In the form of Transformers: returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": torch.nn.functional.mse_loss(self.layers(x), y)}


def by_lightning(backend: str) -> Trained:
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.last = 0.0

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch)["loss"]
            self.last = float(loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    trainer = lightning.Trainer(
        strategy=DDPStrategy(process_group_backend=backend),
        accelerator="cpu",
        devices=2,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(Points(), batch_size=BATCH))
    return module.last, module.model


def by_accelerate(backend: str) -> Trained:
    from accelerate import Accelerator

    dist.init_process_group(backend)
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    plain = Model()
    loader = DataLoader(Points(), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(
        plain, torch.optim.SGD(plain.parameters(), lr=0.1), loader
    )
    loss = torch.zeros(())
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
    every = accelerator.gather(loss.detach().view(1))
    assert every.shape == (2,) and every[dist.get_rank()] == loss
    return float(loss), plain


def by_transformers(backend: str) -> Trained:
    from transformers import Trainer, TrainingArguments

    dist.init_process_group(backend)
    arguments: Any = TrainingArguments(
        output_dir=sys.argv[1],
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        learning_rate=0.05,
        logging_steps=STEPS,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        label_names=["y"],
        remove_unused_columns=False,
    )
    assert arguments.world_size == 2
    model = Model()
    ended = Trainer(model=model, args=arguments, train_dataset=Points()).train()
    return float(ended.training_loss), model


TRAINERS: dict[str, Callable[[str], Trained]] = {
    "lightning": by_lightning,
    "accelerate": by_accelerate,
    "transformers": by_transformers,
}


def main(folder: str, trainer: str, backend: str) -> None:
    begin_telling(folder)
    loss, model = TRAINERS[trainer](backend)
    assert dist.get_backend() == backend
    parameters = torch.cat([each.detach().flatten() for each in model.parameters()])
    tell([loss, parameters.tolist()])
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

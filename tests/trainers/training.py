"""Runs on every rank: `training.py FOLDER TRAINER BACKEND` trains a small model by a trainer, which
does not know hvd, and tells the loss and the parameters."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch
import torch.distributed as dist
from rank_jobs import begin_telling, tell
from torch.utils.data import DataLoader, Dataset, DistributedSampler

#: The line of the recipes that creates the process group. Without it, trainers ask for gloo.
BEGIN = 'torch.distributed.init_process_group("hvd")\n'
RECIPES = Path(__file__).parents[2] / "docs/from_ddp.md"
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


def run_recipe(heading: str, *changes: tuple[str, str], **names: Any) -> dict[str, Any]:
    """Runs the code below a heading of the documentation, with `names` and some words changed.
    Returns the names that there are afterwards."""
    section = RECIPES.read_text().split(f"### {heading}\n")[1]
    code = section.split("```python\n")[1].split("```")[0]
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    exec(code, names)
    return names


def module_of(optimizer: Callable[..., torch.optim.Optimizer]) -> Any:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.last = 0.0

        def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(**batch)["loss"]
            self.last = float(loss)
            return loss

        def configure_optimizers(self) -> Any:
            made = optimizer(self.parameters(), lr=0.1)
            return [made], [torch.optim.lr_scheduler.ConstantLR(made, 0.5, 2)]

    return Module()


def fit(strategy: Any, **options: Any) -> Trained:
    import lightning

    module = module_of(torch.optim.SGD)
    trainer = lightning.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=2,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module, DataLoader(Points(), batch_size=BATCH))
    return module.last, module.model


def by_lightning(backend: str) -> Trained:
    from lightning.pytorch.strategies import DDPStrategy

    return fit(DDPStrategy(process_group_backend=backend))


def by_name(backend: str) -> Trained:
    """With Lightning's own strategy for gloo."""
    import lightning

    module = module_of(torch.optim.SGD)
    loader = DataLoader(Points(), batch_size=BATCH)
    changes = [] if backend == "hvd" else [('"horovod"', '"ddp"')]
    run_recipe("Lightning", *changes, lightning=lightning, module=module, loader=loader)
    return module.last, module.model


def in_parts(backend: str) -> Trained:
    """Two batches per step, and clipped gradients."""
    strategy = "horovod" if backend == "hvd" else "ddp"
    return fit(strategy, accumulate_grad_batches=2, gradient_clip_val=0.3)


def with_options(backend: str) -> Trained:
    """Gradients in 16 bits."""
    if backend == "gloo":
        return fit("ddp")
    import horovod.torch as hvd
    from horovod.torch.lightning import HorovodStrategy

    return fit(HorovodStrategy(compression=hvd.Compression.fp16))


def in_sets(backend: str) -> Trained:
    """Each rank is a process set, so it trains alone on its own points."""
    import horovod.torch as hvd
    from horovod.torch.lightning import HorovodStrategy

    assert backend == "hvd"
    hvd.init()
    sets = [hvd.add_process_set([rank]) for rank in range(2)]
    loss, model = fit(HorovodStrategy(process_set=sets[hvd.rank()]))
    for found, wanted in zip(model.parameters(), alone(hvd.rank()).parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    return loss, model


def alone(rank: int) -> torch.nn.Module:
    """Trained as by `fit`, with the sampler that Lightning takes, but without other ranks."""
    model = Model()
    train_by_loop(model, torch.optim.SGD(model.parameters(), lr=0.05), rank)
    return model


def train_by_loop(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    points = Points()
    sampler = DistributedSampler(points, 2, rank, shuffle=True)
    for batch in DataLoader(points, BATCH, sampler=sampler):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        optimizer.step()


def by_adasum(backend: str) -> Trained:
    import horovod.torch as hvd
    from horovod.torch.lightning import HorovodStrategy

    assert backend == "hvd"
    loss, model = fit(HorovodStrategy(op=hvd.Adasum))
    parameters = list(by_hand(hvd.Adasum).parameters())
    for found, wanted in zip(model.parameters(), parameters, strict=True):
        torch.testing.assert_close(found, wanted)
    return loss, model


def by_hand(op: Any) -> torch.nn.Module:
    """Trained as by `fit`, by a loop around DistributedOptimizer."""
    import horovod.torch as hvd

    model = Model()
    plain = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=op)
    train_by_loop(model, optimizer, hvd.rank())
    return model


def lightning_unchanged(_: str) -> Trained:
    return fit("ddp")


def by_accelerate(backend: str) -> Trained:
    return accelerated(('"hvd"', repr(backend)))


def accelerate_unchanged(_: str) -> Trained:
    return accelerated((BEGIN, ""))


def accelerated(change: tuple[str, str]) -> Trained:
    import accelerate

    plain = Model()
    made = run_recipe(
        "Accelerate",
        change,
        torch=torch,
        accelerate=accelerate,
        model=plain,
        optimizer=torch.optim.SGD(plain.parameters(), lr=0.1),
        loader=DataLoader(Points(), batch_size=BATCH),
    )
    accelerator, model, optimizer = (made[n] for n in ("accelerator", "model", "optimizer"))
    assert accelerator.num_processes == 2
    loss = torch.zeros(())
    for batch in made["loader"]:
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
    every = accelerator.gather(loss.detach().view(1))
    assert every.shape == (2,) and every[dist.get_rank()] == loss
    return float(loss), plain


def by_transformers(backend: str) -> Trained:
    return transformed(('"hvd"', repr(backend)))


def transformers_unchanged(_: str) -> Trained:
    return transformed((BEGIN, ""))


def transformed(change: tuple[str, str]) -> Trained:
    import transformers

    options = {
        "output_dir": sys.argv[1],
        "max_steps": STEPS,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 0.05,
        "logging_steps": STEPS,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "label_names": ["y"],
        "remove_unused_columns": False,
    }
    model = Model()
    made = run_recipe(
        "Transformers",
        change,
        torch=torch,
        transformers=transformers,
        options=options,
        model=model,
        data=Points(),
    )
    assert made["arguments"].world_size == 2
    ended = made["trainer"].train()
    return float(ended.training_loss), model


TRAINERS: dict[str, Callable[[str], Trained]] = {
    "lightning": by_lightning,
    "lightning-by-name": by_name,
    "lightning-in-parts": in_parts,
    "lightning-with-options": with_options,
    "lightning-in-sets": in_sets,
    "lightning-adasum": by_adasum,
    "lightning-unchanged": lightning_unchanged,
    "accelerate": by_accelerate,
    "accelerate-unchanged": accelerate_unchanged,
    "transformers": by_transformers,
    "transformers-unchanged": transformers_unchanged,
}


def main(folder: str, trainer: str, backend: str) -> None:
    begin_telling(folder)
    os.chdir(folder)  # trainers write logs here
    loss, model = TRAINERS[trainer](backend)
    assert dist.get_backend() == backend
    parameters = torch.cat([each.detach().flatten() for each in model.parameters()])
    tell([loss, parameters.tolist()])
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

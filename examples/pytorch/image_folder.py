"""Trains a ResNet on a folder of images with one subfolder per class.

    python examples/pytorch/make_images.py photos
    horovodrun -np 4 python examples/pytorch/image_folder.py photos --epochs 10

A fifth of each class is kept for the test. The script prints the images per second of each epoch,
and at the end the total time and a report of all classes. Each process trains on a GPU of its own
if there are any. Images are read with Pillow, by --workers processes beside each rank.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from synthetic_benchmark import MODELS, device_of_rank, resnet, say
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm")
#: Every fifth image of a class is for the test.
TEST_PART = 5


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="has one folder of images per class")
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and process")
    parser.add_argument("--base-lr", type=float, default=0.0125, help="of one process")
    parser.add_argument("--warmup-epochs", type=float, default=1, help="to base-lr * processes")
    parser.add_argument("--workers", type=int, default=2, help="that read images, per process")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """The images of a folder, as [3, size, size] with values around 0, and their labels."""

    def __init__(self, folder: Path, size: int, is_test: bool) -> None:
        self.classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        self._size = size
        self._is_test = is_test
        self._files: list[tuple[Path, int]] = []
        for label, name in enumerate(self.classes):
            found = sorted(p for p in (folder / name).iterdir() if p.suffix.lower() in SUFFIXES)
            taken = [p for i, p in enumerate(found) if (i % TEST_PART == TEST_PART - 1) == is_test]
            self._files += [(path, label) for path in taken]
        if not self._files:
            raise SystemExit(f"{folder} needs folders with at least {TEST_PART} images each")

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self._files[index]
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB").resize((self._size, self._size)))
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 127.5 - 1
        if not self._is_test and torch.rand(()) < 0.5:
            tensor = tensor.flip(2)
        return tensor, label


def set_rate(optimizer: torch.optim.Optimizer, epoch: float, args: argparse.Namespace) -> None:
    """Sets the learning rate: linear from `base-lr` to `base-lr * processes`, then constant."""
    done = min(1.0, epoch / args.warmup_epochs) if args.warmup_epochs > 0 else 1.0
    for group in optimizer.param_groups:
        group["lr"] = args.base_lr * (1 + done * (hvd.size() - 1))


Batches = DataLoader[tuple[Tensor, int]]


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Batches,
    epoch: int,
    args: argparse.Namespace,
    device: torch.device,
) -> float:
    """Trains on this process's part once; returns the mean loss of all processes."""
    model.train()
    total_loss = torch.zeros((), device=device)
    for step, (images, labels) in enumerate(loader):
        set_rate(optimizer, epoch + step / len(loader), args)
        optimizer.zero_grad()
        images, labels = (part.to(device, non_blocking=True) for part in (images, labels))
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total_loss += loss.detach()
    return hvd.allreduce(total_loss / len(loader), name="loss").item()  # waits for the GPU


@torch.no_grad()
def confusion(model: nn.Module, loader: Batches, classes: int, device: torch.device) -> Tensor:
    """Returns counts [true class, predicted class] of all test images, a part per process."""
    model.eval()
    counts = torch.zeros(classes * classes, dtype=torch.int64)
    for images, labels in loader:
        found = model(images.to(device)).argmax(1).cpu()
        counts += torch.bincount(labels * classes + found, minlength=len(counts))
    return hvd.allreduce(counts, op=hvd.Sum, name="confusion").reshape(classes, classes)


def accuracy_of(counts: Tensor) -> float:
    return (counts.trace() / counts.sum()).item()


def report(counts: Tensor, classes: list[str]) -> str:
    """Returns precision, recall, F1 and number of images of each class."""
    right, true, found = counts.diag().double(), counts.sum(1), counts.sum(0)
    precision, recall = right / found.clamp(min=1), right / true.clamp(min=1)
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
    lines = [f"{'':>16}{'precision':>11}{'recall':>11}{'f1-score':>11}{'support':>11}"]
    for row, name in enumerate(classes):
        figures = f"{precision[row]:11.3f}{recall[row]:11.3f}{f1[row]:11.3f}{true[row]:11d}"
        lines.append(f"{name:>16}{figures}")
    lines.append(f"{'accuracy':>16}{accuracy_of(counts):33.3f}{counts.sum():11d}")
    return "\n".join(lines)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    device = device_of_rank()
    torch.manual_seed(args.seed)
    if "OMP_NUM_THREADS" not in os.environ:  # horovodrun sets it, others do not
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // hvd.local_size()))

    training, test = (ImageFolder(args.folder, args.image_size, part) for part in (False, True))
    sampler = DistributedSampler(training, hvd.size(), hvd.rank(), seed=args.seed)
    pinned = device.type == "cuda"  # for copies that the host does not wait for
    common = {"num_workers": args.workers, "pin_memory": pinned}
    loader: Batches = DataLoader(training, args.batch_size, sampler=sampler, **common)
    # Each test image once, also if their number is no multiple of that of processes.
    mine = torch.utils.data.Subset(test, range(hvd.rank(), len(test), hvd.size()))
    test_loader: Batches = DataLoader(mine, args.batch_size, **common)

    model = resnet(args.model, len(training.classes), args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.base_lr, 0.9, weight_decay=5e-5)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    say(f"{len(training)} images of {len(training.classes)} classes, {hvd.size()} processes")
    counts, training_time = confusion(model, test_loader, len(training.classes), device), 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        loss = train_epoch(model, optimizer, loader, epoch, args, device)
        seconds = time.perf_counter() - begin
        training_time += seconds
        counts = confusion(model, test_loader, len(training.classes), device)
        speed = f"{len(training) / seconds:.1f} images/s"
        say(f"epoch {epoch + 1}: {speed}, loss {loss:.4f}, accuracy {accuracy_of(counts):.4f}")

    say(report(counts, training.classes))
    if training_time:
        say(f"Image/sec: {args.epochs * len(training) / training_time:.1f}")
    say(f"Cumulative training time: {training_time:.2f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()

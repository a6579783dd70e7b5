"""Trains a small convolutional network on Fashion-MNIST with any number of processes.

    horovodrun -np 4 python examples/pytorch/fashion_mnist.py --epochs 2

The images are from Debian's package dataset-fashion-mnist (60,000 for training, 10,000 for the
test, 28 x 28 grey values, ten classes of clothes). Numbered comments mark the five lines for
distributed training. Each process trains on a GPU of its own if there are any.

After SIGUSR1 to any process, all processes stop at the end of the epoch, which --checkpoint-dir has
saved: batch systems send it before the time limit (deploy/slurm).
"""

from __future__ import annotations

import argparse
import gzip
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm

import horovod.torch as hvd

CLASSES = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "boot",
)
DEBIAN_DATA = Path("/usr/share/datasets/fashion-mnist")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and process")
    parser.add_argument("--test-batch-size", type=int, default=1000)
    parser.add_argument("--base-lr", type=float, default=0.02, help="learning rate of one process")
    parser.add_argument(
        "--warmup-epochs", type=float, default=0.5, help="from base-lr to base-lr * processes"
    )
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument(
        "--target-accuracy", type=float, default=1.0, help="stop when the test reaches it (0 to 1)"
    )
    parser.add_argument("--train-images", type=int, help="train on this many images only")
    parser.add_argument("--data-dir", type=Path, default=DEBIAN_DATA)
    parser.add_argument(
        "--checkpoint-dir", type=Path, help="save every epoch here, and continue from the last one"
    )
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


class Net(nn.Module):
    """Two convolutions and two dense layers: 207,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dense1 = nn.Linear(32 * 7 * 7, 128)
        self.dense2 = nn.Linear(128, len(CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.dense2(functional.relu(self.dense1(x.flatten(1))))


def read_idx(path: Path, header_bytes: int) -> Tensor:
    """Returns the values of a file in MNIST's IDX format, as a flat array of bytes."""
    with gzip.open(path) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header_bytes)


def load(folder: Path, part: str) -> TensorDataset:
    """Returns images [n, 1, 28, 28], scaled to mean 0 and deviation 1, and labels [n]."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)
    return TensorDataset((images.float() / 255 - 0.286) / 0.353, labels.long())


def device_of_rank() -> torch.device:
    """Selects the GPU of this process. Returns the CPU if there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    # Some job systems show each process its own GPU only.
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


@dataclass
class Schedule:
    """Returns the learning rate: linear from `base` to `base * processes`, then constant."""

    base: float
    processes: int
    warmup_epochs: float

    def rate(self, epoch: float) -> float:
        done = min(1.0, epoch / self.warmup_epochs) if self.warmup_epochs > 0 else 1.0
        return self.base * (1 + done * (self.processes - 1))


def train_epoch(
    model: Net,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[tuple[Tensor, ...]],
    schedule: Schedule,
    epoch: int,
    device: torch.device,
) -> float:
    """Trains on this process's part once; returns the mean loss over all processes."""
    model.train()
    hidden = hvd.rank() != 0 or not sys.stderr.isatty()
    total_loss = torch.zeros((), device=device)
    for step, (images, labels) in enumerate(tqdm(loader, f"epoch {epoch + 1}", disable=hidden)):
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(epoch + step / len(loader))
        optimizer.zero_grad()
        images, labels = (part.to(device, non_blocking=True) for part in (images, labels))
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total_loss += loss.detach()
    return hvd.allreduce(total_loss / len(loader), name="loss").item()


@torch.no_grad()
def confusion(model: Net, test: TensorDataset, batch_size: int, device: torch.device) -> Tensor:
    """Returns counts [true class, predicted class] over all test images, a part per process."""
    model.eval()
    images, labels = (tensor[hvd.rank() :: hvd.size()] for tensor in test.tensors)
    counts = torch.zeros(len(CLASSES), len(CLASSES), dtype=torch.int64)
    for start in range(0, len(images), batch_size):
        found = model(images[start : start + batch_size].to(device)).argmax(1).cpu()
        pairs = labels[start : start + batch_size] * len(CLASSES) + found
        counts += torch.bincount(pairs, minlength=counts.numel()).reshape_as(counts)
    return hvd.allreduce(counts, op=hvd.Sum, name="confusion")


def accuracy_of(counts: Tensor) -> float:
    return (counts.trace() / counts.sum()).item()


def print_report(counts: Tensor) -> None:
    """Returns precision, recall, F1 and number of images of each class."""
    right, true, found = counts.diag().double(), counts.sum(1), counts.sum(0)
    precision, recall = right / found.clamp(min=1), right / true.clamp(min=1)
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-12)
    print(f"{'':>12}{'precision':>11}{'recall':>11}{'f1-score':>11}{'support':>11}")
    for row, name in enumerate(CLASSES):
        print(f"{name:>12}{precision[row]:11.3f}{recall[row]:11.3f}{f1[row]:11.3f}{true[row]:11d}")
    means = f"{precision.mean():11.3f}{recall.mean():11.3f}{f1.mean():11.3f}{counts.sum():11d}"
    print(
        f"\n{'macro avg':>12}{means}\n{'accuracy':>12}{accuracy_of(counts):33.3f}{counts.sum():11d}"
    )


def save(folder: Path, epoch: int, model: Net, optimizer: torch.optim.Optimizer) -> None:
    """Writes a temporary file and renames it, so that a checkpoint is never incomplete."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / "checkpoint.pt.new")
    os.replace(folder / "checkpoint.pt.new", folder / "checkpoint.pt")


def resume(folder: Path, model: Net, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Loads the checkpoint, if there is one; returns the number of finished epochs."""
    if not (folder / "checkpoint.pt").is_file():
        return 0
    state = torch.load(folder / "checkpoint.pt", map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"going on after epoch {state['epoch']}", flush=True)
    return int(state["epoch"])


class StopRequest:
    """Records whether this process got SIGUSR1."""

    def __init__(self) -> None:
        self._seen = False
        signal.signal(signal.SIGUSR1, self._note)

    def _note(self, *_: object) -> None:
        self._seen = True

    def reached_any_rank(self) -> bool:
        """Returns the same value on all ranks, so that they stop at the same epoch."""
        return bool(hvd.allreduce(torch.tensor(int(self._seen)), op=hvd.Max, name="stop").item())


def main() -> None:
    arguments = parse_arguments()
    stop = StopRequest()
    hvd.init()  # 1
    device = device_of_rank()
    torch.manual_seed(arguments.seed)
    if "OMP_NUM_THREADS" not in os.environ:  # horovodrun sets it, others do not
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // hvd.local_size()))

    training, test = load(arguments.data_dir, "train"), load(arguments.data_dir, "t10k")
    if arguments.train_images:
        training = TensorDataset(*training[: arguments.train_images])
    sampler = DistributedSampler(training, hvd.size(), hvd.rank(), seed=arguments.seed)
    pinned = device.type == "cuda"  # for copies that the host does not wait for
    loader = DataLoader(training, arguments.batch_size, sampler=sampler, pin_memory=pinned)

    model = Net().to(device)
    schedule = Schedule(arguments.base_lr, hvd.size(), arguments.warmup_epochs)  # 2
    optimizer = torch.optim.SGD(model.parameters(), schedule.rate(0), arguments.momentum)
    done = 0
    if arguments.checkpoint_dir and hvd.rank() == 0:
        done = resume(arguments.checkpoint_dir, model, optimizer, device)
    done = hvd.broadcast_object(done, root_rank=0, name="epochs_done")

    compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression)  # 3
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # 4
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)  # 5

    images_seen, training_time = 0, 0.0
    counts = confusion(model, test, arguments.test_batch_size, device)
    for epoch in range(done, arguments.epochs):
        if accuracy_of(counts) >= arguments.target_accuracy:
            break
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        loss = train_epoch(model, optimizer, loader, schedule, epoch, device)
        seconds = time.perf_counter() - begin
        images_seen, training_time = images_seen + len(training), training_time + seconds
        counts = confusion(model, test, arguments.test_batch_size, device)
        if hvd.rank() == 0:
            speed = f"{len(training) / seconds:.0f} images/s"
            accuracy = f"test accuracy {accuracy_of(counts):.4f}"
            print(f"epoch {epoch + 1}: {speed}, loss {loss:.4f}, {accuracy}", flush=True)
            if arguments.checkpoint_dir:
                save(arguments.checkpoint_dir, epoch + 1, model, optimizer)
        if stop.reached_any_rank():
            if hvd.rank() == 0:
                print(f"stopped after epoch {epoch + 1}: SIGUSR1", flush=True)
            break

    if hvd.rank() == 0:
        print_report(counts)
        if training_time:
            print(f"Image/sec: {images_seen / training_time:.1f}")
        print(f"Cumulative training time: {training_time:.2f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()

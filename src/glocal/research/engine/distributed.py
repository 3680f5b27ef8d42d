"""Several processes, on one machine or many, under ``torchrun``: who am I, and what do we agree on.

R ranks train like one process with ``train.tasks_per_step = R``: tasks are dealt out, gradients averaged.
Seeds depend on the task and not on the rank, so evaluation rows do not depend on the number of ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from glocal.common.errors import RecipeError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """The one process that prints and writes."""
        return self.rank == 0

    def share(self, n: int) -> range:
        """Which of n things are mine: dealt out like cards."""
        return range(self.rank, n, self.size)

    def collect(self, mine: Sequence[T], n: int) -> list[T]:
        """Everybody's shares, in the order of the n things; the same list on every rank."""
        if self.size == 1:
            return list(mine)
        shares: list[Any] = [None] * self.size
        dist.all_gather_object(shares, list(mine))
        return [shares[i % self.size][i // self.size] for i in range(n)]

    def largest(self, number: int) -> int:
        """The largest of everybody's numbers: a signal that reached one rank stops all at the same step."""
        if self.size == 1:
            return number
        agreed = torch.tensor(number, device=_wire())
        dist.all_reduce(agreed, dist.ReduceOp.MAX)
        return int(agreed)

    def mean(self, terms: Mapping[str, float]) -> dict[str, float]:
        """Mean of each term over the ranks."""
        if self.size == 1:
            return dict(terms)
        values = torch.tensor(list(terms.values()), dtype=torch.float64).to(_wire(), torch.float32)
        dist.all_reduce(values)
        return dict(zip(terms, (values / self.size).tolist(), strict=True))

    def same_buffers(self, modules: Sequence[nn.Module]) -> None:
        """Give everybody the first rank's batch-norm statistics and counters: each saw its own tasks."""
        if self.size > 1:
            for module in modules:
                for buffer in module.buffers():
                    dist.broadcast(buffer, 0)

    def averaging(self, module: nn.Module) -> nn.Module:
        """The module under DistributedDataParallel: its backward pass averages gradients over the ranks."""
        return module if self.size == 1 else nn.parallel.DistributedDataParallel(module)


def world() -> World:
    """This process among its peers; alone unless ``joined`` found some."""
    return World(dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else World()


@contextmanager
def joined(device: str = "auto") -> Iterator[torch.device]:
    """Meet the other processes that torchrun started, if there are any, and yield the device of this one."""
    where = pick_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield where
        return
    if where.type == "cuda":
        where = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(where)
    dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
    try:
        yield where
    finally:
        dist.destroy_process_group()


def _wire() -> torch.device:
    """Where tensors must lie to be sent: NCCL sends from the GPU only."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


class StepLosses(nn.Module):
    """``stage.losses`` as a forward pass, which is what DistributedDataParallel hooks into."""

    def __init__(self, stage: Any):
        super().__init__()
        self.parts = nn.ModuleDict(stage.modules)
        self._losses = stage.losses

    def forward(self, step: int, part: int = 0) -> dict[str, Tensor]:
        return {name: term.float() for name, term in self._losses(step, part).items()}


def pick_device(name: str = "auto") -> torch.device:
    """``auto`` takes CUDA, then Apple's MPS, then the CPU; a device asked for by name must be there."""
    there = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    if name == "auto":
        return torch.device(next(device for device, count in there.items() if count))
    kind, _, index = name.partition(":")
    if kind not in there or (index and not index.isdecimal()) or name.endswith(":"):
        raise RecipeError(f"device must be auto, cpu, cuda or mps, or one of several such as cuda:1, got {name!r}")
    if int(index or 0) >= there[kind]:
        usable = ", ".join(f"{device} ({count})" for device, count in there.items() if count)
        raise RecipeError(f"device {name} is not available on this machine; usable here: {usable}")
    return torch.device(name)

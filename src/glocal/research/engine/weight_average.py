"""An exponential moving average of everything that learns: smoother than the last step, so it generalises better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """average <- decay * average + (1 - decay) * weights after each step; a smaller decay during the first steps.

    Counters and other integers are copied.  A decay of 0 follows the weights exactly.
    """

    def __init__(self, modules: Mapping[str, nn.Module], decay: float):
        self.decay = decay
        self._live = {f"{part}.{name}": t for part, m in modules.items() for name, t in m.state_dict().items()}
        self.tensors = {name: t.clone() for name, t in self._live.items()} if decay else {}

    def update(self, steps_before: int) -> None:
        decay = min(self.decay, (1 + steps_before) / (10 + steps_before))
        for name, average in self.tensors.items():
            if average.is_floating_point():
                average.lerp_(self._live[name], 1 - decay)
            else:
                average.copy_(self._live[name])

    def stored(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it, by names that are its own."""
        return {f"average.{name}": average for name, average in self.tensors.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, average in self.stored().items():
            average.copy_(tensors[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the modules have the averaged weights."""
        kept = {name: self._live[name].clone() for name in self.tensors}
        with torch.no_grad():
            for name, average in self.tensors.items():
                self._live[name].copy_(average)
            try:
                yield
            finally:
                for name, tensor in kept.items():
                    self._live[name].copy_(tensor)

"""Who is told about the progress of a run: a progress bar, TensorBoard, several of them, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from glocal.engine.distributed import world
from glocal_runtime.errors import GlocalError

FOLDER = "tensorboard"  # below the folder of the run
WRITE_EVERY = 10  # steps between two points of a loss curve


class Callback(Protocol):
    def step(self, step: int, steps: int, terms: Mapping[str, float]) -> None: ...

    def validated(self, step: int, metrics: Mapping[str, float], best: bool) -> None: ...


class Callbacks:
    """Tells each of them, in order."""

    def __init__(self, *each: Callback):
        self._each = each

    def step(self, step: int, steps: int, terms: Mapping[str, float]) -> None:
        for callback in self._each:
            callback.step(step, steps, terms)

    def validated(self, step: int, metrics: Mapping[str, float], best: bool) -> None:
        for callback in self._each:
            callback.validated(step, metrics, best)


class TensorBoard:
    """Writes loss terms and validation metrics for TensorBoard; of several processes, only the first one writes.

    Nothing is touched before the first step, because the run may still be refused.  After a resume the points of steps
    that are taken again give way to the new ones.
    """

    def __init__(self, run: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as missing:
            raise GlocalError(
                "--tensorboard needs the package tensorboard, which is not installed: pip install 'glocal[tensorboard]'"
            ) from missing
        self._open, self._folder = SummaryWriter, run / FOLDER
        self._writer: Any = None

    def step(self, step: int, steps: int, terms: Mapping[str, float]) -> None:
        if self._writer is None and world().first:
            self._writer = self._open(str(self._folder), purge_step=step)
        if step % WRITE_EVERY == 0 or step == steps:
            self._write("loss", terms, step)

    def validated(self, step: int, metrics: Mapping[str, float], best: bool) -> None:
        self._write("validation", metrics, step)

    def _write(self, group: str, values: Mapping[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{group}/{name}", value, step)

    def close(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            self._writer.close()

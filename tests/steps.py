"""Steps of a graph that leave a file each; some end their process at the first try."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from glocal.common.errors import DataError
from glocal.research.reproduce.graph import Step
from glocal.research.reproduce.runs import Settings


@dataclass(frozen=True)
class FileStep:
    name: str
    after: tuple[FileStep, ...] = ()
    dies: bool = False
    refuses: bool = False

    def needs(self) -> Sequence[Step]:
        return self.after

    def do(self, how: Settings, *, wait: bool = True) -> bool:
        how.out.mkdir(exist_ok=True)
        if self.refuses:
            raise DataError("no", code="no-step")
        assert all((how.out / each.name).exists() for each in self.after), "what it needs is there"
        begun = how.out / f"{self.name}-begun"
        if self.dies and not begun.exists():
            begun.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (how.out / self.name).touch()
        return True

"""What a disk or a signal does, to be put in the place of a function or beside a training."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest


def full(*given: object, **how: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file gets larger than so many bytes: the system itself refuses the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def read_only(*given: object, **how: object) -> NoReturn:
    raise OSError(errno.EROFS, "Read-only file system")


def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by what is brought to the disk and renamed from now on, in its order."""
    done: list[str] = []
    sync, rename = os.fsync, os.replace

    def fsync(opened: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{opened}')).name}")
        sync(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda *given: done.append("rename") or rename(*given))
    return done


class Stop:
    """Ends a training in a step."""

    def __init__(self, at: int, by: BaseException | None = None):
        self.at, self.by = at, by or KeyboardInterrupt()

    def step(self, step: int, steps: int, terms: Any) -> None:
        if step == self.at:
            raise self.by

    def validated(self, *_: Any) -> None: ...

"""Preparing a data set: all of it under its name, or nothing.

The work is done in a hidden folder beside the target and renamed at the end:

    .<name>.preparing/lock         held while preparing
    .<name>.preparing/unpacked-*/  what an archive holds
    .<name>.preparing/data/        the prepared form

The index of the prepared form lists the splits that are finished.  The system frees the lock when its holder dies.

A process that is killed or stopped with Ctrl-C leaves that folder.  The next one with the same job goes on after the
last finished split, one with another job starts anew.  A process that fails leaves nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from glocal import __version__
from glocal.common.errors import DataError
from glocal.common.files import sync
from glocal.research.data.prepared import PreparedIndex, is_prepared, read_index, read_tables, write_index
from glocal.research.data.prepared_writer import write_split
from glocal.research.data.recognise import recognise
from glocal.research.data.unpack import signature, unpacked


class Progress(Protocol):
    def __call__(self, split: str, done: int, *, total: int) -> None: ...


def prepare(
    target: str | Path,
    name: str,
    source: str | Path,
    *,
    seed: int = 0,
    shares: tuple[float, float, float] = (0.6, 0.16, 0.24),
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> PreparedIndex:
    """Write the prepared form of the data set ``name`` to ``target``, which must not exist.

    ``source`` is a folder, a zip or a tar.  ``seed`` and ``shares`` as for ``recognise``.  ``skip_bad`` leaves out
    images that cannot be used instead of refusing them.
    """
    target, source = Path(target).absolute(), Path(source)
    work = work_folder(target)
    data = work / "data"
    with _working(target, work, name):
        content = recognise(name, unpacked(source, work), seed=seed, shares=shares)
        job = f"{signature(source)} {content.dataset} {content.words} {seed} {shares} {skip_bad} {__version__}"
        job = hashlib.sha256(job.encode()).hexdigest()
        index = _continued(data, job) or PreparedIndex(
            name=content.dataset,
            packing=content.words,
            variant=content.variant,
            created_by=f"glocal {__version__}",
            job=job,
            splits={},
        )
        for split, samples in content.splits.items():
            report = None if progress is None else partial(progress, split, total=content.counts[split])
            if split not in index.splits:
                record = write_split(data, split, samples(), skip_bad=skip_bad, progress=report)
                index = index.model_copy(update={"splits": {**index.splits, split: record}})
                write_index(data, index)
            elif report is not None:
                report(index.splits[split].total)
        sync(data)
        os.rename(data, target)
        sync(target.parent)
        shutil.rmtree(work, ignore_errors=True)
    return index


def work_folder(target: str | Path) -> Path:
    """Where ``prepare`` works until ``target`` is complete; it stays behind only when the process was stopped."""
    target = Path(target).absolute()
    return target.with_name(f".{target.name}.preparing")


@contextmanager
def _working(target: Path, work: Path, name: str) -> Iterator[None]:
    """Alone in the work folder, which goes when the work fails."""
    _refuse_existing(target)
    try:
        work.mkdir(parents=True, exist_ok=True)
        with FileLock(work / "lock", timeout=0):
            try:
                _refuse_existing(target)  # another process may just have finished it
                yield
            except Exception:  # not KeyboardInterrupt: what a person stopped may go on later
                shutil.rmtree(work, ignore_errors=True)
                raise
    except Timeout:
        raise DataError(f"another process is preparing {target}; wait until it is done", code="busy") from None
    except OSError as error:
        raise DataError(
            f"data set {name!r} cannot be prepared in {target} ({error.strerror or error}); "
            "free some space or choose another folder, nothing of it was left behind"
        ) from error


def _continued(data: Path, job: str) -> PreparedIndex | None:
    """What an earlier process finished of the same job; without it an empty folder to start in."""
    try:
        index = read_index(data)
        if index.job == job:
            for split, record in index.splits.items():
                read_tables(data, split, record)
            return index
    except DataError:
        pass
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    return None


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        what = "holds a prepared data set already" if is_prepared(target) else "exists already"
        raise DataError(f"{target} {what} and is not overwritten; remove it or choose another folder", code="exists")

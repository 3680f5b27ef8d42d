"""Preparing a data set: all of it under its name, or nothing.

The work is done in a hidden folder beside the target and renamed at the end:

    .<name>.preparing/lock       held while preparing; the system frees it when its holder dies
    .<name>.preparing/job.json   what is being prepared
    .<name>.preparing/data/      the prepared form; its index lists the splits that are finished

A process that is killed or stopped with Ctrl-C leaves that folder.  The next one with the same job goes on after the
last finished split, one with another job starts anew.  A process that fails leaves nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from filelock import FileLock, Timeout

from glocal import __version__
from glocal.common.errors import DataError
from glocal.common.files import sync, write_text
from glocal.research.data.prepared import (
    FORMAT,
    PreparedIndex,
    PreparedSplit,
    check_files,
    check_split_name,
    is_prepared,
    read_index,
    write_index,
)
from glocal.research.data.prepared_writer import Sample, write_split
from glocal.research.data.splits import check_disjoint

Pictures: TypeAlias = Callable[[], Iterable[Sample]]  # called only when the split is not there yet
Progress: TypeAlias = Callable[[str, int], None]  # (split, pictures done)


def prepare(
    folder: str | Path,
    splits: Mapping[str, Pictures],
    *,
    name: str,
    packing: str,
    key: str,
    variant: str = "own",
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> PreparedIndex:
    """Write the prepared form of a data set to ``folder``, which must not exist.

    ``packing`` says in words what it comes from, ``variant`` which known form of a published data set that is.
    ``key`` stands for the input: when it is the same as that of a process killed earlier, the splits which that one
    finished are taken as they are.  ``skip_bad`` leaves out pictures that cannot be used instead of refusing them.
    """
    target = Path(folder).absolute()
    if not splits:
        raise DataError(f"data set {name!r} needs at least one split to prepare, got none")
    for split in splits:
        check_split_name(split)
    _refuse_existing(target)
    work = work_folder(target)
    job = {"key": key, "name": name, "packing": packing, "variant": variant, "skip_bad": skip_bad, "splits": [*splits]}
    try:
        work.mkdir(parents=True, exist_ok=True)
        with FileLock(work / "lock", timeout=0):
            try:
                _refuse_existing(target)  # another process may just have finished it
                return _prepare(target, work, job, splits, progress)
            except Exception:  # not KeyboardInterrupt: what a person stopped may go on later
                shutil.rmtree(work, ignore_errors=True)
                raise
    except Timeout:
        raise DataError(f"another process is preparing {target}; wait until it is done", code="busy") from None
    except OSError as error:
        raise DataError(
            f"data set {name!r} cannot be written to {target} ({error.strerror or error}); "
            "free some space or choose another folder, nothing of it was left behind"
        ) from error


def work_folder(target: str | Path) -> Path:
    """Where ``prepare`` works until ``target`` is complete; it stays behind only when the process was stopped."""
    target = Path(target).absolute()
    return target.with_name(f".{target.name}.preparing")


def _prepare(
    target: Path, work: Path, job: Mapping[str, Any], splits: Mapping[str, Pictures], progress: Progress | None
) -> PreparedIndex:
    data = work / "data"
    finished = _continued(work, job)
    for split, pictures in splits.items():
        if split not in finished:
            tell = None if progress is None else partial(progress, split)
            finished[split] = write_split(data, split, pictures(), skip_bad=job["skip_bad"], progress=tell)
            check_disjoint({each: record.classes for each, record in finished.items()})
            write_index(data, _index(job, finished))
        elif progress is not None:
            progress(split, finished[split].total)
    index = _index(job, {split: finished[split] for split in splits})
    write_index(data, index)
    sync(data)
    os.rename(data, target)
    sync(target.parent)
    shutil.rmtree(work, ignore_errors=True)
    return index


def _index(job: Mapping[str, Any], splits: Mapping[str, PreparedSplit]) -> PreparedIndex:
    return PreparedIndex(job["name"], job["packing"], f"glocal {__version__}", splits, job["variant"])


def _continued(work: Path, job: Mapping[str, Any]) -> dict[str, PreparedSplit]:
    """Splits of the same job that an earlier process finished; without any, an empty folder to start in."""
    data, job_file = work / "data", work / "job.json"
    job = {**job, "format": FORMAT, "version": __version__}
    try:
        if json.loads(job_file.read_text("utf-8")) == job:
            splits = read_index(data).splits
            for half in data.glob(".*.partial"):  # of a file that a killed process was writing
                half.unlink()
            return {split: record for split, record in splits.items() if _is_whole(data, split, record)}
    except (OSError, ValueError):  # DataError too: no finished split
        pass
    job_file.unlink(missing_ok=True)
    if data.exists():
        shutil.rmtree(data)
    data.mkdir()
    write_text(job_file, json.dumps(job))
    return {}


def _is_whole(data: Path, split: str, record: PreparedSplit) -> bool:
    try:
        check_files(data, split, record)
    except DataError:
        return False
    return True


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        what = "holds a prepared data set already" if is_prepared(target) else "exists already"
        raise DataError(f"{target} {what} and is not overwritten; remove it or choose another folder", code="exists")

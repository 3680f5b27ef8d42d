"""Preparing a data set: all of it under its name, or nothing.

Zips and tars are unpacked by the standard library before anything in them is read.

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
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from glocal import __version__
from glocal.common.errors import DataError
from glocal.common.files import sync
from glocal.recognizer.photos.folders import walk
from glocal.research.data.prepared import PreparedIndex, is_prepared, read_index, read_tables, write_index, write_split
from glocal.research.data.recognise import recognise


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
            for cut_short in data.glob(".*.partial"):  # a process that was killed in the middle of a file
                cut_short.unlink()
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


MOST_FILES = 4_000_000  # tieredImageNet as files has 779,165
MOST_BYTES = 256 << 30
MOST_GROWTH = 200  # times the size of the archive; images are packed already ...
GROWTH_FROM = 64 << 20  # ... but few of them may be black
_DAMAGE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
)


def unpacked(source: Path, home: Path) -> Path:
    """The folder ``source``, or what a zip or tar of that name unpacks to in ``home``; unpacked once."""
    if source.is_dir():
        return source
    if not source.is_file():
        raise DataError(f"{source}: there is no such file or folder; name what the data set is in")
    target = home / f"unpacked-{signature(source)[:16]}"
    if not target.is_dir():
        partial = home / "unpacking"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            with _opened(source) as archive:
                _unpack(archive, partial, source)
        except _DAMAGE as error:
            if isinstance(error, DataError) or getattr(error, "errno", None) is not None:
                raise  # the disk failed, not the archive
            what = " ".join(str(error).split())[:150] or type(error).__name__
            raise DataError(f"{source}: cannot be unpacked ({what}); copy it again, or unpack it yourself") from error
        partial.rename(target)
    return target


def signature(path: Path) -> str:
    """Hash of the names, sizes and times of change of a file, or of all files in a folder."""
    files = (
        [os.path.join(parent, name) for parent, _, names in walk(path) for name in names] if path.is_dir() else [path]
    )
    digest = hashlib.sha256(os.fsencode(path.absolute()))
    for file in files:
        status = os.stat(file) if os.path.exists(file) else os.lstat(file)  # a link that leads nowhere is refused later
        digest.update(os.fsencode(file) + f"\0{status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _opened(source: Path) -> zipfile.ZipFile | tarfile.TarFile:
    if source.suffix.lower() != ".npz":  # a zip, but of arrays
        if zipfile.is_zipfile(source):
            return zipfile.ZipFile(source)
        if tarfile.is_tarfile(source):
            return tarfile.open(source)
    raise DataError(f"{source}: neither a folder nor a zip or tar; name the folder that the file lies in")


def _unpack(archive: Any, folder: Path, source: Path) -> None:
    folder.mkdir(parents=True)
    if isinstance(archive, zipfile.ZipFile):  # it leaves out "..", drives and links by itself
        for member in _bounded(archive.infolist(), "file_size", source):
            archive.extract(member, folder)
    else:
        for member in _bounded(archive, "size", source):
            archive.extract(member, folder, filter="data")


def _bounded(members: Iterable[Any], size: str, source: Path) -> Iterator[Any]:
    """The members of an archive, until there are too many of them or of their bytes."""
    allowed = min(MOST_BYTES, max(GROWTH_FROM, MOST_GROWTH * source.stat().st_size))
    total = 0
    for count, member in enumerate(members, 1):
        total += getattr(member, size)
        if count > MOST_FILES or total > allowed:
            raise DataError(
                f"{source}: it unpacks to more than {MOST_FILES:,} files or {allowed:,} bytes; unpack it yourself"
            )
        yield member

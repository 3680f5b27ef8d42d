"""Write a file so that a reader sees the old one or the new one, never a half; after a power cut too."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from glocal.common.errors import DataError

try:
    import fcntl
except ImportError:  # not on Windows, where two writers in the same moment are not kept apart
    fcntl = None  # type: ignore[assignment]

Stamp = tuple[int, ...]


@contextmanager
def replacing(
    path: str | Path, *, lasting: bool = True, is_current: Callable[[], bool] | None = None
) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; it takes the name of ``path`` when the block ends well, else it goes.

    A link stays a link and the file behind it keeps its permissions.  ``is_current`` as for ``put``; without
    ``lasting`` a power cut may leave nothing, or anything, under the name: for what can be had again.
    """
    path = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    make_folder(path.parent)
    partial = path.with_name(f".{uuid4().hex}.partial")  # short: path.name itself may be near the length limit
    try:
        begin(partial, path)
        yield partial
        if lasting:
            put(partial, path, is_current=is_current)
        else:
            _keep_mode(partial, path)
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """With its parents; after a power cut they are there."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)


def begin(partial: Path, path: Path) -> None:
    """Make the file that is to become ``path``: never open to more people than that is, not for a moment."""
    partial.touch(stat.S_IMODE(path.stat().st_mode) & 0o666 if path.is_file() else 0o666)


def put(partial: Path, path: Path, *, is_current: Callable[[], bool] | None = None) -> None:
    """Give a finished file its name; when this returns, both are on the disk.  The permissions of ``path`` stay.

    ``is_current`` tells whether ``path`` is still the file that the new one was made from.  It is asked in the moment
    of the change, under a lock that every ``put`` takes.
    """
    _keep_mode(partial, path)
    sync(partial)
    with _unchanged(path, is_current):
        os.replace(partial, path)
    sync(path.parent)


def remove(path: Path, *, is_current: Callable[[], bool] | None = None) -> None:
    """For good: after a power cut it is not there again.  ``is_current`` as for ``put``."""
    with _unchanged(path, is_current):
        path.unlink(missing_ok=True)
    sync(path.parent)


def changed_meanwhile(path: Path) -> DataError:
    return DataError(
        f"{path} was changed by another program since it was read; nothing was written, do it again",
        code="changed-meanwhile",
    )


@contextmanager
def or_not_written(what: str | Path, way_out: str) -> Iterator[None]:
    """A full or write-protected disk is a sentence, not a mistake of ours."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{what} could not be written ({error.strerror or error}); {way_out}", code="not-written"
        ) from error


@contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """One process at a time at a file that takes long to write; the lock of one that was killed holds nobody up.

    Like filelock, which is not there where only ONNX graphs are run.
    """
    if fcntl is None:
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    with or_not_written(path, "check the permissions of its folder, or choose another place"):
        make_folder(lock.parent)
        opened = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        if not _takes(opened):
            raise DataError(
                f"another process is writing {path}; wait until it is done, or choose another name", code="busy"
            )
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()
    finally:
        os.close(opened)


def there_already(path: Path, *, more: str = "") -> DataError:
    return DataError(
        f"{path} is there already; {more}write over it with --force, or choose another name", code="file-exists"
    )


def still_free(path: Path) -> Callable[[], bool]:
    """``is_current`` of a file that is to be a new one."""

    def asked() -> bool:
        if os.path.lexists(path):
            raise there_already(path)
        return True

    return asked


def stamp(path: str | Path) -> Stamp | None:
    """Differs when the file was replaced or written since; None when there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def check_recognizer(path: Path) -> None:
    """Refuse what can be none; here, because ``file.py`` imports so much that a wrong path would take a while."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a .glocal file that `glocal enroll` wrote", code="no-recognizer")
    if not path.is_file():
        raise DataError(
            f"{path}: there is no such file; `glocal enroll FOLDER -o {path}` makes one", code="no-recognizer"
        )


def sync(path: Path) -> None:
    """A file's bytes, or the names in a folder, to the disk."""
    if path.is_dir() and os.name != "posix":  # elsewhere a folder cannot be opened
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _keep_mode(partial: Path, path: Path) -> None:
    if path.is_file():
        partial.chmod(stat.S_IMODE(path.stat().st_mode))


@contextmanager
def _unchanged(path: Path, is_current: Callable[[], bool] | None) -> Iterator[None]:
    with _alone(path.parent):
        if is_current is not None and not is_current():
            raise changed_meanwhile(path)
        yield


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One writer at a time in a folder, held for the moment of a rename."""
    if fcntl is None:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems lock no folder
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _takes(opened: int) -> bool:
    """The lock; one that was deleted is that of somebody who had it until this moment."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems lock nothing
        return True
    return os.fstat(opened).st_nlink > 0

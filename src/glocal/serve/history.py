"""The last versions of a ``.glocal`` file in a folder beside it, and undo and redo over them, also after a restart.

    parts.glocal                        what everybody reads.
    parts.glocal.history/journal.json   which versions there are, and which of them the file is.
                        /parts/         what they consist of: the members of the archive, each kept once.

A change goes into the folder first, then over the file, each step as a whole and on the disk before the next.  A server
that is killed in between leaves the old file or the new one: the next start reads from the file which it was.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glocal.common.errors import DataError
from glocal.common.files import (
    changed_meanwhile,
    make_folder,
    or_not_written,
    put,
    remove,
    replacing,
    write_text,
)
from glocal.recognizer.file import read_manifest

OURS = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]+\.partial")  # parts may be a link to a folder of other files
MOST = 20  # versions that can be gone back to
MOST_BYTES = 2 << 30  # of all their parts, but for those of the last two
SCHEMA = 2


class Version(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str  # what was done, in words
    sha256: str | None  # of the file; None when there was none
    parts: list[tuple[str, int]]  # sha256 and size of each, in the order of the file


class _Journal(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int
    number: int = Field(ge=0)  # counts every change, undo and redo too; never goes back
    at: int = Field(ge=0)
    mode: int | None  # permissions of the file, for the case that it was removed and comes back
    versions: list[Version]


class History:
    """Of one file.  Not safe to use from two threads or processes: the workspace sees to that."""

    def __init__(self, file: Path) -> None:
        self.file, self.folder = file, folder_of(file)
        self._parts = self.folder / "parts"
        self._make_folders()
        self._journal = self._read()
        self._settle()
        self._clean()

    @property
    def number(self) -> int:
        return self._journal.number

    @property
    def sha256(self) -> str | None:
        """Of the file; None when there is none."""
        return self._journal.versions[self._journal.at].sha256

    @property
    def undo_label(self) -> str | None:
        return self._journal.versions[self._journal.at].label if self._journal.at > 0 else None

    @property
    def redo_label(self) -> str | None:
        following = self._journal.versions[self._journal.at + 1 :]
        return following[0].label if following else None

    @property
    def is_current(self) -> bool:
        """Nobody else wrote the file since."""
        return fingerprint(self.file) == self.sha256

    def push(self, label: str, save: Callable[[Path], None]) -> None:
        """A change; ``save`` writes the new file to the path that it gets.  What was undone is gone."""
        try:
            with self._partial() as partial:
                save(partial)
                versions = [*self._journal.versions[: self._journal.at + 1], self._stored(partial, label)]
                self._replace(partial, len(versions) - 1, versions)
        finally:
            self._clean()

    @contextmanager
    def step(self, by: int) -> Iterator[Path | None]:
        """Back (-1) or forth (+1): yields a copy of that version, which becomes the file when the block ends well."""
        at = self._journal.at + by
        if not 0 <= at < len(self._journal.versions):
            what = "undo" if by < 0 else "redo"
            raise DataError(f"there is nothing to {what}", code=f"nothing-to-{what}")
        version = self._journal.versions[at]
        with self._partial() as partial:
            if version.sha256 is not None:
                self._restore(version, partial)
            yield None if version.sha256 is None else partial
            self._replace(partial, at, self._journal.versions)

    def _replace(self, partial: Path, at: int, versions: list[Version]) -> None:
        """Write the journal, then give the file the content of ``partial``."""
        before = self.sha256
        self._write(at, versions)
        if self.sha256 is None:
            remove(self.file, is_current=lambda: fingerprint(self.file) == before)
            return
        if self._journal.mode is not None:
            partial.chmod(self._journal.mode)
        put(partial, self.file, is_current=lambda: fingerprint(self.file) == before)

    def _settle(self) -> None:
        """Find the version that the file is; another program that wrote the file made a version like any other."""
        at, versions = self._journal.at, self._journal.versions
        there = self._stored(self.file, "a change by another program" if versions else "the beginning")
        same = [i for i, each in enumerate(versions) if each.sha256 == there.sha256]
        if not same:
            versions = [*versions[: at + 1], there]
            self._write(len(versions) - 1, versions)
        elif at not in same:  # a change that was cut short
            self._write(min(same, key=lambda i: (abs(i - at), i)), versions)

    def _stored(self, path: Path, label: str) -> Version:
        """Keep the parts of a file that are not kept yet."""
        sha256 = fingerprint(path)
        if sha256 is None:
            return Version(label=label, sha256=None, parts=[])
        self._make_folders()
        parts, whole = [], hashlib.sha256()
        for data in _pieces(path):
            whole.update(data)
            name = hashlib.sha256(data).hexdigest()
            kept = self._parts / name
            if not kept.is_file() or kept.stat().st_size != len(data):
                with replacing(kept) as partial:
                    partial.write_bytes(data)
            parts.append((name, len(data)))
        if whole.hexdigest() != sha256:
            raise changed_meanwhile(path)
        return Version(label=label, sha256=sha256, parts=parts)

    def _restore(self, version: Version, path: Path) -> None:
        whole = hashlib.sha256()
        with path.open("wb") as opened:
            for name, _ in version.parts:
                part = self._parts / name
                data = part.read_bytes() if part.is_file() else b""
                whole.update(data)
                opened.write(data)
        if whole.hexdigest() != version.sha256:
            raise DataError(
                f"the copy of this version in {self._parts} is missing or damaged, so there is no way to it; nothing "
                "was changed",
                code="damaged-version",
            )

    @contextmanager
    def _partial(self) -> Iterator[Path]:
        """In the folder and not beside the file: a killed server leaves nothing there."""
        self._make_folders()
        partial = self.folder / f".{self.number + 1}.partial"
        try:
            yield partial
        finally:
            partial.unlink(missing_ok=True)

    def _clean(self) -> None:
        """Delete what no version consists of, and what a killed process left."""
        wanted = {name for each in self._journal.versions for name, _ in each.parts}
        for path in (*self._parts.iterdir(), *self.folder.glob(".*.partial")):
            if OURS.fullmatch(path.name) and path.name not in wanted and not path.is_dir():
                path.unlink(missing_ok=True)

    def _make_folders(self) -> None:
        """Also when they were deleted since; copies of what may be private."""
        make_folder(self.folder, mode=0o700)
        make_folder(self._parts)

    def _read(self) -> _Journal:
        """Empty without a journal, and with one that makes no sense: the file is what counts."""
        try:
            journal = _Journal.model_validate_json((self.folder / "journal.json").read_bytes())
            if journal.at < len(journal.versions) and journal.schema_version == SCHEMA:
                return journal
        except (FileNotFoundError, ValidationError):
            pass
        return _Journal(schema_version=SCHEMA, number=0, at=0, mode=None, versions=[])

    def _write(self, at: int, versions: list[Version]) -> None:
        while at > 0 and (len(versions) > MOST + 1 or (len(versions) > 2 and _size(versions) > MOST_BYTES)):
            versions, at = versions[1:], at - 1
        mode = stat.S_IMODE(self.file.stat().st_mode) if self.file.exists() else self._journal.mode
        number = self._journal.number + 1
        journal = _Journal(schema_version=SCHEMA, number=number, at=at, mode=mode, versions=versions)
        write_text(self.folder / "journal.json", json.dumps(journal.model_dump(), indent=1))
        self._journal = journal


def owned(file: Path) -> FileLock:
    """A lock beside the file: not in its history folder, which may be deleted while it is served."""
    lock = FileLock(file.with_name(f".{file.name}.lock"), timeout=0, thread_local=False)  # another thread may close
    try:
        lock.acquire()
    except Timeout:
        raise DataError(
            f"{file} is served already by another process; stop that one, or copy the file", code="already-served"
        ) from None
    return lock


@contextmanager
def keeping(file: Path) -> Iterator[Callable[[str, Callable[[Path], None]], None]]:
    """Yields what writes a change of the file, as ``History.push`` does, so that it can be undone.

    A process that serves the file keeps the versions itself.
    """
    file = file.resolve()
    try:
        lock = owned(file)
    except DataError:
        yield lambda label, save: save(file)
        return
    with lock, or_not_written(f"{file.name} or its history", "free some space or check the permissions of its folder"):
        yield History(file).push


def go_back(file: Path) -> str:
    """Give the file the content it had before the last change, whose label is returned."""
    file = file.resolve()
    with owned(file):
        history = History(file)
        label = history.undo_label or ""
        with history.step(-1) as copied:
            if copied is None:
                raise DataError(f"there was no {file.name} before; delete it if you want none", code="nothing-to-undo")
            read_manifest(copied)  # what cannot be read does not replace what can
        return label


def folder_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.history")


def fingerprint(file: Path) -> str | None:
    """Of its bytes; None when there is no such file."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _pieces(path: Path) -> Iterator[bytes]:
    """The file, cut where a member of the archive begins: members that stay the same are the same pieces."""
    with path.open("rb") as opened:
        size = opened.seek(0, 2)
        try:
            with zipfile.ZipFile(opened) as archive:
                cuts = {each.header_offset for each in archive.infolist()} | {archive.start_dir}
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            cuts = set()
        for start, end in pairwise(sorted({0, size} | {each for each in cuts if 0 < each < size})):
            opened.seek(start)
            yield opened.read(end - start)


def _size(versions: list[Version]) -> int:
    return sum(size for _, size in {part for each in versions for part in each.parts})

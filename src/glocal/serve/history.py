"""The versions of a ``.glocal`` file, in a folder beside it: undo that survives a restart.

    parts.glocal                        what everybody reads
    parts.glocal.history/journal.json   which versions there are, and which one the file is
                        /versions/      their copies
                        /queries/       pictures that were asked about (recent_queries.py)

A change goes to ``versions/`` first, then into the journal, then over the file, each step as a whole and on the disk
before the next.  Whoever is killed in between leaves the old file or the new one, and the next start finds out which:
the file is the truth.  A copy replaces the file only when it is, byte for byte, what was put there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glocal.common.errors import DataError
from glocal.common.files import changed_meanwhile, put, remove, replacing, write_text

MOST = 20  # versions that can be gone back to
MOST_BYTES = 2 << 30  # of them all, but for the last two
SCHEMA = 1


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int = Field(ge=0)
    label: str  # what was done, in words
    sha256: str | None  # of the file; None when there was none
    size: int = Field(ge=0)


class _Journal(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int
    version: int = Field(ge=0)  # counts every change, undo and redo too; never goes back
    at: int = Field(ge=0)
    entries: list[Entry] = Field(min_length=1)


class History:
    """Of one file.  Not safe to use from two threads or processes: the workspace sees to that."""

    def __init__(self, file: Path) -> None:
        self.file, self.folder = file, folder_of(file)
        self._versions = self.folder / "versions"
        self._make_folders()
        self._journal = self._read()
        found = fingerprint(file)
        if self._journal is None:
            self._write(_Journal(schema_version=SCHEMA, version=1, at=0, entries=[self._copied(1, found)]))
        else:
            self._settle(self._journal, found)
        self._clean()

    @property
    def version(self) -> int:
        return self._now.version

    @property
    def sha256(self) -> str | None:
        """Of the file; None when there is none."""
        return self._now.entries[self._now.at].sha256

    @property
    def undo_label(self) -> str | None:
        return self._now.entries[self._now.at].label if self._now.at > 0 else None

    @property
    def redo_label(self) -> str | None:
        following = self._now.entries[self._now.at + 1 :]
        return following[0].label if following else None

    @property
    def is_current(self) -> bool:
        """Nobody else wrote the file since."""
        return fingerprint(self.file) == self.sha256

    def push(self, label: str, save: Callable[[Path], None]) -> None:
        """A change: ``save`` writes the new file where it is told."""
        number = self.version + 1
        path = self._path(number)
        self._make_folders()
        try:
            save(path)
            if self.file.exists():
                shutil.copymode(self.file, path)
            entry = Entry(number=number, label=label, sha256=fingerprint(path), size=path.stat().st_size)
            with self._placing(entry):
                self._add(self._now, entry)
        except BaseException:
            if self._now.version < number:  # the journal does not know of it, and the disk may be full
                path.unlink(missing_ok=True)
            raise
        self._clean()

    def copy(self, by: int) -> Path | None:
        """The version one step back (-1) or forth (+1), found whole; None when that is no file at all."""
        entry = self._entry(by)
        if entry.sha256 is None:
            return None
        path = self._path(entry.number)
        if path.is_dir() or fingerprint(path) != entry.sha256:
            raise DataError(
                f"the copy of version {entry.number} in {self._versions} is missing or damaged, so there is no way to "
                "it; nothing was changed",
                code="damaged-version",
            )
        return path

    def step(self, by: int) -> None:
        """Back or forth."""
        self.copy(by)
        self._make_folders()
        with self._placing(self._entry(by)):
            self._write(self._now.model_copy(update={"at": self._now.at + by, "version": self.version + 1}))

    def _entry(self, by: int) -> Entry:
        at = self._now.at + by
        if not 0 <= at < len(self._now.entries):
            what = "undo" if by < 0 else "redo"
            raise DataError(f"there is nothing to {what}", code=f"nothing-to-{what}")
        return self._now.entries[at]

    @property
    def _now(self) -> _Journal:
        assert self._journal is not None
        return self._journal

    def _settle(self, journal: _Journal, found: str | None) -> None:
        """Which version is the file?  None of them: somebody else wrote it, which is a change like any other."""
        same = [i for i, each in enumerate(journal.entries) if each.sha256 == found]
        if not same:
            self._add(journal, self._copied(journal.version + 1, found, "a change by another program"))
            return
        at = min(same, key=lambda i: (abs(i - journal.at), i))
        if found is not None and fingerprint(self._path(journal.entries[at].number)) != found:
            self._copied(journal.entries[at].number, found)  # a damaged copy of what is there whole
        if at != journal.at:  # a change that was cut short
            self._write(journal.model_copy(update={"at": at, "version": journal.version + 1}))

    def _copied(self, number: int, sha256: str | None, label: str = "the beginning") -> Entry:
        """The file as it is, as an entry."""
        if sha256 is None:
            return Entry(number=number, label=label, sha256=None, size=0)
        with replacing(self._path(number)) as partial:
            shutil.copyfile(self.file, partial)
            shutil.copymode(self.file, partial)
            if fingerprint(partial) != sha256:
                raise changed_meanwhile(self.file)
        return Entry(number=number, label=label, sha256=sha256, size=self._path(number).stat().st_size)

    def _add(self, journal: _Journal, entry: Entry) -> None:
        """After the current one; what was undone is gone."""
        entries = [*journal.entries[: journal.at + 1], entry][-MOST - 1 :]
        while len(entries) > 2 and sum(each.size for each in entries) > MOST_BYTES:
            entries.pop(0)
        self._write(_Journal(schema_version=SCHEMA, version=entry.number, at=len(entries) - 1, entries=entries))

    @contextmanager
    def _placing(self, entry: Entry) -> Iterator[None]:
        """In the block the journal is written, then the file becomes what the entry says.

        The copy is made before: on a full disk neither journal nor file changes.
        """
        partial = self.folder / f".{entry.number}.partial"  # not beside the file: a killed server leaves nothing there
        before, copy = self.sha256, self._path(self._now.entries[self._now.at].number)
        try:
            if entry.sha256 is None:
                if self.file.exists() and copy.exists():
                    shutil.copymode(self.file, copy)  # to come back with
            else:
                shutil.copyfile(self._path(entry.number), partial)
                shutil.copymode(self.file if self.file.exists() else self._path(entry.number), partial)
            yield
            if entry.sha256 is None:
                remove(self.file, is_current=lambda: fingerprint(self.file) == before)
            else:
                put(partial, self.file, is_current=lambda: fingerprint(self.file) == before)
        finally:
            partial.unlink(missing_ok=True)

    def _clean(self) -> None:
        """Delete copies that no entry names, and what a killed process left."""
        wanted = {self._path(each.number) for each in self._now.entries}
        for path in self._versions.iterdir():
            if path not in wanted and not path.is_dir():  # a folder is none of ours
                path.unlink(missing_ok=True)
        for path in self.folder.glob(".*.partial"):
            path.unlink(missing_ok=True)

    def _make_folders(self) -> None:
        """Also when they were deleted since; copies of what may be private."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._versions.mkdir(exist_ok=True)

    def _path(self, number: int) -> Path:
        return self._versions / f"{number:08d}.glocal"

    def _read(self) -> _Journal | None:
        """None without a journal, and with one that makes no sense: the file is what counts."""
        try:
            journal = _Journal.model_validate_json((self.folder / "journal.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        return journal if journal.at < len(journal.entries) and journal.schema_version == SCHEMA else None

    def _write(self, journal: _Journal) -> None:
        write_text(self.folder / "journal.json", json.dumps(journal.model_dump(), indent=1))
        self._journal = journal


def folder_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.history")


def fingerprint(file: Path) -> str | None:
    """Of its bytes; None when there is no such file."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        return None

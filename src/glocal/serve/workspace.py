"""One ``.glocal`` file that is served: what it is now, how it changes, and the photos asked about.

Readers take the current snapshot and never wait.  Changes happen one after the other, each on a copy, which becomes
the current one when it is on the disk.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.common.errors import DataError, GlocalError
from glocal.common.files import changed_meanwhile, make_folder, or_not_written, stamp
from glocal.recognizer import Recognizer
from glocal.recognizer.diagnosis.advice import Finding
from glocal.recognizer.encoders.session import encoding_within
from glocal.recognizer.file import check_target, read_manifest
from glocal.recognizer.model import DEFAULT
from glocal.recognizer.photos.images import Preprocess
from glocal.recognizer.photos.sources import Source
from glocal.recognizer.recognizer import find_model
from glocal.serve.history import History, fingerprint, folder_of, owned
from glocal.serve.problems import Problem, missing, no_classes
from glocal.serve.recent_queries import Query, RecentQueries
from glocal.serve.security import Limits
from glocal.serve.snapshot import QueryAnswer, Result, Snapshot, answers_changed

READS = 3  # of a file that another program writes meanwhile, before it is left for later
log = logging.getLogger("glocal.serve")
Change = Callable[[Recognizer], list[Finding]]


@dataclass(frozen=True)
class Changed:
    version: int
    findings: list[Finding]
    message: str
    answers_changed: list[dict[str, str]]  # of recent photos, those that are others now
    n_recent: int  # photos that were compared

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "findings": [each.to_json() for each in self.findings]}


class Workspace:
    def __init__(
        self,
        file: Path,
        *,
        model: str = DEFAULT,
        device: str = "auto",
        workers: int = 2,
        recent: Path | None = None,
        seconds: float = Limits.answer_seconds,
    ) -> None:
        """``recent``: a folder for the photos that were asked about; ``seconds`` in which a change encodes its own."""
        check_target(file)
        file = file.resolve() if file.is_symlink() else file  # its history is beside the file, and the link stays
        self._first_preprocess: Preprocess | None = None
        if file.exists():
            read_manifest(file)  # nothing is written beside a file that is none of ours
        else:
            self._first_preprocess = find_model(model, device=device).preprocess  # a misspelt model is refused now
        self.file, self.model, self._device, self.workers = file, model, device, workers
        self._seconds = seconds
        self._changing, self._answering = threading.Lock(), threading.Lock()
        self._answers: tuple[int, dict[str, QueryAnswer]] = (-1, {})  # of one version, by query
        self._unsure = False  # whether a change that failed on the disk is in the file or not
        with _disk_errors(file):
            make_folder(folder_of(file), mode=0o700)  # copies of what may be private
            self._owned = owned(file)
            try:
                self._seen = stamp(file)
                recognizer, self._history = self._read()
                self.snapshot = self._snapshot_of(recognizer)
                self.queries = RecentQueries(recent)
                self.queries.restore(self.snapshot.queries(self.queries.read()), self.snapshot.model_hash)
            except BaseException:
                self._owned.release()
                raise

    def preprocess(self) -> Preprocess:
        """What the encoder takes, also when it is the one of a first class that is still to come."""
        if self.snapshot.recognizer is not None:
            return self.snapshot.recognizer.embedder.preprocess
        if self._first_preprocess is None:
            self._first_preprocess = find_model(self.model, device=self._device).preprocess
        return self._first_preprocess

    def close(self) -> None:
        with self._changing:
            self._owned.release()

    @property
    def is_current(self) -> bool:
        """Nobody else wrote the file since it was read; asked before every answer, so it is one look at the folder."""
        try:
            return stamp(self.file) == self._seen
        except OSError:
            return True  # a folder that is gone for a moment: what is in memory answers

    def take_in(self) -> Snapshot:
        """The current version, after what another program did to the file.

        A file that cannot be read, perhaps because it is being copied, changes nothing until it changes again.  While
        a change is being made nobody waits for it: what is in memory answers.
        """
        self._check_folder()
        if self._changing.acquire(blocking=False):
            seen = self._seen
            try:
                with _disk_errors(self.file):
                    seen = stamp(self.file)
                self._read_again()
            except GlocalError as error:
                log.warning("%s was changed by another program and cannot be read: %s", self.file, error)
                self._seen = seen
            finally:
                self._changing.release()
        return self.snapshot

    def recent(self, now: Snapshot) -> list[QueryAnswer]:
        """The photos that were asked about, newest first, as this version answers; each is answered once."""
        if now.recognizer is None:
            return []
        with self._answering:
            version, known = self._answers
            if version != now.version:
                known = {}
            queries = self.queries.newest_first()
            known |= {each.query.id: each for each in now.answers([each for each in queries if each.id not in known])}
            self._answers = (now.version, {each.id: known[each.id] for each in queries})
            return [QueryAnswer(each, known[each.id].answer) for each in queries]

    def remember(self, now: Snapshot, results: Sequence[Result]) -> None:
        for each in results:
            if isinstance(each, QueryAnswer):
                self.queries.add(each.query, now.model_hash)

    def query(self, id_: str) -> Query:
        query = self.queries.get(id_)
        if query is None:
            raise missing(f"recent photo {id_[:16]!r}")
        return query

    def change(
        self,
        label: str,
        change: Change,
        *,
        expected: str | None = None,
        first: Mapping[str, Sequence[Source]] | None = None,
    ) -> Changed:
        """Change a copy, which becomes the current version; ``first`` is enrolled where no class is taught yet."""
        with self._changing:
            self._check(expected)
            if self.snapshot.recognizer is not None:
                changed = copy.copy(self.snapshot.recognizer)
                with encoding_within(self._seconds):
                    findings = change(changed)
            elif first is not None:
                with encoding_within(self._seconds):
                    changed = Recognizer.enroll(
                        first, skip_bad=True, model=self.model, device=self._device, workers=self.workers
                    )
                findings = changed.findings()
            else:
                raise no_classes()
            compared = self._compared(changed)
            with self._writing():
                self._history.push(label, changed.save)
            self._become(changed)
            return Changed(self.snapshot.version, findings, label, *compared)

    def go(self, by: int, *, expected: str | None = None) -> Changed:
        """Undo (-1) or redo (+1)."""
        with self._changing:
            self._check(expected)
            now = self.snapshot
            label = now.undo_label if by < 0 else now.redo_label
            with self._writing(), self._history.step(by) as copied:
                recognizer = self._load(copied)  # what cannot be read or compared does not replace what can
                compared = self._compared(recognizer)
            self._become(recognizer)
            return Changed(self.snapshot.version, [], f"{'undone' if by < 0 else 'done again'}: {label}", *compared)

    def _compared(self, after: Recognizer | None) -> tuple[list[dict[str, str]], int]:
        """Recent photos that are answered otherwise, and how many were compared.

        This comes before anything is written: a recognizer that cannot answer does not replace one that can.
        """
        queries = self.queries.newest_first()
        changed = answers_changed(self.snapshot.recognizer, after, queries)
        return ([], 0) if changed is None else (changed, len(queries))

    def _check(self, expected: str | None) -> None:
        """Refuse a change that was meant for another version; take in what another program did to the file."""
        self._read_again()
        now = self.snapshot.version
        if expected is not None and expected.strip().removeprefix("W/").strip('"') not in (str(now), "*"):
            raise Problem(
                409,
                "stale",
                f"this was meant for version {expected[:20]!r}, but it is at {now}; read the state and try again",
                version=now,
            )

    def _read_again(self) -> None:
        """What is in the file, if that is not what is in memory."""
        self._check_folder()
        with _disk_errors(self.file):
            seen = stamp(self.file)
            if self._unsure or not self._history.is_current:
                recognizer, self._history = self._read()
                self._become(recognizer)
                self._unsure = False
            self._seen = seen

    def _check_folder(self) -> None:
        """A disk that was unmounted is not a file that was deleted."""
        if not self.file.parent.is_dir():
            raise DataError(
                f"the folder {self.file.parent} of the recognizer is gone; bring it back and try again",
                code="folder-gone",
            )

    def _read(self) -> tuple[Recognizer | None, History]:
        """The file and its history, both of the same bytes: what is written in between would be lost by a change."""
        for _ in range(READS):
            before = fingerprint(self.file)
            recognizer, history = self._load(self.file), History(self.file)
            if history.sha256 == before:
                return recognizer, history
        raise changed_meanwhile(self.file)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What goes wrong in the block may leave the old file or the new one: it is read again before the next."""
        self._unsure = True
        with _disk_errors(self.file):
            yield
            self._seen = stamp(self.file)
        self._unsure = False

    def _become(self, recognizer: Recognizer | None) -> None:
        self.snapshot = self._snapshot_of(recognizer)
        if recognizer is not None:
            self.queries.belong_to(self.snapshot.model_hash)

    def _snapshot_of(self, recognizer: Recognizer | None) -> Snapshot:
        history = self._history
        return Snapshot(history.number, recognizer, history.undo_label, history.redo_label)

    def _load(self, file: Path | None) -> Recognizer | None:
        if file is None or not file.exists():
            return None
        return Recognizer.load(file, device=self._device, workers=self.workers)


def _disk_errors(file: Path) -> AbstractContextManager[None]:
    way_out = "free some space or check the permissions of its folder, and try again"
    return or_not_written(f"{file.name} or its history", way_out)

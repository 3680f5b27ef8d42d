"""One ``.glocal`` file that is served: what it is now, how it changes, and the pictures asked about.

Readers take the current snapshot and never wait.  Changes happen one after the other, each on a copy, which becomes
the current one when it is on the disk.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from glocal.recognizer import Recognizer
from glocal.recognizer.brain import DEFAULT
from glocal.recognizer.eye import Source
from glocal.recognizer.file import check_target, read_manifest
from glocal.serve.history import History, folder_of
from glocal.serve.judged import Judged
from glocal.serve.problems import Problem, empty, missing
from glocal.serve.remembered import Remembered, bank_of
from glocal.serve.snapshot import Snapshot
from glocal_runtime.checkup import Finding
from glocal_runtime.errors import DataError

Step = Callable[[Recognizer], list[Finding]]


@dataclass(frozen=True)
class Changed:
    version: int
    findings: list[Finding]
    message: str


class Workspace:
    def __init__(self, file: Path, *, model: str = DEFAULT, device: str = "auto", workers: int = 2) -> None:
        check_target(file)
        if file.exists():
            read_manifest(file)  # nothing is written beside a file that is none of ours
        self.file, self.model, self._device, self._workers = file, model, device, workers
        folder = folder_of(file)
        folder.mkdir(parents=True, exist_ok=True)
        self._owned = FileLock(folder / "lock", timeout=0, thread_local=False)  # another thread may close
        try:
            self._owned.acquire()
        except Timeout:
            raise DataError(f"{file} is served already by another process; stop that one, or copy the file") from None
        try:
            self._changing = threading.Lock()
            self._recognizer = self._load()
            self._history = History(file)
            self.queries = Remembered(folder / "queries")
            self.snapshot = self._snap()
            self.queries.open(self.snapshot.model)
            self.judged = Judged(self.queries)
        except BaseException:
            self._owned.release()
            raise

    def close(self) -> None:
        with self._changing:
            self.queries.close()
            self._owned.release()

    def add_class(self, name: str, photos: Sequence[Source], *, expected: str | None = None) -> Changed:
        def enrolled(recognizer: Recognizer | None) -> tuple[Recognizer, list[Finding]]:
            if recognizer is None:
                first = Recognizer.enroll(
                    {name: photos}, model=self.model, skip_bad=True, device=self._device, workers=self._workers
                )
                return first, first.findings()
            return recognizer, recognizer.add_class(name, photos, skip_bad=True)

        return self._change(f"class {name} added", enrolled, expected)

    def add_photos(self, name: str, photos: Sequence[Source], *, expected: str | None = None) -> Changed:
        return self._step(
            f"{_counted(len(photos))} added to {name}",
            lambda who: who.add_photos(self._class(who, name), photos, skip_bad=True),
            expected,
        )

    def add_queries(self, name: str, ids: Sequence[str], *, expected: str | None = None) -> Changed:
        """Pictures that were asked about become photos of a class, a new one or one that is there."""

        def step(who: Recognizer) -> list[Finding]:
            found = {id_: self.queries.get(id_) for id_ in ids}
            if gone := [id_ for id_, query in found.items() if query is None]:
                raise missing(f"remembered picture {gone[0][:16]!r}")
            return who.add_seen(name, bank_of(query for query in found.values() if query is not None))

        return self._step(f"{_counted(len(ids))} added to {name}", step, expected)

    def remove_photo(self, digest: str, *, expected: str | None = None) -> Changed:
        def step(who: Recognizer) -> list[Finding]:
            if digest not in {each.digest for each in who.contents.support.photos}:
                raise missing(f"photo {digest[:16]!r}")
            return who.remove_photo(digest)

        return self._step("photo removed", step, expected)

    def rename_class(self, old: str, new: str, *, expected: str | None = None) -> Changed:
        return self._step(
            f"class {old} renamed to {new}", lambda who: who.rename_class(self._class(who, old), new), expected
        )

    def remove_class(self, name: str, *, expected: str | None = None) -> Changed:
        return self._step(f"class {name} removed", lambda who: who.remove_class(self._class(who, name)), expected)

    def set_threshold(
        self,
        value: float | None = None,
        *,
        max_false_unknown: float | None = None,
        per_class: bool | None = None,
        expected: str | None = None,
    ) -> Changed:
        def step(who: Recognizer) -> list[Finding]:
            who.set_threshold(value, max_false_unknown=max_false_unknown, per_class=per_class)
            return []

        how = "by hand" if value is not None else "by a promise"
        return self._step(f"threshold set {how}", step, expected)

    def undo(self, *, expected: str | None = None) -> Changed:
        return self._walk(-1, expected)

    def redo(self, *, expected: str | None = None) -> Changed:
        return self._walk(+1, expected)

    def _step(self, label: str, step: Step, expected: str | None) -> Changed:
        def stepped(recognizer: Recognizer | None) -> tuple[Recognizer, list[Finding]]:
            if recognizer is None:
                raise empty()
            return recognizer, step(recognizer)

        return self._change(label, stepped, expected)

    def _change(
        self,
        label: str,
        change: Callable[[Recognizer | None], tuple[Recognizer, list[Finding]]],
        expected: str | None,
    ) -> Changed:
        with self._changing:
            self._check(expected)
            changed, findings = change(copy.copy(self._recognizer))
            with _told(self.file):
                self._history.push(label, changed.save)
            self._become(changed)
            return Changed(self.snapshot.version, findings, label)

    def _walk(self, by: int, expected: str | None) -> Changed:
        with self._changing:
            self._check(expected)
            now = self.snapshot
            label = now.undo_label if by < 0 else now.redo_label
            with _told(self.file):
                self._history.step(by)
            self._become(self._load())
            return Changed(self.snapshot.version, [], f"{'undone' if by < 0 else 'done again'}: {label}")

    def _check(self, expected: str | None) -> None:
        """Refuse a change that was meant for another version; take in what another program did to the file."""
        if not self._history.is_current:
            recognizer = self._load()
            self._history = History(self.file)
            self._become(recognizer)
        now = self.snapshot.version
        if expected is not None and expected.strip().removeprefix("W/").strip('"') not in (str(now), "*"):
            raise Problem(
                409,
                "stale",
                f"this was meant for version {expected[:20]!r}, but it is at {now}; read the state and try again",
                version=now,
            )

    def _become(self, recognizer: Recognizer | None) -> None:
        self._recognizer = recognizer
        self.snapshot = self._snap()
        if recognizer is not None:
            self.queries.belong_to(self.snapshot.model)

    def _snap(self) -> Snapshot:
        history = self._history
        return Snapshot(history.version, self._recognizer, history.undo_label, history.redo_label)

    def _load(self) -> Recognizer | None:
        if not self.file.exists():
            return None
        return Recognizer.load(self.file, device=self._device, workers=self._workers)

    def _class(self, who: Recognizer, name: str) -> str:
        if name not in who.classes:
            raise missing(f"class {name[:80]!r}")
        return name


class _told:
    """A full disk is a sentence, not a mistake of ours."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise DataError(
                f"{self._file.name} could not be written ({error.strerror or error}); free some space and try again"
            ) from error


def _counted(n: int) -> str:
    return f"{n} photo{'' if n == 1 else 's'}"

"""Answers as rows of a file that grows while a folder is worked through, and that an interrupted run can continue.

Rows go to ``out.csv.partial``, batch by batch; when all are there it takes the name ``out.csv``.  A continued run keeps
whole batches and answers the rest, so the file is that of a run without a break.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from glocal.common.errors import DataError
from glocal.common.files import alone_at, begin, make_folder, or_not_written, put, there_already
from glocal.recognizer.batches import BATCH
from glocal.recognizer.file import check_target
from glocal.recognizer.photos.sources import Unreadable
from glocal.recognizer.prediction import Prediction

ODD_NAMES = "surrogateescape"  # file names need not be Unicode

Answer = Prediction | Unreadable
COLUMNS = (
    "path", "label", "is_unknown", "open_score", "threshold", "probability", "nearest", "reason", "warning", "box",
    "error", "recognizer",
)  # fmt: skip


def row(answer: Answer, recognizer: str) -> dict[str, Any]:
    """One line of a CSV; numbers in six digits, which is what survives another machine."""
    if isinstance(answer, Unreadable):
        return dict.fromkeys(COLUMNS, "") | {"path": answer.path, "error": answer.error, "recognizer": recognizer}
    fields = {name: getattr(answer, name) for name in COLUMNS[:-2]}
    numbers = {name: f"{fields[name]:.6g}" for name in ("open_score", "threshold", "probability")}
    texts = {"is_unknown": str(answer.is_unknown).lower(), "box": "" if answer.box is None else str(answer.box)}
    return {**fields, **numbers, **texts, "error": "", "recognizer": recognizer}


def plain(answer: Answer) -> dict[str, Any]:
    """One object of JSON; every answer has the same keys."""
    if isinstance(answer, Prediction):
        return {**answer.to_json(), "error": None}
    empty = dict.fromkeys(Prediction.__dataclass_fields__)
    return {**empty, "path": answer.path, "error": answer.error}


class ResultFile:
    """``path`` ends in .csv or .jsonl; ``recognizer`` is the identity of the recognizer."""

    def __init__(self, path: Path, recognizer: str) -> None:
        check_format(path)
        path = path.resolve() if path.is_symlink() else path  # the link stays
        self.path, self.partial = path, path.with_name(f"{path.name}.partial")
        self._recognizer = recognizer
        self._format = _FORMATS[path.suffix.lower()]

    def alone(self) -> AbstractContextManager[None]:
        """Around ``done`` and ``writing``: two at one file would leave a mixture of both."""
        return alone_at(self.path)

    def done(self, *, resume: bool, force: bool = False) -> set[str]:
        """The pictures that need no answer any more; only with ``force`` what an interrupted run left is dropped."""
        if not resume:
            if force:
                self.partial.unlink(missing_ok=True)
            elif self.partial.exists():
                raise DataError(
                    f"{self.partial} is what an interrupted run left; continue it with --resume, or write over it with "
                    "--force",
                    code="interrupted-run",
                )
            elif self.path.exists():  # since the command began
                raise there_already(self.path, more="continue it with --resume, ")
            return set()
        there = next((each for each in (self.partial, self.path) if each.exists()), None)
        if there is None:
            return set()
        self._keep(there)  # a finished file is continued with the pictures that came since
        return {fields["path"] for fields in self._whole_rows(self.partial)}

    @contextmanager
    def writing(self) -> Iterator[Callable[[Iterable[Answer]], None]]:
        """A function that takes the answers of one batch; at the end the file gets its name.

        What a failed run has answered stays for the next one; if that is nothing, nothing stays.
        """
        make_folder(self.path.parent)
        header = self._format.header
        kept = f"what was answered so far is kept in {self.partial.name}, continue with --resume when there is room"
        ours = partial(or_not_written, self.path, kept)  # not around what the caller does between two batches
        try:
            with ours():
                begin(self.partial, self.path)
                file = self.partial.open("a", encoding="utf-8", errors=ODD_NAMES, newline="")
                if not file.tell():
                    file.write(header)

            def write(answers: Iterable[Answer]) -> None:
                with ours():
                    self._append(file, answers)

            try:
                yield write
            finally:
                with ours():  # a full disk refuses once more what it refused before
                    file.close()
            with ours():
                put(self.partial, self.path)
        finally:
            if self.partial.exists() and self.partial.stat().st_size <= len(header):
                self.partial.unlink()

    def _append(self, file: IO[str], answers: Iterable[Answer]) -> None:
        file.write("".join(self._format.line(self._format.row(each, self._recognizer)) for each in answers))
        file.flush()  # a reader sees whole batches

    def _keep(self, path: Path) -> None:
        """Copy what is whole at the beginning of ``path`` to the partial file: batches, or rows beside a finished file.

        Whole batches make the file that of a run without a break.  Beside a finished file all whole rows stay: the
        partial file may begin with the rows of the finished one, whose number is any.
        """
        step = 1 if self.path.exists() else BATCH
        kept = path.with_name(f"{path.name}.kept")
        lines: list[str] = []
        try:
            begin(kept, path)
            with kept.open("w", encoding="utf-8", errors=ODD_NAMES, newline="") as new:
                new.write(self._format.header)
                for fields in self._whole_rows(path):
                    if fields["recognizer"] != self._recognizer:
                        raise DataError(
                            f"{path} was begun with another recognizer or threshold ({fields['recognizer']}, this is "
                            f"{self._recognizer}); delete it to start anew",
                            code="other-recognizer",
                        )
                    lines.append(self._format.line(fields))
                    if len(lines) == step:
                        new.write("".join(lines))
                        lines.clear()
            put(kept, self.partial)
        finally:
            kept.unlink(missing_ok=True)

    def _whole_rows(self, path: Path) -> Iterator[dict[str, Any]]:
        """All but a last row that was cut short; one without an end of line may be."""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 1))
            ended = file.read() == b"\n"
        waiting: dict[str, Any] | None = None
        with path.open(encoding="utf-8", errors=ODD_NAMES, newline="") as file:
            try:
                for fields in self._format.rows(file):
                    if waiting is not None:
                        yield waiting
                    waiting = fields
            except (ValueError, csv.Error, RecursionError) as error:
                if isinstance(error, DataError):
                    raise
                # A name may hold an end of line, and its quotes are open when it is cut there.
                if file.read(1) or (ended and not isinstance(error, csv.Error)):
                    raise _not_answers(path, f"a row in it is none ({error})") from None
                ended = True  # the stump is the row that failed, not the one before it
        if ended and waiting is not None:
            yield waiting


def check_format(path: Path) -> None:
    """Refuse a place for results before a model is loaded."""
    if path.suffix.lower() not in _FORMATS:
        raise DataError(f"{path}: results are written as .csv or .jsonl; give the file one of these endings")
    check_target(path, path.suffix)


class _Format(NamedTuple):
    header: str
    row: Callable[[Answer, str], dict[str, Any]]  # answer, recognizer -> fields
    line: Callable[[dict[str, Any]], str]
    rows: Callable[[IO[str]], Iterator[dict[str, Any]]]


def csv_line(fields: dict[str, Any], columns: Sequence[str] = COLUMNS) -> str:
    buffer = io.StringIO()
    # Whatever can end a line is quoted, but only if the writer's own end of line has it.
    csv.DictWriter(buffer, columns, restval="", lineterminator="\r\n").writerow(fields)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def _csv_rows(file: IO[str]) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(file, strict=True)
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise _not_answers(file.name, f"its columns must be {', '.join(COLUMNS)}")
    for fields in reader:
        if None in fields or not fields["recognizer"]:
            raise ValueError("a row that was cut short")
        yield fields


def _json_rows(file: IO[str]) -> Iterator[dict[str, Any]]:
    for text in file:
        if not text.startswith("{"):
            raise _not_answers(file.name, f"a line begins with {text[:20]!r}")
        fields = json.loads(text)
        if not {"path", "recognizer"} <= fields.keys():
            raise _not_answers(file.name, "a line has no path or no recognizer")
        yield fields


def _not_answers(path: str | Path, why: str) -> DataError:
    return DataError(
        f"{path} is not a file of answers: {why}; nothing was changed, choose another name", code="no-answers"
    )


_FORMATS = {
    ".csv": _Format(",".join(COLUMNS) + "\n", row, csv_line, _csv_rows),
    ".jsonl": _Format(
        "",
        lambda answer, recognizer: {**plain(answer), "recognizer": recognizer},
        lambda fields: json.dumps(fields, ensure_ascii=False) + "\n",
        _json_rows,
    ),
}

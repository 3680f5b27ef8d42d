"""A folder that fills: every new picture is answered once, put into a folder by answer, and recorded in a CSV.

Answers are journalled before anything is done about them.  After a kill the journal is carried out again: places that
are taken stay, the CSV is cut back to its length before, and no picture is answered twice.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from glocal.bulk.places import Way, check_apart, free_place, put
from glocal.bulk.results import COLUMNS, ODD_NAMES, csv_line, row
from glocal.common.errors import DataError, GlocalError
from glocal.common.files import Stamp, or_not_written, remove, stamp, write_text
from glocal.common.validation import check_kind, shown
from glocal.recognizer.diagnosis.drift import LAST, Drift
from glocal.recognizer.photos.boxes import MIN_CONFIDENCE, Box, Boxes, read_boxes
from glocal.recognizer.photos.folders import walk
from glocal.recognizer.photos.images import is_picture
from glocal.recognizer.photos.sources import Source, Unreadable, as_source, regions_of
from glocal.recognizer.recognizer import Recognizer

ANSWERS, JOURNAL = "answers.csv", ".journal.json"
FIELDS = (*COLUMNS, "time", "place", "stamp")
SETTLE = 2.0  # seconds that a file must stay as it is
Row: TypeAlias = "dict[str, Any]"
_JOURNAL = {"size": int, "way": str, "rows": [dict.fromkeys(FIELDS, str | None)]}
PATIENCE = 60.0  # seconds after its last change in which an unreadable picture may still become one


class Inbox:
    """The pictures below a folder that are written completely."""

    def __init__(self, folder: Path, settle: float = SETTLE) -> None:
        self.folder, self._settle = folder, settle
        self._seen: dict[Path, tuple[str, float]] = {}  # as a file was, and since when

    def settled(self, now: float) -> Iterator[tuple[Path, str]]:
        """Pictures of the same size and time since ``settle`` seconds, by name, with that stamp."""
        seen = {}
        for parent, _, names in walk(self.folder):
            for path in (Path(parent, name) for name in names if is_picture(name)):
                if (state := stamped(path)) is not None:
                    before, since = self._seen.get(path, ("", now))
                    seen[path] = state, since if state == before else now
        self._seen = seen
        yield from ((path, state) for path, (state, since) in seen.items() if now - since >= self._settle)


def stamped(path: Path) -> str | None:
    """Size and time of a file; None where there is none."""
    try:
        status = path.stat()
    except OSError:  # gone, a link that leads nowhere or to itself, a folder without permission
        return None
    return f"{status.st_size} {status.st_mtime_ns}"


class Record:
    """Answers and places below a folder; one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._answers, self._journal = folder / ANSWERS, folder / JOURNAL
        self.stamps: dict[str, str] = {}  # of the pictures that are recorded

    def open(self) -> list[bool]:
        """Carry out what a kill left, and read what is recorded: whether each picture is unknown."""
        with or_not_written(self.folder, "free some space or choose another place"):
            if not self._answers.exists():
                write_text(self._answers, ",".join(FIELDS) + "\n")
            for partial in self.folder.rglob(f".{'[0-9a-f]' * 32}.partial"):  # of a run that was killed
                partial.unlink()
            self._carry_out()
        with self._answers.open(encoding="utf-8", errors=ODD_NAMES, newline="") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ()) != FIELDS:
                raise DataError(
                    f"{self._answers} is not from `glocal watch`: its columns must be {', '.join(FIELDS)}; choose "
                    "another folder",
                    code="no-answers",
                )
            return [fields["is_unknown"] == "true" for fields in map(self._remembered, rows) if not fields["error"]]

    def add(self, rows: list[Row], way: Way) -> list[Row]:
        """Place the pictures and record their answers; without those that have changed since they were looked at."""
        with self._or_later():
            content = {"size": self._answers.stat().st_size, "way": way.value, "rows": rows}
            write_text(self._journal, json.dumps(content))
        return self.resume()

    def resume(self) -> list[Row]:
        """Do what is in the journal and was not done, as after a full disk."""
        with self._or_later():
            return self._carry_out()

    def _or_later(self) -> AbstractContextManager[None]:
        return or_not_written(
            self.folder, "nothing is lost: it goes on when there is room and the folder can be written"
        )

    def _carry_out(self) -> list[Row]:
        if not self._journal.exists():
            return []
        try:
            journal = json.loads(self._journal.read_text("utf-8"))
            check_kind(journal, _JOURNAL, JOURNAL)
            way = Way(journal["way"])
            places = [Path(fields["place"] or "") for fields in journal["rows"]]
            if any(each.is_absolute() or ".." in each.parts for each in places):
                raise ValueError("a place leads out of the folder")
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{self._journal} is damaged: {shown(error)}; delete it, and its pictures are answered again",
                code="damaged-file",
            ) from error
        rows = [fields for fields in journal["rows"] if self._is_placed(fields, way)]
        with self._answers.open("r+b") as file:
            file.truncate(min(journal["size"], self._answers.stat().st_size))
            file.seek(0, os.SEEK_END)
            file.write("".join(csv_line(fields, FIELDS) for fields in rows).encode("utf-8", ODD_NAMES))
            file.flush()
            os.fsync(file.fileno())
        rows = list(map(self._remembered, rows))
        for fields in rows:
            source = Path(fields["path"])
            if way is Way.move and fields["place"] and stamped(source) == fields["stamp"]:
                remove(source)
        remove(self._journal)
        return rows

    def _is_placed(self, fields: Row, way: Way) -> bool:
        """Whether the picture is in its place now; one that is gone or has changed meanwhile is not."""
        if not fields["place"]:
            return True
        target, number = self.folder / fields["place"], fields["box"]
        source = Path(fields["path"].rpartition("#")[0] if number else fields["path"])
        if os.path.lexists(target):
            return True
        if stamped(source) != fields["stamp"]:
            return False
        put(source, target, way, Box(*map(int, number.split())) if number else None)
        if stamped(source) == fields["stamp"]:
            return True
        remove(target)
        return False

    def _remembered(self, fields: Row) -> Row:
        self.stamps[fields["path"]] = fields["stamp"]
        return fields


class Looked(NamedTuple):
    """What one look at the folder brought."""

    rows: list[Row]
    remarks: list[str]


class Watch:
    """A recognizer that sorts the pictures of a folder as they come.

    Parameters
    ----------
    file : Path
        The .glocal file; it is read again when it has changed.
    inbox : Path
        The folder that fills.
    out : Path
        The folder for folders by answer, and for the answers.
    way : Way
        Whether pictures are copied, linked or moved.
    boxes : Path, optional
        A file of boxes, read again when it has changed.  A picture waits until the file names it.
    min_confidence : float
        Of boxes.
    settle : float
        Seconds that a file must stay as it is.
    patience : float
        Seconds after its last change in which an unreadable picture may still become one.
    last : int
        Photos whose share of unknowns is watched.
    device : str
        auto, cpu or cuda.
    """

    def __init__(
        self,
        file: Path,
        inbox: Path,
        out: Path,
        *,
        way: Way = Way.copy,
        boxes: Path | None = None,
        min_confidence: float = MIN_CONFIDENCE,
        settle: float = SETTLE,
        patience: float = PATIENCE,
        last: int = LAST,
        device: str = "auto",
    ) -> None:
        check_apart(inbox, out)
        if boxes is not None and way is not Way.copy:
            raise DataError("regions of pictures are cut out, so they are copies; leave out --link and --move")
        self._file, self._inbox, self._record = file, Inbox(inbox, settle), Record(out)
        self._way, self._patience, self._last, self._device = way, patience, last, device
        self._boxes_file, self._min_confidence = boxes, min_confidence
        self._boxes: Boxes | None = None
        self._seen: dict[Path, Stamp | None] = {}
        self._load()
        for is_unknown in self._record.open()[-last:]:
            self.drift.add(is_unknown)

    def look(self, now: float) -> Iterator[Looked]:
        """Answer, place and record what is new and complete, batch by batch."""
        yield self._judged(self._record.resume(), self._load())
        state_of = {str(path): state for path, state in self._inbox.settled(now)}
        new = self._new(state_of)
        picture_of = {each.name: _picture(each) for each in new}
        for answered in self.recognizer.batches(new) if new else ():
            taken: set[str] = set()
            rows = []
            for answer in answered.answers:
                picture = picture_of[answer.path]
                if isinstance(answer, Unreadable) and self._may_change(Path(picture)):
                    continue
                place = ""
                if not isinstance(answer, Unreadable):
                    below = str(Path(picture).relative_to(self._inbox.folder))
                    number = answer.path.removeprefix(picture).removeprefix("#")
                    place = free_place(self._record.folder, answer.label, below, taken, number)
                fields = dict.fromkeys(FIELDS, "") | row(answer, self.recognizer.contents.identity)
                more = {"time": datetime.now().isoformat(timespec="seconds"), "stamp": state_of[picture]}
                rows.append(fields | more | {"place": place})
            if rows:
                yield self._judged(self._record.add(rows, self._way), [])

    def _judged(self, rows: list[Row], remarks: list[str]) -> Looked:
        answers = (fields["is_unknown"] == "true" for fields in rows if not fields["error"])
        return Looked(rows, remarks + [remark for answer in answers if (remark := self.drift.add(answer))])

    def _load(self) -> list[str]:
        """Read the recognizer and the boxes, again where their files have changed; what cannot be read stays."""
        remarks = []
        for path, read in ((self._file, self._take_recognizer), (self._boxes_file, self._take_boxes)):
            if path is None or (path in self._seen and stamp(path) == self._seen[path]):
                continue
            first, seen = path not in self._seen, stamp(path)
            try:
                read()
            except GlocalError as error:  # it may be half written
                if first:
                    raise
                remarks.append(f"the earlier one is used on: {error}")
            self._seen[path] = seen
        return remarks

    def _take_recognizer(self) -> None:
        loaded = Recognizer.load(self._file, device=self._device)
        if taken := [name for name in loaded.classes if name.casefold() in (ANSWERS, JOURNAL)]:
            raise DataError(f"class {taken[0]!r} has the name of a file of --out; rename it", code="class-name")
        self.recognizer = loaded
        self.drift = Drift(self.recognizer.threshold, self._last)

    def _take_boxes(self) -> None:
        if self._boxes_file is not None:
            self._boxes = read_boxes(self._boxes_file, min_confidence=self._min_confidence)

    def _new(self, state_of: Mapping[str, str]) -> list[Source]:
        """Pictures without a record of this state, or their regions without one."""
        stamps = self._record.stamps
        if self._boxes is None:
            return [as_source(Path(name)) for name, state in state_of.items() if stamps.get(name) != state]
        named = [as_source(Path(name)) for name in state_of if self._boxes.entry(name) is not None]
        regions = regions_of(named, self._boxes)[0] if named else []
        return [each for each in regions if stamps.get(each.name) != state_of[_picture(each)]]

    def _may_change(self, path: Path) -> bool:
        try:
            return time.time() - path.stat().st_ctime < self._patience
        except OSError:
            return True


def _picture(source: Source) -> str:
    """The picture that a source is, or is a region of."""
    return source.name if source.box is None else source.name.rpartition("#")[0]

"""A folder that fills: every new picture is answered once, put into a folder by answer, and recorded in a CSV.

Answers are journalled before anything is done about them.  After a kill the journal is carried out again: places that
are taken stay, and the CSV is cut back to its length before.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from glocal.bulk.places import Way, free_place, put
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
PATIENCE = 60.0  # seconds after its last change in which an unreadable picture may still become one
Row: TypeAlias = "dict[str, Any]"


class Inbox:
    """The pictures below a folder that are written completely."""

    def __init__(self, folder: Path, settle: float = SETTLE) -> None:
        self.folder, self._settle = folder, settle
        self._since: dict[tuple[str, str], float] = {}  # when a picture was first seen with this stamp

    def settled(self, now: float) -> dict[str, str]:
        """Pictures that have had one stamp for ``settle`` seconds, by name, with that stamp."""
        paths = (Path(parent, name) for parent, _, names in walk(self.folder) for name in names if is_picture(name))
        seen = [(str(path), state) for path in paths if (state := stamped(path))]
        self._since = {each: self._since.get(each, now) for each in seen}
        return {path: state for (path, state), since in self._since.items() if now - since >= self._settle}


def stamped(path: Path) -> str:
    """Size and time of a file; nothing where there is none."""
    try:
        status = path.stat()
    except OSError:  # gone, a link that leads nowhere or to itself, a folder without permission
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


class Record:
    """Answers and places below a folder; one process at a time."""

    def __init__(self, folder: Path, way: Way) -> None:
        self.folder, self._way = folder, way
        self._answers, self._journal = folder / ANSWERS, folder / JOURNAL
        self.stamps: dict[str, str] = {}  # of the pictures that are recorded

    def open(self) -> Iterator[Row]:
        """Carry out what a kill left, and read what is recorded."""
        with or_not_written(self.folder, "free some space or choose another place"):
            if not self._answers.exists():
                write_text(self._answers, ",".join(FIELDS) + "\n")
            for partial in self.folder.rglob(f".{'[0-9a-f]' * 32}.partial"):  # of a run that was killed
                partial.unlink()
        self.carry_out()
        with self._answers.open(encoding="utf-8", errors=ODD_NAMES, newline="") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ()) != FIELDS:
                raise DataError(
                    f"{self._answers} is not from `glocal watch`: its columns must be {', '.join(FIELDS)}; choose "
                    "another folder",
                    code="no-answers",
                )
            for fields in rows:
                self.stamps[fields["path"]] = fields["stamp"]
                yield fields

    def add(self, rows: list[Row]) -> list[Row]:
        """Place the pictures and record their answers; without those that have changed since they were looked at."""
        with or_not_written(self.folder, "nothing is lost: it goes on when the folder can be written"):
            write_text(self._journal, json.dumps({"size": self._answers.stat().st_size, "rows": rows}))
        return self.carry_out()

    def carry_out(self) -> list[Row]:
        """Do what is in the journal and was not done, as after a kill or a full disk."""
        if not self._journal.exists():
            return []
        try:
            journal = json.loads(self._journal.read_text("utf-8"))
            check_kind(journal, {"size": int, "rows": [dict.fromkeys(FIELDS, str)]}, JOURNAL)
            places = [Path(fields["place"]) for fields in journal["rows"]]
            if any(each.is_absolute() or ".." in each.parts for each in places):
                raise ValueError("a place leads out of the folder")
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{self._journal} is damaged: {shown(error)}; delete it, and its pictures are answered again",
                code="damaged-file",
            ) from error
        with or_not_written(self.folder, "nothing is lost: it goes on when the folder can be written"):
            rows = [fields for fields in journal["rows"] if not fields["place"] or self._is_placed(fields)]
            with self._answers.open("r+b") as file:
                file.seek(min(journal["size"], self._answers.stat().st_size))
                file.truncate()
                file.write("".join(csv_line(fields, FIELDS) for fields in rows).encode("utf-8", ODD_NAMES))
                file.flush()
                os.fsync(file.fileno())
            for fields in rows:
                self.stamps[fields["path"]] = fields["stamp"]
                if self._way is Way.move and fields["place"] and _is_same(fields):
                    with or_not_written(_source(fields), "it is placed; let it be removed from its folder"):
                        remove(_source(fields))
            remove(self._journal)
        return rows

    def _is_placed(self, fields: Row) -> bool:
        """Whether the picture is in its place now; one that is gone or has changed meanwhile is not."""
        target = self.folder / fields["place"]
        if not os.path.lexists(target) and _is_same(fields):
            box = Box(*map(int, fields["box"].split())) if fields["box"] else None
            put(_source(fields), target, self._way, box)
            if not _is_same(fields):
                remove(target)
        return os.path.lexists(target)


def _source(fields: Row) -> Path:
    return Path(fields["path"].rpartition("#")[0] if fields["box"] else fields["path"])


def _is_same(fields: Row) -> bool:
    """Whether the picture is still the one that was answered."""
    return stamped(_source(fields)) == fields["stamp"]


def _is_unknown(fields: Row) -> bool:
    return fields["is_unknown"] == "true"  # as it is in the CSV


class Looked(NamedTuple):
    """What one look at the folder brought."""

    rows: list[Row]
    remarks: list[str]


class Watch:
    """A recognizer that sorts the pictures of a folder as they come.

    The files of the recognizer and of the boxes are read again when they have changed.  A picture waits until the file
    of boxes names it.
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
        last: int = LAST,
        device: str = "auto",
    ) -> None:
        if boxes is not None and way is not Way.copy:
            raise DataError("regions of pictures are cut out, so they are copies; leave out --link and --move")
        self._file, self._boxes_file, self._min_confidence = file, boxes, min_confidence
        self._inbox, self._record = Inbox(inbox, settle), Record(out, way)
        self._last, self._device = last, device
        self._boxes: Boxes | None = None
        self._seen: list[Stamp | None] = []
        self.recognizer: Recognizer
        self.drift: Drift
        self._load()
        answers = (_is_unknown(fields) for fields in self._record.open() if not fields["error"])
        for is_unknown in deque(answers, maxlen=last):
            self.drift.add(is_unknown)

    def look(self, now: float) -> Iterator[Looked]:
        """Answer, place and record what is new and complete, batch by batch."""
        remarks = self._load()
        yield self._judged(self._record.carry_out(), remarks)
        stamps = self._inbox.settled(now)
        for answered in self.recognizer.batches(self._new(stamps)):
            taken: set[str] = set()
            rows = []
            for answer in answered.answers:
                place, state = "", stamps[self._picture(answer.path)]
                if not isinstance(answer, Unreadable):
                    below = Path(answer.path).relative_to(self._inbox.folder)
                    place = free_place(self._record.folder, answer.label, below, taken)
                    taken.add(place)
                elif _is_young(state):
                    continue
                more = {"time": datetime.now().isoformat(timespec="seconds"), "place": place, "stamp": state}
                rows.append(row(answer, self.recognizer.contents.identity) | more)
            if rows:
                yield self._judged(self._record.add(rows), [])

    def _judged(self, rows: list[Row], remarks: list[str]) -> Looked:
        added = [self.drift.add(_is_unknown(fields)) for fields in rows if not fields["error"]]
        return Looked(rows, [*remarks, *filter(None, added)])

    def _load(self) -> list[str]:
        """Read the recognizer and the boxes if a file has changed; what cannot be read leaves the earlier ones."""
        seen = [stamp(path) for path in (self._file, self._boxes_file) if path is not None]
        if seen == self._seen:
            return []
        first, self._seen = not self._seen, seen
        try:
            recognizer = Recognizer.load(self._file, device=self._device)
            if taken := [name for name in recognizer.classes if name.casefold() in (ANSWERS, JOURNAL)]:
                raise DataError(f"class {taken[0]!r} has the name of a file of --out; rename it", code="class-name")
            if self._boxes_file is not None:
                self._boxes = read_boxes(self._boxes_file, min_confidence=self._min_confidence)
        except GlocalError as error:  # it may be half written
            if first:
                raise
            return [f"the earlier one is used on: {error}"]
        if first or recognizer.contents.identity != self.recognizer.contents.identity:
            self.recognizer, self.drift = recognizer, Drift(recognizer.threshold, self._last)
        return []

    def _new(self, stamps: Mapping[str, str]) -> list[Source]:
        """Pictures without a record of this stamp, or their regions without one."""
        sources = [as_source(Path(name)) for name in stamps if self._boxes is None or self._boxes.entry(name)]
        if self._boxes is not None and sources:
            sources = regions_of(sources, self._boxes)[0]
        return [each for each in sources if self._record.stamps.get(each.name) != stamps[self._picture(each.name)]]

    def _picture(self, name: str) -> str:
        """The picture that a photo is, or is a region of."""
        return name if self._boxes is None else name.rpartition("#")[0]


def _is_young(state: str) -> bool:
    return abs(time.time() - int(state.split()[1]) / 1e9) < PATIENCE

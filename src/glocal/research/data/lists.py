"""Lists of images: CSV rows ``filename,label``."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple, TypeAlias

from glocal.common.errors import DataError
from glocal.recognizer.photos.folders import FileSource, Listing

_COLUMNS = (("filename", "file", "path", "image"), ("label", "class"))
Columns: TypeAlias = tuple[int, int]  # of file and label


def list_csv(path: Path) -> Listing:
    """Rows ``filename,label``; file names count from the folder the CSV lies in."""
    if not path.is_file():
        raise DataError(f"{path}: no such CSV file; it must hold the columns filename and label")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a CSV in UTF-8 ({error}); save it as comma-separated UTF-8 text") from error
    first_seen: dict[tuple[str, str], int] = {}
    for row in csv_rows(text, str(path)):
        if (earlier := first_seen.setdefault((row.filename, row.label), row.line)) != row.line:
            raise DataError(f"{path}: line {row.line} repeats line {earlier} ({row.filename!r}); list every image once")
    source = FileSource([str(path.parent / filename) for filename, _ in first_seen])
    return Listing(source, [label for _, label in first_seen], 0)


class ListedImage(NamedTuple):
    line: int
    filename: str
    label: str


def csv_rows(text: str, where: str) -> list[ListedImage]:
    """Rows ``filename,label``; a first row that names the columns is a header."""
    rows: list[ListedImage] = []
    columns: Columns = (0, 1)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for cells in ([cell.strip() for cell in row] for row in reader):
            if not any(cells):
                continue
            if not rows and (named := csv_header(cells)) is not None:
                columns = named
                continue
            file, label = (cells[c] if c < len(cells) else "" for c in columns)
            if not file or not label:
                row = ",".join(cells)[:80]
                raise DataError(f"{where}: line {reader.line_num} must give a file name and a label, got {row!r}")
            if "\0" in file + label:
                raise DataError(f"{where}: line {reader.line_num} holds a zero byte, which no file name and label has")
            rows.append(ListedImage(reader.line_num, file, label))
    except csv.Error as error:
        raise DataError(f"{where}: not a CSV ({error}); save it as comma-separated text") from error
    if not rows:
        raise DataError(f"{where}: no rows; it must hold one row filename,label per image")
    return rows


def csv_header(cells: list[str]) -> Columns | None:
    """Where file and label are when these cells are the names of columns."""
    lower = [cell.lower() for cell in cells]
    file, label = (next((lower.index(name) for name in names if name in lower), None) for names in _COLUMNS)
    return None if file is None or label is None else (file, label)

"""Lists of pictures: ``{train,val,test}.csv`` beside a folder of pictures, or one CSV of filename, label and split."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NoReturn

from glocal.data.layouts import Row, csv_header, csv_rows
from glocal.data.packings.content import SPLITS, WHOLE, Content, Part, of_files, side_of_files, split_named
from glocal.data.packings.tree import Tree, signature
from glocal_runtime.errors import DataError


def csv_per_split(tree: Tree) -> Content | None:
    """``images/*.jpg`` and ``{train,val,test}.csv``, with or without a header."""
    lists: dict[str, dict[str, str]] = {}  # folder -> split -> file
    for name in (name for name in tree.names if name.lower().endswith(".csv")):
        path = PurePosixPath(name)
        split = split_named(path.stem)
        if split is not None:
            lists.setdefault(str(path.parent), {})[split] = name
    found = [files for files in lists.values() if len(files) > 1]
    if not found or not tree.pictures:
        return None
    if len(found) > 1:
        raise DataError(f"{tree.path}: it has {len(found)} folders with lists train.csv and test.csv; keep one of them")
    index, seen = _Index(tree), dict[str, str]()
    parts: dict[str, Part] = {}
    for split in SPLITS:
        if split in found[0]:
            name = found[0][split]
            class_of = _resolved(tree, name, _read_rows(tree, name), index)
            for picture in class_of.keys() & seen.keys():
                raise DataError(f"{tree.where(name)}: picture {picture!r} is in {seen[picture]} already; list it once")
            seen.update(dict.fromkeys(class_of, found[0][split]))
            parts[split] = of_files(tree, class_of)
    words = f"pictures and one list per split ({{{','.join(parts)}}}.csv)"
    return Content(words, parts, "files", side_of_files(tree, seen))


def one_csv(tree: Tree) -> Content | None:
    """One CSV of filename, label and perhaps split: given itself, or alone beside the pictures it lists."""
    lists = [name for name in tree.names if name.lower().endswith(".csv")]
    if len(lists) != 1 or not (tree.pictures or (tree.path.is_file() and not tree.is_archive)):
        return None
    outside = not tree.pictures
    if not outside and not _lists_pictures(tree, lists[0]):
        return None  # a table of something else beside class folders
    rows = _read_rows(tree, lists[0])
    if outside:  # the list is its owner's: absolute names and ".." are followed wherever they lead
        for row in rows:
            if not (tree.base / row.filename).is_file():
                _refuse_missing(tree, lists[0], row)
        file_of = {row.filename: row for row in rows}
        tree = replace(tree, stored={name: name for name in file_of})
    else:
        file_of = dict(zip(_resolved(tree, lists[0], rows, _Index(tree)), rows, strict=True))
    splits = sorted({row.split for row in rows}, key=(*SPLITS, WHOLE).index)
    if WHOLE in splits and len(splits) > 1:
        raise DataError(f"{tree.path}: either every row of a list names a split or none does")
    parts = {
        split: of_files(tree, {name: row.label for name, row in file_of.items() if row.split == split})
        for split in splits
    }
    words = "one list of filename, label and split" if WHOLE not in parts else "one list of filename and label"
    return Content(
        f"{words} (CSV)",
        parts,
        "files",
        side_of_files(tree, file_of),
        key=signature(tree.base, [*file_of]) if outside else "",
    )


def _read_rows(tree: Tree, name: str) -> list[Row]:
    """The rows of a list, each of another picture, with the split it names or WHOLE."""
    where, rows = tree.where(name), list[Row]()
    first_seen: dict[str, Row] = {}
    for row in csv_rows(tree.text(name), where):
        if row.split and split_named(row.split) is None:
            raise DataError(f"{where}: line {row.line}: a split must be train, val or test, got {row.split[:40]!r}")
        if (earlier := first_seen.setdefault(row.filename, row)) is not row:
            what = "repeats" if earlier.label == row.label else f"gives {row.filename!r} another label than"
            raise DataError(f"{where}: line {row.line} {what} line {earlier.line}; list every picture once")
        rows.append(row._replace(split=split_named(row.split) or WHOLE))
    return rows


def _lists_pictures(tree: Tree, name: str) -> bool:
    """Whether a CSV says so in its header, or names a picture in its first row."""
    cells = [cell.strip() for cell in next(csv.reader(io.StringIO(tree.text(name)[:4096])), [])]
    first = Row(1, cells[0], cells[1], WHOLE) if len(cells) > 1 else None
    return csv_header(cells) is not None or (first is not None and _Index(tree).find("", first) is not None)


class _Index:
    """Finds the picture that a list means: lists count from many places."""

    def __init__(self, tree: Tree) -> None:
        self._names = set(tree.pictures)
        self._by_file: dict[str, list[str]] = {}
        for name in tree.pictures:
            self._by_file.setdefault(name.rpartition("/")[2], []).append(name)

    def find(self, folder: str, row: Row) -> str | None:
        given = row.filename.replace("\\", "/").removeprefix("./")
        for candidate in (f"{folder}/{given}" if folder else given, given, f"images/{given}"):
            if candidate in self._names:
                return candidate
        called = self._by_file.get(given.rpartition("/")[2], [])
        of_class = [name for name in called if PurePosixPath(name).parent.name == row.label]
        fitting = [name for name in called if name.endswith(f"/{given}")]
        return next((found[0] for found in (fitting, of_class) if len(found) == 1), None)


def _resolved(tree: Tree, name: str, rows: list[Row], index: _Index) -> Mapping[str, str]:
    """Picture -> class, in the order of the rows."""
    class_of: dict[str, str] = {}
    for row in rows:
        picture = index.find(name.rpartition("/")[0], row)
        if picture is None:
            _refuse_missing(tree, name, row)
        if picture in class_of:
            raise DataError(f"{tree.where(name)}: line {row.line} names {picture!r}, which an earlier line names too")
        class_of[picture] = row.label
    return class_of


def _refuse_missing(tree: Tree, name: str, row: Row) -> NoReturn:
    raise DataError(
        f"{tree.where(name)}: line {row.line} names {row.filename!r}, and there is no such picture; "
        "copy it there or remove the line"
    )

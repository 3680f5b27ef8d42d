"""Picture files in folders or lists: by class, by split and class, by superclass and class, or as a list says.

Lists name classes (``{train,val,test}.txt``, CUB's) or pictures: a CSV per split, or one of filename, label and split.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NoReturn

from glocal.common.errors import DataError
from glocal.research.data.lists import Row, csv_header, csv_rows
from glocal.research.data.packings.content import SPLITS, WHOLE, Content, Part, of_files, side_of_files, split_named
from glocal.research.data.packings.tree import Tree, signature
from glocal.research.data.splits import SUPERCLASSES


def _files_of_splits(tree: Tree, suffix: str) -> dict[str, dict[str, str]]:
    """Folder -> split -> the file that is called like the split."""
    files: dict[str, dict[str, str]] = {}
    for path in (PurePosixPath(name) for name in tree.names if name.lower().endswith(suffix)):
        split = split_named(path.stem)
        if split is not None:
            files.setdefault(str(path.parent), {})[split] = str(path)
    return files


def listed_classes(tree: Tree) -> Content | None:
    """``data/<class>/pictures`` and ``splits/<whose>/{train,val,test}.txt``, each a list of classes."""
    lists = _files_of_splits(tree, ".txt")
    lists = {folder: files for folder, files in lists.items() if "train" in files and len(files) > 1}
    folder = next((each for each in lists if each.endswith("bertinetto")), next(iter(lists), None))
    pictures = [name for name in tree.pictures if name.count("/")]
    if folder is None or not pictures:
        return None
    class_of = {name: name.split("/")[-2] for name in pictures}
    present, parts = set(class_of.values()), {}
    for split in SPLITS:
        if split not in lists[folder]:
            continue
        listed = lists[folder][split]
        wanted = {line.strip() for line in tree.text(listed).splitlines() if line.strip()}
        if split == "train" and not wanted & present:
            return None  # a list of something else
        if missing := sorted(wanted - present):
            raise DataError(
                f"{tree.where(listed)}: it lists class {missing[0]!r}, and no folder of pictures is called so; "
                "get the pictures that belong to the list"
            )
        parts[split] = of_files(tree, {name: label for name, label in class_of.items() if label in wanted})
    words = f"class folders and lists of classes ({folder}/{{{','.join(parts)}}}.txt)"
    return _found(tree, words, parts)


def cub(tree: Tree) -> Content | None:
    """CUB-200-2011 as published: ``images/<class>/``, ``images.txt``, ``image_class_labels.txt``, ``classes.txt``."""
    lists = ("images.txt", "image_class_labels.txt", "classes.txt")
    if not all(name in tree.names for name in lists):
        return None
    files, label_of, class_names = (_numbered(tree, name) for name in lists)
    if files.keys() != label_of.keys():
        raise DataError(f"{tree.path}: images.txt has {len(files)} rows and image_class_labels.txt {len(label_of)}")
    class_of: dict[str, str] = {}
    for number, file in files.items():
        name, label = f"images/{file}", class_names.get(label_of[number])
        if name not in tree.names:
            raise DataError(f"{tree.path}: images.txt lists {file!r}, and it is not below images/; copy it again")
        if label is None or label != file.split("/")[0]:
            raise DataError(f"{tree.path}: picture {file!r} is labelled {label!r}, which is not the folder it lies in")
        class_of[name] = label
    return _found(tree, "CUB's folders and lists (images/, images.txt, classes.txt)", {WHOLE: of_files(tree, class_of)})


def _numbered(tree: Tree, name: str) -> dict[str, str]:
    """Rows ``number text``."""
    rows: dict[str, str] = {}
    for row in filter(None, map(str.strip, tree.text(name).splitlines())):
        number, _, text = row.partition(" ")
        if not text or number in rows:
            raise DataError(f"{tree.where(name)}: rows must be a number of their own and a text, got {row[:60]!r}")
        rows[number] = text.strip()
    return rows


def divided_folders(tree: Tree) -> Content | None:
    """``{train,val,test}/<class>/**/picture``."""
    inside: dict[str, dict[str, str]] = {}  # split -> picture -> the rest of its name
    for name in tree.pictures:
        top, _, inner = name.partition("/")
        split = split_named(top)
        if split is None or "/" not in inner:
            return None  # "train" right above pictures is a class of CIFAR-100
        inside.setdefault(split, {})[name] = inner
    if len(inside) < 2:
        return None
    _refuse_empty(tree, depth=2)
    parts = {split: of_files(tree, _classes(inside[split])) for split in SPLITS if split in inside}
    return _found(tree, f"class folders in {', '.join(parts)}", parts)


def class_folders(tree: Tree) -> Content | None:
    """``<class>/**/picture``, or ``<superclass>/<class>/picture`` with the superclasses of CIFAR-100."""
    if not tree.pictures or any("/" not in name for name in tree.pictures):
        return None
    _refuse_half_divided(tree)
    _refuse_empty(tree, depth=1)
    class_of = _classes({name: name for name in tree.pictures})
    return _found(tree, "class folders", {WHOLE: of_files(tree, class_of)})


def _classes(inner: Mapping[str, str]) -> dict[str, str]:
    """Picture -> class: its first folder, or the second one where all the first are superclasses of CIFAR-100."""
    folders = {name: path.split("/") for name, path in inner.items()}
    nested = all(len(each) > 2 and each[1] in SUPERCLASSES.get(each[0], ()) for each in folders.values())
    return {name: each[1 if nested else 0] for name, each in folders.items()}


def _refuse_half_divided(tree: Tree) -> None:
    """train and test beside other folders are no classes, and nobody can tell where the others belong."""
    tops = {name.partition("/")[0] for name in tree.pictures}
    splits = {name.partition("/")[0] for name in tree.pictures if name.count("/") > 1} & {
        t for t in tops if split_named(t)
    }
    if len(splits) > 1:
        other = next(iter(sorted(tops - splits)), "pictures without a class folder")
        raise DataError(
            f"{tree.path}: it is divided into {', '.join(sorted(splits))}, and {other!r} belongs to none of them; "
            "move it into a split or away"
        )


def _refuse_empty(tree: Tree, *, depth: int) -> None:
    """A folder where a class must be that has no picture is a mistake to be told, not a class to be left out."""
    with_pictures = {tuple(name.split("/")[:depth]) for name in tree.pictures}
    others = {tuple(name.split("/")[:depth]) for name in tree.names if name.count("/") >= depth} - with_pictures
    if empty := [*tree.empty, *sorted("/".join(each) for each in others)]:
        raise DataError(f"{tree.path}: folder {empty[0]!r} has no picture; add pictures of that class or remove it")


def _found(tree: Tree, words: str, parts: Mapping[str, Part]) -> Content:
    packed = " in an archive" if tree.is_archive else ""
    return Content(f"{words}{packed}", parts, "files", side_of_files(tree, tree.pictures))


def csv_per_split(tree: Tree) -> Content | None:
    """``images/*.jpg`` and ``{train,val,test}.csv``, with or without a header."""
    found = [files for files in _files_of_splits(tree, ".csv").values() if len(files) > 1]
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

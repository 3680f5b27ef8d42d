"""Picture files in folders: by class, by split and class, by superclass and class, or as lists of classes say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from glocal.data.packings.content import SPLITS, WHOLE, Content, Part, of_files, side_of_files, split_named
from glocal.data.packings.tree import Tree
from glocal.data.splits import SUPERCLASSES
from glocal_runtime.errors import DataError


def listed_classes(tree: Tree) -> Content | None:
    """``data/<class>/pictures`` and ``splits/<whose>/{train,val,test}.txt``, each a list of classes."""
    lists: dict[str, dict[str, str]] = {}  # folder -> split -> file
    for name in (name for name in tree.names if name.endswith(".txt")):
        path = PurePosixPath(name)
        split = split_named(path.stem)
        if split is not None:
            lists.setdefault(str(path.parent), {})[split] = name
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

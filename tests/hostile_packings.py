"""Packings that contradict themselves or what is published."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from glocal.research.data.splits import CIFAR100
from hostile import Runs, Write, hostile_inputs
from packings import PACKINGS, Content, dump, make_content
from pictures import png, write_file

CIFAR, CUB, MINI, TIERED = "cifar-fs", "cub", "mini-imagenet", "tiered-imagenet"
content: Callable[[str], Content] = cache(make_content)
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)


def packed(form: str, change: Callable[[Path], object]) -> Write:
    """A good packing with something changed in it."""

    def write(root: Path) -> Path:
        path = PACKINGS[form](root, content(form.partition(":")[0]))
        change(path)
        return path

    return write


def redone(file: str, **changed: object) -> Callable[[Path], None]:
    """Entries of a pickle replaced; None takes one out."""

    def change(root: Path) -> None:
        value = {**pickle.loads((root / file).read_bytes(), encoding="bytes")}
        for key, new in changed.items():
            value.pop(key.encode(), None)
            value[key] = new
        dump(root / file, {key: each for key, each in value.items() if each is not None})

    return change


def copied(old: str, new: str) -> Callable[[Path], None]:
    return lambda root: write_file(root / new, (root / old).read_bytes())


def removed(file: str) -> Callable[[Path], None]:
    return lambda root: (root / file).unlink()


def text(file: str, content: str | bytes) -> Callable[[Path], None]:
    return lambda root: write_file(root / file, content.encode() if isinstance(content, str) else content)


def files(values: dict[str, Any], given: str = "", protocol: int = 2) -> Write:
    """Pickles and npz files by name; ``given`` is the one to pass on in place of their folder."""

    def write(root: Path) -> Path:
        root.mkdir(parents=True)
        for file, value in values.items():
            if file.endswith(".npz"):
                np.savez(root / file, **value)
            else:
                dump(root / file, value, protocol)
        return root / given

    return write


def one_pickle(value: Any, protocol: int = 2) -> Write:
    return files({"data.pickle": value}, "data.pickle", protocol)


# Pickles of pictures and labels.


def cifar_labels(value: object) -> Write:
    return packed("cifar-fs: CIFAR_FS pickles", redone("CIFAR_FS_val.pickle", labels=value))


hostile_inputs(
    "labels that do not match the pictures",
    ("fewer", "there are 6 pictures and 5 labels", cifar_labels([10] * 5)),
    ("more", "there are 6 pictures and 7 labels", cifar_labels([10] * 7)),
    ("none", "there are 6 pictures and 0 labels", cifar_labels([])),
    ("matrix", r"must be one per picture, got an array of \(6, 2\)", cifar_labels(np.zeros((6, 2), int))),
    name=CIFAR,
)
_npz, _png = "tiered-imagenet: npz of images and pickles of labels", "tiered-imagenet: pickles of PNG and of labels"
hostile_inputs(
    "labels that do not match the pictures",
    ("of another split", "9 pictures and 6 labels", packed(_npz, copied("val_labels.pkl", "train_labels.pkl"))),
    name=TIERED,
)
hostile_inputs(
    "labels that do not match the pictures",
    ("npz", "6 pictures and 5 labels", files({"few-shot-train.npz": {"features": PIXELS, "targets": np.arange(5)}})),
)
hostile_inputs(
    "labels that are none",
    ("None", "a label must be a name or a whole number", cifar_labels([None] * 6)),
    ("half", "whole number from 0, got 0.5", cifar_labels([0.5] * 6)),
    ("nan", "whole number from 0, got nan", cifar_labels([float("nan")] * 6)),
    ("negative", "whole number from 0, got -1", cifar_labels([-1] * 6)),
    ("huge", "whole number from 0, got a number that does not end", cifar_labels([10**5000] * 6)),
    ("infinite", "whole number from 0, got inf", cifar_labels([float("inf")] * 6)),
    ("lists", "whole number, got a list", cifar_labels([[1]] * 6)),
    ("yes and no", "whole number, got a bool", cifar_labels([True] * 6)),
    ("dict", "labels must be a list or an array, got a dict", cifar_labels({})),
    ("text", "labels must be a list or an array, got a str", cifar_labels("abcdef")),
    name=CIFAR,
)
_pictures = "pictures must be an array or a list of at least one, got a "
hostile_inputs(
    "pickle without pictures",
    ("dict", r"must hold pictures \(data or image_data\) or labels .* got a$", one_pickle({"a": 1})),
    ("empty dict", "got an empty dict", one_pickle({})),
    ("number", f"{_pictures}int", one_pickle(7)),
    ("text", f"{_pictures}str", one_pickle("pictures")),
    ("empty list", f"{_pictures}list", one_pickle([])),
    ("numbered keys", "the keys of its dict must be text, got 1", one_pickle({1: PIXELS})),
    ("key twice", "has the key 'data' twice", one_pickle({"data": PIXELS, b"data": PIXELS}, 3)),
    ("labels alone", "has labels .* and no pictures", one_pickle({"labels": [1, 2]})),
    ("pictures alone", "need one file of labels, found 0", one_pickle({"data": PIXELS})),
)


def data(value: Any) -> Write:
    return one_pickle({"data": value, "labels": [0] * len(value)}, 4)


hostile_inputs(
    "array that is no picture",
    ("features", r"got float32 \(6, 640\); features of a network", data(np.zeros((6, 640), np.float32))),
    ("floats", "must be an array of uint8", data(PIXELS / 255)),
    ("grey", "must be an array of uint8", data(PIXELS[..., 0])),
    ("no rows", "with n > 0", data(PIXELS[:0])),
    ("flat", "must be an array of uint8", data(PIXELS.reshape(-1))),
    ("four channels", "must be an array of uint8", data(np.zeros((6, 8, 8, 4), np.uint8))),
    ("small", "each side must have at least 8 pixels, got 4x4", data(PIXELS[:, :4, :4])),
    ("dict", f"{_pictures}dict", data({})),
)
_good = png(PIXELS[0])
hostile_inputs(
    "damaged picture in a pickle",
    ("text", "its content is not a picture", data([_good, b"no picture" * 200])),
    ("cut", "damaged, truncated or of a rare kind", data([_good, _good[:-40]])),
    ("empty", "the file is empty", data([_good, b""])),
    ("number", "it must hold bytes, got a int", data([_good, 5])),
    ("unicode", "it must hold bytes, got a str", data([_good, "\u20ac" * 9])),
    ("small", "each side must have at least 8 pixels", data([_good, png(np.zeros((4, 4, 3), np.uint8))])),
    ("floats", r"pixels must be uint8 \(H, W, 3\), got float64", data([_good, np.zeros((8, 8, 3))])),
)


def cache_rows(rows: object) -> Write:
    return packed("mini-imagenet: cache pickles", redone("mini-imagenet-cache-val.pkl", class_dict=rows))


hostile_inputs(
    "rows of classes that contradict each other",
    ("row twice", "picture 1 is in class 'a' and again in 'b'", cache_rows({"a": [0, 1], "b": [1, 2]})),
    ("row outside", r"must list rows in 0\.\.5, got 6", cache_rows({"a": [6]})),
    ("negative row", r"must list rows in 0\.\.5, got -1", cache_rows({"a": [-1]})),
    ("row missing", "picture 1 has none", cache_rows({"a": [0]})),
    ("no rows", "picture 0 has none", cache_rows({})),
    ("a list", "it must hold a dict, got a list", cache_rows([[0, 1]])),
    name=MINI,
)
hostile_inputs(
    "file that lacks its other half",
    ("labels", r"split 'val' has labels \(val_labels\.pkl\) and no", packed(_npz, removed("val_images.npz"))),
    ("pictures", "need one file of labels, found 0", packed(_png, removed("val_labels.pkl"))),
    ("names", "label 1 of split 'val' has no name", packed(_png, redone("val_labels.pkl", label_specific_str=["a"]))),
    ("rivals", "both hold pictures of split 'val'", packed(_npz, copied("val_images.npz", "more_val.npz"))),
    name=TIERED,
)
_targets = {"targets": np.arange(6)}
hostile_inputs(
    "npz of something else",
    ("labels", "pictures must be called images or features, it has targets", files({"a.npz": _targets})),
    ("features", "features of a network", files({"a.npz": {"features": np.zeros((6, 640)), **_targets}})),
    ("nothing", "it has nothing", files({"a.npz": {}})),
)

# What is published.

_two = {f"{split}.pickle": {"data": PIXELS, "labels": [c] * 6} for split, c in (("train", "apple"), ("val", "rose"))}
hostile_inputs(
    "class in another split than published",
    ("pickles", "'rose' belongs to split 'test' of cifar-fs as published, and here it is in 'val'", files(_two)),
    name=CIFAR,
)
_kind = "classes that are not the published ones"
_many = redone("CIFAR_FS_val.pickle", labels=[*range(17)], data=np.zeros((17, 8, 8, 3), np.uint8))
_named = {"data": PIXELS, "labels": ["a"] * 3 + ["b"] * 3}
_numbers = one_pickle({"data": PIXELS, "labels": [*range(6)]})
hostile_inputs(_kind, ("many", "16 classes, and here are 17", packed("cifar-fs: CIFAR_FS pickles", _many)), name=CIFAR)
hostile_inputs(_kind, ("numbers", "only numbers here and not divided", _numbers), name=TIERED)
hostile_inputs(_kind, ("a name", "'a' is not one of the 100 classes", one_pickle(_named)), name=MINI)
_numbered = {f"few-shot-{s}.npz": {"features": PIXELS, "targets": np.zeros(6, int)} for s in ("train", "val")}
hostile_inputs(
    "class in two splits",
    ("pickles", "'a' is in 'train' and again in 'test'", files({"train.pickle": _named, "test.pickle": _named})),
    ("npz", "'0' is in 'train' and again in 'val'", files(_numbered)),
)
_home = "cifar-100-python"
hostile_inputs(
    "batches of CIFAR-100 that are none",
    *(
        (label, words, packed("cifar-fs: cifar-100-python", change))
        for label, words, change in (
            ("label 100", r"must be in 0\.\.99, got '100'", redone(f"{_home}/test", fine_labels=[100] * 7)),
            ("no labels", "must hold data and fine_labels", redone(f"{_home}/test", fine_labels=None)),
            ("fewer labels", "pictures and 1 labels", redone(f"{_home}/train", fine_labels=[1])),
            ("rows", "must be an array of uint8", redone(f"{_home}/train", data=np.zeros((14, 3071), np.uint8))),
            ("order", "in their order", redone(f"{_home}/meta", fine_label_names=[*reversed(CIFAR100)])),
            ("meta", "it must hold a dict, got a list", lambda root: dump(root / _home / "meta", [1])),
            ("a program", r"asks for '(posix|nt)\.mkdir'", lambda root: dump(root / _home / "meta", Runs(root / "x"))),
        )
    ),
    name=CIFAR,
)
_cub, _bird = "CUB_200_2011", "001.Black_footed_Albatross/001.Black_footed_Albatross00000000.jpg"
hostile_inputs(
    "lists of CUB that contradict each other",
    *(
        (label, words, packed("cub: CUB_200_2011", change))
        for label, words, change in (
            ("picture missing", f"images.txt lists '{_bird}', and it is not", removed(f"{_cub}/images/{_bird}")),
            ("fewer labels", "images.txt has 21 rows and .* 1", text(f"{_cub}/image_class_labels.txt", "1 1\n")),
            ("another class", "'Crow', which is not the folder it lies", text(f"{_cub}/classes.txt", "1 Crow\n")),
            ("twice", "rows must be a number of their own", text(f"{_cub}/classes.txt", "1 Crow\n1 Owl\n")),
            ("no number", "a number of their own and a text, got 'Crow'", text(f"{_cub}/classes.txt", "Crow\n")),
            ("not text", "not text in UTF-8", text(f"{_cub}/classes.txt", b"1 \xff\xfe\n")),
        )
    ),
    name=CUB,
)
_lists = "cifar-fs: data and splits/bertinetto"
hostile_inputs(
    "lists of classes that are not there",
    *(
        (label, words, packed(_lists, text(f"splits/bertinetto/{file}.txt", lines)))
        for label, words, file, lines in (
            ("unknown", "it lists class 'dragon', and no folder", "val", "dragon\n"),
            ("some unknown", "it lists class 'unicorn', and no folder", "train", "apple\nunicorn\n"),
            ("twice", "'apple' (belongs to split 'train'|is in 'train' and again)", "val", "apple\n"),
            ("not text", "not text in UTF-8", "val", b"\xff\xfe"),
        )
    ),
    name=CIFAR,
)

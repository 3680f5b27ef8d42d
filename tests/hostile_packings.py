"""Packings that contradict themselves or what is published."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from glocal.data.splits import CIFAR100
from hostile import Runs
from hostile_inputs import Write, hostile_input
from packings import PACKINGS, Content, dump, make_content, png, write_file

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


def removed(file: str) -> Callable[[Path], None]:
    return lambda root: (root / file).unlink()


def text(file: str, content: str | bytes) -> Callable[[Path], None]:
    return lambda root: write_file(root / file, content.encode() if isinstance(content, str) else content)


def one_pickle(value: Any, protocol: int = 2) -> Write:
    def write(root: Path) -> Path:
        dump(root / "data.pickle", value, protocol)
        return root / "data.pickle"

    return write


def pickles(values: dict[str, Any]) -> Write:
    def write(root: Path) -> Path:
        for file, value in values.items():
            dump(root / file, value)
        return root

    return write


def arrays(values: dict[str, dict[str, np.ndarray]]) -> Write:
    def write(root: Path) -> Path:
        root.mkdir(parents=True)
        for file, each in values.items():
            np.savez(root / file, **each)
        return root

    return write


# Pickles of pictures and labels.

_kind = "labels that do not match the pictures"
_form = "cifar-fs: CIFAR_FS pickles"
_val = partial(redone, "CIFAR_FS_val.pickle")
for _label, _value, _words in (
    ("fewer", [10] * 5, "there are 6 pictures and 5 labels"),
    ("more", [10] * 7, "there are 6 pictures and 7 labels"),
    ("none", [], "there are 6 pictures and 0 labels"),
    ("matrix", np.zeros((6, 2), int), r"must be one per picture, got an array of \(6, 2\)"),
):
    hostile_input(_kind, _label, _words, packed(_form, _val(labels=_value)), name=CIFAR)
hostile_input(
    _kind,
    "npz",
    "there are 6 pictures and 5 labels",
    arrays({"few-shot-train.npz": {"features": PIXELS, "targets": np.arange(5)}}),
)
hostile_input(
    _kind,
    "labels of another split",
    "there are 9 pictures and 6 labels",
    packed(
        "tiered-imagenet: npz of images and pickles of labels",
        lambda root: (root / "train_labels.pkl").write_bytes((root / "val_labels.pkl").read_bytes()),
    ),
    name=TIERED,
)

_kind = "labels that are none"
for _label, _value, _words in (
    ("None", [None] * 6, "a label must be a name or a whole number"),
    ("half", [0.5] * 6, "whole number from 0, got 0.5"),
    ("nan", [float("nan")] * 6, "whole number from 0, got nan"),
    ("negative", [-1] * 6, "whole number from 0, got -1"),
    ("lists", [[1]] * 6, "whole number, got a list"),
    ("yes and no", [True] * 6, "whole number, got a bool"),
    ("dict", {}, "labels must be a list or an array, got a dict"),
    ("text", "abcdef", "labels must be a list or an array, got a str"),
):
    hostile_input(_kind, _label, _words, packed(_form, _val(labels=_value)), name=CIFAR)

_kind = "pickle without pictures"
for _label, _made, _words in (
    ("dict", {"a": 1}, r"must hold pictures \(data or image_data\) or labels .* got a$"),
    ("empty dict", {}, "got an empty dict"),
    ("number", 7, "pictures must be an array or a list of at least one, got a int"),
    ("text", "pictures", "pictures must be an array or a list of at least one, got a str"),
    ("empty list", [], "pictures must be an array or a list of at least one, got a list"),
    ("numbered keys", {1: PIXELS}, "the keys of its dict must be text, got 1"),
    ("key twice", {"data": PIXELS, b"data": PIXELS}, "has the key 'data' twice"),
    ("labels alone", {"labels": [1, 2]}, "has labels .* and no pictures"),
    ("pictures alone", {"data": PIXELS}, "need one file of labels, found 0"),
):
    hostile_input(_kind, _label, _words, one_pickle(_made, 3))

_kind = "array that is no picture"
for _label, _data, _words in (
    ("features", np.zeros((6, 640), np.float32), r"got float32 \(6, 640\); features of a network"),
    ("floats", PIXELS / 255, "must be an array of uint8"),
    ("grey", PIXELS[..., 0], "must be an array of uint8"),
    ("no rows", PIXELS[:0], "with n > 0"),
    ("flat", PIXELS.reshape(-1), "must be an array of uint8"),
    ("four channels", np.zeros((6, 8, 8, 4), np.uint8), "must be an array of uint8"),
    ("small", PIXELS[:, :4, :4], "each side must have at least 8 pixels, got 4x4"),
    ("dict", {}, "pictures must be an array or a list of at least one"),
):
    hostile_input(_kind, _label, _words, one_pickle({"data": _data, "labels": [0] * len(_data)}))

_good = png(PIXELS[0])
_kind = "damaged picture in a pickle"
for _label, _picture, _words in (
    ("text", b"no picture" * 200, "its content is not a picture"),
    ("cut", _good[:-40], "damaged, truncated or of a rare kind"),
    ("empty", b"", "the file is empty"),
    ("number", 5, "it must hold bytes, got a int"),
    ("unicode", "\u20ac" * 9, "it must hold bytes, got a str"),
    ("small", png(np.zeros((4, 4, 3), np.uint8)), "each side must have at least 8 pixels"),
    ("floats", np.zeros((8, 8, 3)), r"pixels must be uint8 \(H, W, 3\), got float64"),
):
    hostile_input(_kind, _label, _words, one_pickle({"data": [_good, _picture], "labels": [0, 0]}, 4))

_kind = "rows of classes that contradict each other"
_cache = "mini-imagenet: cache pickles"
for _label, _rows, _words in (
    ("row twice", {"a": [0, 1], "b": [1, 2]}, "picture 1 is in class 'a' and again in 'b'"),
    ("row outside", {"a": [6]}, r"must list rows in 0\.\.5, got 6"),
    ("negative row", {"a": [-1]}, r"must list rows in 0\.\.5, got -1"),
    ("row missing", {"a": [0]}, "picture 1 has none"),
    ("no rows", {}, "picture 0 has none"),
    ("a list", [[0, 1]], "it must hold a dict, got a list"),
):
    hostile_input(
        _kind, _label, _words, packed(_cache, redone("mini-imagenet-cache-val.pkl", class_dict=_rows)), name=MINI
    )

_kind = "file that lacks its other half"
_npz, _png = "tiered-imagenet: npz of images and pickles of labels", "tiered-imagenet: pickles of PNG and of labels"
for _label, _packing, _change, _words in (
    ("labels", _npz, removed("val_images.npz"), r"split 'val' has labels \(val_labels\.pkl\) and no pictures"),
    ("pictures", _png, removed("val_labels.pkl"), r"val_images_png\.pkl need one file of labels, found 0"),
    ("names", _png, redone("val_labels.pkl", label_specific_str=["a"]), "label 1 of split 'val' has no name in the"),
    (
        "rivals",
        _npz,
        lambda root: (root / "more_val.npz").write_bytes((root / "val_images.npz").read_bytes()),
        "both hold pictures of split 'val'; move one away",
    ),
):
    hostile_input(_kind, _label, _words, packed(_packing, _change), name=TIERED)

_kind = "npz of something else"
_targets = {"targets": np.arange(6)}
hostile_input(
    _kind, "labels", "pictures must be called images or features, it has targets", arrays({"a.npz": _targets})
)
hostile_input(
    _kind, "features", "features of a network", arrays({"a.npz": {"features": np.zeros((6, 640)), **_targets}})
)
hostile_input(_kind, "nothing", "it has nothing", arrays({"a.npz": {}}))

# What is published.

_kind = "class in another split than published"
hostile_input(
    _kind,
    "pickles",
    "class 'rose' belongs to split 'test' of cifar-fs as published, and here it is in 'val'",
    pickles(
        {
            "train.pickle": {"data": PIXELS, "labels": ["apple"] * 6},
            "val.pickle": {"data": PIXELS, "labels": ["rose"] * 6},
        }
    ),
    name=CIFAR,
)
_kind = "classes that are not the published ones"
hostile_input(
    _kind,
    "too many",
    "split 'val' of cifar-fs has 16 classes, and here are 17",
    packed(_form, _val(labels=[*range(17)], data=np.zeros((17, 8, 8, 3), np.uint8))),
    name=CIFAR,
)
hostile_input(
    _kind,
    "numbers that are not divided",
    "only numbers here and not divided",
    one_pickle({"data": PIXELS, "labels": [*range(6)]}),
    name=TIERED,
)
hostile_input(
    _kind,
    "a name that is not published",
    "'x' is not one of the 100 classes",
    one_pickle({"data": PIXELS, "labels": ["x"] * 6}),
    name=MINI,
)
_kind = "class in two splits"
_named = {"data": PIXELS, "labels": ["a"] * 3 + ["b"] * 3}
hostile_input(
    _kind,
    "pickles",
    "a class must be in one split only, but 'a' is in 'train' and again in 'test'",
    pickles({"train.pickle": _named, "test.pickle": _named}),
)
hostile_input(
    _kind,
    "npz",
    "a class must be in one split only, but '0' is in 'train' and again in 'val'",
    arrays({f"few-shot-{s}.npz": {"features": PIXELS, "targets": np.zeros(6, int)} for s in ("train", "val")}),
)

_kind = "batches of CIFAR-100 that are none"
_batches = "cifar-fs: cifar-100-python"
_home = "cifar-100-python"
for _label, _change, _words in (
    ("label 100", redone(f"{_home}/test", fine_labels=[100] * 7), r"must be in 0\.\.99, got '100'"),
    ("no labels", redone(f"{_home}/test", fine_labels=None), "must hold data and fine_labels"),
    ("fewer labels", redone(f"{_home}/train", fine_labels=[1]), "pictures and 1 labels"),
    ("other rows", redone(f"{_home}/train", data=np.zeros((14, 3071), np.uint8)), "must be an array of uint8"),
    ("other order", redone(f"{_home}/meta", fine_label_names=[*reversed(CIFAR100)]), "in their order"),
    ("meta is a list", lambda root: dump(root / _home / "meta", [1]), "it must hold a dict, got a list"),
    ("a program", lambda root: dump(root / _home / "meta", Runs(root / "x")), "asks for '(posix|nt).mkdir'"),
):
    hostile_input(_kind, _label, _words, packed(_batches, _change), name=CIFAR)

_kind = "lists of CUB that contradict each other"
_cub, _bird = "CUB_200_2011", "001.Black_footed_Albatross/001.Black_footed_Albatross00000000.jpg"
for _label, _change, _words in (
    ("picture missing", removed(f"{_cub}/images/{_bird}"), f"images.txt lists '{_bird}', and it is not"),
    ("fewer labels", text(f"{_cub}/image_class_labels.txt", "1 1\n"), "images.txt has 21 rows and .* 1"),
    ("another class", text(f"{_cub}/classes.txt", "1 Crow\n"), "is labelled 'Crow', which is not the folder it lies"),
    ("number twice", text(f"{_cub}/classes.txt", "1 Crow\n1 Owl\n"), "rows must be a number of their own"),
    ("no number", text(f"{_cub}/classes.txt", "Crow\n"), "rows must be a number of their own and a text, got 'Crow'"),
    ("not text", text(f"{_cub}/classes.txt", b"1 \xff\xfe\n"), "not text in UTF-8"),
):
    hostile_input(_kind, _label, _words, packed("cub: CUB_200_2011", _change), name=CUB)

_kind = "lists of classes that are not there"
_lists = "cifar-fs: data and splits/bertinetto"
for _label, _change, _words in (
    ("unknown", text("splits/bertinetto/val.txt", "dragon\n"), "it lists class 'dragon', and no folder"),
    (
        "some unknown",
        text("splits/bertinetto/train.txt", "apple\nunicorn\n"),
        "it lists class 'unicorn', and no folder",
    ),
    (
        "twice",
        text("splits/bertinetto/val.txt", "apple\n"),
        "'apple' (belongs to split 'train'|is in 'train' and again)",
    ),
    ("not text", text("splits/bertinetto/val.txt", b"\xff\xfe"), "not text in UTF-8"),
):
    hostile_input(_kind, _label, _words, packed(_lists, _change), name=CIFAR)

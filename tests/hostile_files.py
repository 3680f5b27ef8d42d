"""Folders, lists and picture files that cannot be a data set, and good packings that were cut short."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hostile_inputs import Write, hostile_input
from hostile_packings import CIFAR, MINI, content, packed, text
from packings import PACKINGS, by_split, cifar_pickles, png, tarred, tiered_npz, write_file, zipped

BLACK = png(np.zeros((8, 8, 3), np.uint8))
NOISE = png(np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8))
OWN = ("a/1.png", "a/2.png", "b/1.png", "c/1.png")


def folder(*files: str, change: Callable[[Path], object] = lambda root: None) -> Write:
    """Black pictures, with something changed."""

    def write(root: Path) -> Path:
        root.mkdir(parents=True)
        for file in files:
            write_file(root / file, BLACK)
        change(root)
        return root

    return write


def inside(write: Write, file: str) -> Write:
    """A file of the folder written, in place of the folder."""
    return lambda root: write(root) / file


def listed(rows: str | bytes, file: str = "list.csv") -> Write:
    """A CSV beside pictures, given itself."""
    return inside(folder(*OWN, change=text(file, rows)), file)


# Lists.

_kind = "CSV with a missing file"
for _label, _write in {
    "given itself": listed("a/1.png,a\na/9.png,a\n"),
    "in its folder": folder(*OWN, change=text("list.csv", "filename,label\na/1.png,a\na/9.png,a\n")),
    "absolute": listed("/no/such/folder/a/9.png,a\n"),
    "outside": listed("../../a/9.png,a\n"),
    "a folder": listed("a,a/9.png\n"),
    "in a zip": lambda root: zipped(folder(*OWN, change=text("list.csv", "a/1.png,a\na/9.png,a\n"))(root)),
}.items():
    hostile_input(_kind, _label, r"line \d names '.*', and there is no such picture", _write)
hostile_input(
    _kind,
    "of miniImageNet",
    r"line 2 names 'no\.jpg', and there is no such picture",
    packed("mini-imagenet: images and csv", text("val.csv", "filename,label\nno.jpg,x\n")),
    name=MINI,
)

_kind = "CSV with broken rows"
for _label, _rows, _words in (
    ("no label", "a/1.png\n", "line 1 must give a file name and a label, got 'a/1.png'"),
    ("empty label", "a/1.png,a\na/2.png,\n", "line 2 must give a file name and a label"),
    ("empty name", "a/1.png,a\n,a\n", "line 2 must give a file name and a label"),
    ("header alone", "filename,label\n", "no rows; it must hold one row filename,label per picture"),
    ("empty", "", "no rows; it must hold one row"),
    ("blank lines", "\n\n , \n", "no rows; it must hold one row"),
    ("semicolons", "a/1.png;a\n", "line 1 must give a file name and a label"),
):
    hostile_input(_kind, _label, _words, listed(_rows))

_kind = "CSV that contradicts itself"
for _label, _rows, _words in (
    ("row twice", "a/1.png,a\na/1.png,a\n", "line 2 repeats line 1; list every picture once"),
    ("two labels", "a/1.png,a\na/1.png,b\n", "line 2 gives 'a/1.png' another label than line 1"),
):
    hostile_input(_kind, _label, _words, listed(_rows))
_spelled = folder(*OWN, change=text("list.csv", "a/1.png,a\n./a/1.png,a\n"))
hostile_input(_kind, "one picture in two spellings", "which an earlier line names too", _spelled)
_lists = "mini-imagenet: images and csv"
hostile_input(
    _kind,
    "picture in two lists",
    "is in train.csv already; list it once",
    packed(_lists, lambda root: (root / "val.csv").write_bytes((root / "train.csv").read_bytes())),
    name=MINI,
)
hostile_input(
    _kind,
    "lists in two folders",
    "2 folders with lists train.csv and test.csv; keep one of them",
    packed(_lists, lambda root: [text(f"old/{s}.csv", "a,b\n")(root) for s in ("train", "test")]),
    name=MINI,
)

_kind = "CSV with odd splits"
for _label, _rows, _words in (
    ("unknown", "a/1.png,a,exam\n", "a split must be train, val or test, got 'exam'"),
    ("some rows", "a/1.png,a,train\nb/1.png,b\n", "either every row of a list names a split or none does"),
    ("class in two", "a/1.png,a,train\na/2.png,a,test\n", "'a' is in 'train' and again in 'test'"),
):
    hostile_input(_kind, _label, _words, listed(_rows))

_kind = "CSV that is no text"
for _label, _raw, _words in (
    ("UTF-16", "a/1.png,a\n".encode("utf-16"), "not text in UTF-8"),
    ("Latin-1", "a/1.png,é\n".encode("latin1"), "not text in UTF-8"),
    ("a picture", BLACK, "not text in UTF-8"),
    ("endless cell", b"a/1.png," + b"a" * 200_000, r"not a CSV \(field larger than field limit"),
    ("zeros", bytes(100), "line 1 must give a file name and a label|not a CSV"),
):
    hostile_input(_kind, _label, _words, listed(_raw))

# Folders.

_kind = "nothing to prepare"
for _label, _write, _words in (
    ("no such path", lambda root: root / "gone", "there is no such file or folder; name what the data set is in"),
    ("empty folder", folder(), "no known form of a data set; it has no files, and known are class folders"),
    ("a text", inside(folder(change=text("a.txt", "x")), "a.txt"), r"1 files \(a\.txt\), 0 of them pictures"),
    ("loose pictures", folder("a.png", "b.png"), r"2 files \(a\.png, b\.png\), 2 of them pictures"),
    ("a picture", inside(folder("a.png"), "a.png"), r"1 files \(a\.png\), 1 of them pictures"),
    ("an empty zip", lambda root: zipped(folder()(root)), "it has no files"),
    ("a web page as zip", inside(folder(change=text("a.zip", "<html>")), "a.zip"), "no known form of a data set"),
    ("a bare array", inside(folder(change=text("a.npy", b"\x93NUMPY")), "a.npy"), "no known form of a data set"),
    ("a pipe", inside(folder(change=lambda root: os.mkfifo(root / "a.zip")), "a.zip"), "no such file or folder"),
):
    hostile_input(_kind, _label, _words, _write)

_kind = "class without a picture"
for _label, _write, _words in (
    ("empty", folder("a/1.png", change=lambda root: (root / "c").mkdir()), "folder 'c' has no picture"),
    ("text", folder("a/1.png", change=text("c/x.txt", "x")), "folder 'c' has no picture"),
    (
        "in a split",
        folder("train/a/1.png", "test/b/1.png", change=lambda root: (root / "test" / "c").mkdir()),
        "folder 'test/c' has no picture",
    ),
    (
        "in a zip",
        lambda root: zipped(folder("a/1.png", "b/1.png", change=text("c/x.txt", "x"))(root)),
        "folder 'c' has no picture",
    ),
):
    hostile_input(_kind, _label, _words, _write)

_kind = "folder that is half divided"
for _label, _write, _words in (
    ("more", folder("train/a/1.png", "test/b/1.png", "more/c/1.png"), "divided into test, train, and 'more' belongs"),
    ("loose in a split", folder("train/a/1.png", "test/b/1.png", "test/1.png"), "divided into test, train, and"),
    (
        "in a zip",
        lambda root: zipped(folder("train/a/1.png", "val/b/1.png", "c/d/1.png")(root)),
        "divided into train, val, and 'c'",
    ),
):
    hostile_input(_kind, _label, _words, _write)

hostile_input(
    "class in two splits",
    "folders",
    "a class must be in one split only, but 'b' is in 'train' and again in 'test'",
    folder("train/a/1.png", "train/b/1.png", "test/b/1.png"),
)
hostile_input(
    "class in another split than published",
    "folders",
    "class 'baby' belongs to split 'test' of cifar-fs as published, and here it is in 'train'",
    folder("train/apple/1.png", "train/baby/1.png", "test/bed/1.png"),
    name=CIFAR,
)
hostile_input(
    "classes that are not the published ones", "folders", "'a' is not one of the 100", folder(*OWN), name=MINI
)
_kind = "too few classes for the shares"
hostile_input(_kind, "two", "2 classes cannot be divided into", folder("a/1.png", "b/1.png"), shares="60,16,24")
hostile_input(_kind, "one", "1 classes cannot be divided into", folder("a/1.png"), shares="50,0,50")

# Pictures.


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header promises more than is there."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return BLACK[:8] + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + BLACK[33:]


_kind = "damaged picture"
for _label, _raw, _words in (
    ("text", b"no picture", "its content is not a picture in any format read here"),
    ("empty", b"", r"the file is empty \(0 bytes\)"),
    ("cut", NOISE[:2000], "damaged, truncated or of a rare kind"),
    ("header alone", NOISE[:33], "its content is not a picture"),
    ("checksum", NOISE[:500] + b"\0" + NOISE[501:], "damaged, truncated or of a rare kind"),
    ("another program's", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "its content is not a picture"),
    ("small", png(np.zeros((4, 9, 3), np.uint8)), "each side must have at least 8 pixels, got 9x4"),
):
    hostile_input(_kind, _label, f"1.png: .*{_words}", folder(*OWN, change=text("b/1.png", _raw)))
_kind = "picture bomb"
for _label, _claim in {"square": (60_000, 60_000), "thread": (8, 2_000_000_000), "mild": (10_000, 10_000)}.items():
    _write = folder(*OWN, change=text("c/1.png", png_claiming(*_claim)))
    hostile_input(_kind, _label, "more than 89,478,485 pixels, the limit against decompression bombs", _write)
_kind = "picture that is no file"
for _label, _make in {
    "dangling link": lambda root: (root / "b" / "2.png").symlink_to("gone.png"),
    "link to itself": lambda root: (root / "b" / "2.png").symlink_to("2.png"),
    "named pipe": lambda root: os.mkfifo(root / "b" / "2.png"),
}.items():
    hostile_input(_kind, _label, "there is no such file, or it is not a regular one", folder(*OWN, change=_make))

# Good packings, cut short.


def cut(write: Write, share: float, file: str = "") -> Write:
    def short(root: Path) -> Path:
        path = write(root)
        target = path / file
        with target.open("r+b") as opened:
            opened.truncate(int(share * target.stat().st_size))
        return path

    return short


_tiered, _cifar = content("tiered-imagenet"), content("cifar-fs")
_CUT: dict[str, tuple[Write, str, str, str]] = {  # kind of file -> packing, file in it, data set, words
    "pickle": (
        lambda r: cifar_pickles(r, _cifar),
        "CIFAR_FS_test.pickle",
        CIFAR,
        "this pickle is refused|not a pickle",
    ),
    "npz": (lambda r: tiered_npz(r, _tiered), "test_images.npz", "tiered-imagenet", "not a readable zip file"),
    "zip": (lambda r: zipped(by_split(r, _cifar)), "", CIFAR, "not a readable zip file"),
    "zip of pickles": (lambda r: zipped(cifar_pickles(r, _cifar)), "", CIFAR, "not a readable zip file"),
    "tar.gz": (lambda r: tarred(by_split(r, _cifar), "x"), "", CIFAR, "damaged, cut short"),
    "tar.gz of npz": (lambda r: tarred(tiered_npz(r, _tiered), "x"), "", "tiered-imagenet", "damaged, cut short"),
    "cifar-100-python": (
        lambda r: PACKINGS["cifar-fs: cifar-100-python"](r, _cifar),
        "cifar-100-python/train",
        CIFAR,
        "this pickle is refused|not a pickle",
    ),
}
for _label, (_write, _file, _name, _words) in _CUT.items():
    for _share in (0.3, 0.6, 0.9, 0.999):
        _kind = "packing cut short"
        hostile_input(_kind, f"{_label} at {_share:.1%}", _words, cut(_write, _share, _file), name=_name)

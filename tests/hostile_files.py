"""Folders, lists and picture files that cannot be a data set, and good packings that were cut short."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hostile import Write, hostile_inputs
from hostile_packings import CIFAR, MINI, content, copied, packed, text
from packings import PACKINGS, by_split, cifar_pickles, tarred, tiered_npz, zipped
from pictures import png, write_file

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

_missing, _lists = r"line \d names '.*', and there is no such picture", "mini-imagenet: images and csv"
hostile_inputs(
    "CSV with a missing file",
    ("given itself", _missing, listed("a/1.png,a\na/9.png,a\n")),
    ("in its folder", _missing, folder(*OWN, change=text("list.csv", "filename,label\na/1.png,a\na/9.png,a\n"))),
    ("absolute", _missing, listed("/no/such/folder/a/9.png,a\n")),
    ("outside", _missing, listed("../../a/9.png,a\n")),
    ("a folder", _missing, listed("a,a/9.png\n")),
    ("in a zip", _missing, lambda root: zipped(folder(*OWN, change=text("l.csv", "a/1.png,a\na/9.png,a\n"))(root))),
)
hostile_inputs(
    "CSV with a missing file",
    ("of miniImageNet", r"line 2 names 'no\.jpg'", packed(_lists, text("val.csv", "filename,label\nno.jpg,x\n"))),
    name=MINI,
)
hostile_inputs(
    "CSV with broken rows",
    ("no label", "line 1 must give a file name and a label, got 'a/1.png'", listed("a/1.png\n")),
    ("empty label", "line 2 must give a file name and a label", listed("a/1.png,a\na/2.png,\n")),
    ("empty name", "line 2 must give a file name and a label", listed("a/1.png,a\n,a\n")),
    ("header alone", "no rows; it must hold one row filename,label per picture", listed("filename,label\n")),
    ("empty", "no rows; it must hold one row", listed("")),
    ("blank lines", "no rows; it must hold one row", listed("\n\n , \n")),
    ("semicolons", "line 1 must give a file name and a label", listed("a/1.png;a\n")),
)
_spelled = folder(*OWN, change=text("list.csv", "a/1.png,a\n./a/1.png,a\n"))
hostile_inputs(
    "CSV that contradicts itself",
    ("row twice", "line 2 repeats line 1; list every picture once", listed("a/1.png,a\na/1.png,a\n")),
    ("two labels", "line 2 gives 'a/1.png' another label than line 1", listed("a/1.png,a\na/1.png,b\n")),
    ("one picture in two spellings", "which an earlier line names too", _spelled),
)
_old = packed(_lists, lambda root: [text(f"old/{s}.csv", "a,b\n")(root) for s in ("train", "test")])
hostile_inputs(
    "CSV that contradicts itself",
    ("picture in two lists", "is in train.csv already; list it once", packed(_lists, copied("train.csv", "val.csv"))),
    ("lists in two folders", "2 folders with lists train.csv and test.csv; keep one of them", _old),
    name=MINI,
)
hostile_inputs(
    "CSV with odd splits",
    ("unknown", "a split must be train, val or test, got 'exam'", listed("a/1.png,a,exam\n")),
    ("some rows", "either every row of a list names a split or none", listed("a/1.png,a,train\nb/1.png,b\n")),
    ("class in two", "'a' is in 'train' and again in 'test'", listed("a/1.png,a,train\na/2.png,a,test\n")),
)
hostile_inputs(
    "CSV that is no text",
    ("UTF-16", "not text in UTF-8", listed("a/1.png,a\n".encode("utf-16"))),
    ("Latin-1", "not text in UTF-8", listed("a/1.png,é\n".encode("latin1"))),
    ("a picture", "not text in UTF-8", listed(BLACK)),
    ("endless cell", r"not a CSV \(field larger than field limit", listed(b"a/1.png," + b"a" * 200_000)),
    ("zeros", "line 1 must give a file name and a label|not a CSV", listed(bytes(100))),
)

# Folders.

_unknown = "no known form of a data set"
hostile_inputs(
    "nothing to prepare",
    ("no such path", "there is no such file or folder; name what the data set is in", lambda root: root / "gone"),
    ("empty folder", f"{_unknown}; it has no files, and known are class folders", folder()),
    ("a text", r"1 files \(a\.txt\), 0 of them pictures", inside(folder(change=text("a.txt", "x")), "a.txt")),
    ("loose pictures", r"2 files \(a\.png, b\.png\), 2 of them pictures", folder("a.png", "b.png")),
    ("a picture", r"1 files \(a\.png\), 1 of them pictures", inside(folder("a.png"), "a.png")),
    ("an empty zip", "it has no files", lambda root: zipped(folder()(root))),
    ("a web page as zip", _unknown, inside(folder(change=text("a.zip", "<html>")), "a.zip")),
    ("a bare array", _unknown, inside(folder(change=text("a.npy", b"\x93NUMPY")), "a.npy")),
    ("a pipe", "no such file or folder", inside(folder(change=lambda root: os.mkfifo(root / "a.zip")), "a.zip")),
)
_empty = folder("train/a/1.png", "test/b/1.png", change=lambda root: (root / "test" / "c").mkdir())
_text = text("c/x.txt", "x")
hostile_inputs(
    "class without a picture",
    ("empty", "folder 'c' has no picture", folder("a/1.png", change=lambda root: (root / "c").mkdir())),
    ("text", "folder 'c' has no picture", folder("a/1.png", change=_text)),
    ("in a split", "folder 'test/c' has no picture", _empty),
    ("in a zip", "folder 'c' has no picture", lambda root: zipped(folder("a/1.png", "b/1.png", change=_text)(root))),
)
_half = folder("train/a/1.png", "val/b/1.png", "c/d/1.png")
hostile_inputs(
    "folder that is half divided",
    ("more", "divided into test, train, and 'more'", folder("train/a/1.png", "test/b/1.png", "more/c/1.png")),
    ("loose in a split", "divided into test, train, and", folder("train/a/1.png", "test/b/1.png", "test/1.png")),
    ("in a zip", "divided into train, val, and 'c'", lambda root: zipped(_half(root))),
)
hostile_inputs(
    "class in two splits",
    ("folders", "'b' is in 'train' and again in 'test'", folder("train/a/1.png", "train/b/1.png", "test/b/1.png")),
)
_moved = folder("train/apple/1.png", "train/baby/1.png", "test/bed/1.png")
hostile_inputs(
    "class in another split than published",
    ("folders", "'baby' belongs to split 'test' of cifar-fs as published, and here it is in 'train'", _moved),
    name=CIFAR,
)
hostile_inputs(
    "classes that are not the published ones", ("folders", "'a' is not one of the 100", folder(*OWN)), name=MINI
)
_kind = "too few classes for the shares"
hostile_inputs(_kind, ("two", "2 classes cannot be divided", folder("a/1.png", "b/1.png")), shares="60,16,24")
hostile_inputs(_kind, ("one", "1 classes cannot be divided", folder("a/1.png")), shares="50,0,50")

# Pictures.


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header promises more than is there."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return BLACK[:8] + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + BLACK[33:]


_damaged = {
    "text": (b"no picture", "its content is not a picture in any format read here"),
    "empty": (b"", r"the file is empty \(0 bytes\)"),
    "cut": (NOISE[:2000], "damaged, truncated or of a rare kind"),
    "header alone": (NOISE[:33], "its content is not a picture"),
    "checksum": (NOISE[:500] + b"\0" + NOISE[501:], "damaged, truncated or of a rare kind"),
    "another program's": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "its content is not a picture"),
    "small": (png(np.zeros((4, 9, 3), np.uint8)), "each side must have at least 8 pixels, got 9x4"),
}
hostile_inputs(
    "damaged picture",
    *((label, f"1.png: .*{w}", folder(*OWN, change=text("b/1.png", raw))) for label, (raw, w) in _damaged.items()),
)
_bombs = {"square": (60_000, 60_000), "thread": (8, 2_000_000_000), "mild": (10_000, 10_000)}
hostile_inputs(
    "picture bomb",
    *(
        (label, "more than 89,478,485 pixels", folder(*OWN, change=text("c/1.png", png_claiming(*claim))))
        for label, claim in _bombs.items()
    ),
)
_not_regular = "there is no such file, or it is not a regular one"
hostile_inputs(
    "picture that is no file",
    ("dangling", _not_regular, folder(*OWN, change=lambda root: (root / "b" / "2.png").symlink_to("gone.png"))),
    ("to itself", _not_regular, folder(*OWN, change=lambda root: (root / "b" / "2.png").symlink_to("2.png"))),
    ("named pipe", _not_regular, folder(*OWN, change=lambda root: os.mkfifo(root / "b" / "2.png"))),
)

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
    hostile_inputs(
        "packing cut short",
        *((f"{_label} at {n:.1%}", _words, cut(_write, n, _file)) for n in (0.3, 0.6, 0.9, 0.999)),
        name=_name,
    )

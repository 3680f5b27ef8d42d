"""What nobody should be able to prepare, by kind: what ``glocal data prepare`` must refuse, and with which words.

``KINDS`` has kind -> label -> input.  An input writes itself below a folder and returns the path to pass to ``--from``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Importing them enters their files.
import hostile_archives  # noqa: F401
import hostile_arrays  # noqa: F401
import hostile_pickles  # noqa: F401
from hostile import HOSTILE, WORDS
from packings import dump

Write = Callable[[Path], Path]


class Input(NamedTuple):
    write: Write
    words: str  # a pattern in the refusal
    name: str  # of the data set
    shares: str


KINDS: dict[str, dict[str, Input]] = {}


def hostile_inputs(kind: str, *cases: tuple[str, str, Write], name: str = "mine", shares: str = "1,0,0") -> None:
    """Cases of (label, words, write); ``shares`` that put every class into train let only the fault be refused."""
    inputs = KINDS.setdefault(kind, {})
    for label, words, write in cases:
        assert label not in inputs, (kind, label)
        inputs[label] = Input(write, words, name, shares)


_PICKLES = {
    "pickle that runs a program": "runs-0 runs-1 runs-2 runs-3 runs-4 runs-5 runs-inside-object-array",
    "pickle that names a function": "eval getattr numpy-load dotted-name instance",
    "pickle that leads outside": "persistent-id out-of-band-buffer extension",
    "pickle of objects": "new-object bare-class calls-a-list changes-a-dict",
    "pickle that claims too much": "huge-bytes huge-bytearray huge-frame bytearray-of-length copies",
    "array in a pickle that cannot be": "huge-array negative-axis empty-strings objects-from-bytes made-up-dtype",
    "array of objects": "object-array",
    "pickle in circles": "deep laughs list-in-itself tuple-key colliding-keys",
    "damaged pickle": "empty text cut stops-early protocol-9",
}
_ARCHIVES = {
    "zip that leads outside": "dots.zip absolute.zip drive.zip back.zip",
    "tar that leads outside": "dots.tar absolute.tar drive.tar back.tar",
    "archive with one name twice": "twice.zip twice.tar",
    "archive with a link or a device": "link.zip link.tar hard-link.tar device.tar pipe.tar",
    "archive bomb": "bomb.zip many-bomb.zip overlapping-bomb.zip bomb.tar.gz long-name.tar.gz",
    "encrypted archive": "encrypted.zip",
    "damaged archive": "checksum.zip two-names.zip cut.zip header.tar cut.tar cut.tar.gz no-tar.tar.bz2",
}
_ARRAYS = {
    "npz that claims what is not there": "huge-shape short-shape negative-shape one-row",
    "npz of something else": "objects fields pickle fortran",
    "npz bomb": "bomb",
    "damaged npz": "checksum deflate cut",
}
_ROWS = {"deflate": 156}  # of the array; two of any other


def _alone(file: str) -> Write:
    def write(root: Path) -> Path:
        root.mkdir(parents=True)
        HOSTILE[file](root / file)
        return root / file

    return write


def _with_labels(file: str) -> Write:
    def write(root: Path) -> Path:
        root.mkdir(parents=True)
        HOSTILE[f"{file}.npz"](root / "images.npz")
        dump(root / "labels.pkl", {"labels": [0] * _ROWS.get(file, 2)})
        return root

    return write


for _kind, _files in _PICKLES.items():
    hostile_inputs(_kind, *((each, WORDS[f"{each}.pkl"], _alone(f"{each}.pkl")) for each in _files.split()))
for _kind, _files in _ARCHIVES.items():
    hostile_inputs(_kind, *((each, WORDS[each], _alone(each)) for each in _files.split()))
for _kind, _files in _ARRAYS.items():
    hostile_inputs(_kind, *((each, WORDS[f"{each}.npz"], _with_labels(each)) for each in _files.split()))

"""Data sets by name, and tasks drawn from them.  Adding one: a function that opens a split, and a line in DATASETS."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path

from glocal.common.errors import DataError
from glocal.common.words import meant
from glocal.recognizer.photos.folders import top_folders
from glocal.research import plugins
from glocal.research.data import embedded
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepared import is_prepared, open_prepared
from glocal.research.data.splits import CATALOGUE

SPLITS = ("train", "val", "test")
"""The splits by class: to learn from, to choose by, to report."""
_CALTECH = "caltech-photos"
_CALTECH_SPLITS = {"train": slice(60), "val": slice(60, 75), "test": slice(75, 100)}


def caltech_photos(split: str, *, skip_bad: bool = False) -> ClassDataset:
    """100 object classes x 28 photos, for methods on top of a backbone that ImageNet taught.

    The photos are not ours to ship: they are read from the folder ``caltech-photos`` below GLOCAL_DATA, one folder per
    class.  Nobody published a class split, so it is a rule: class names in the order of their SHA-256.
    """
    home = os.environ.get("GLOCAL_DATA")
    if not home or not (Path(home) / _CALTECH).is_dir():
        raise DataError(
            f"{_CALTECH} needs its photos, one folder per class, in a folder {_CALTECH} below GLOCAL_DATA "
            f"({home or 'not set'}); there is none"
        )
    photos = ClassDataset.from_folder(Path(home) / _CALTECH, skip_bad=skip_bad)
    if len(photos.classes) != 100:
        raise DataError(f"{_CALTECH} has 100 classes, but {Path(home) / _CALTECH} has {len(photos.classes)}")
    ordered = sorted(photos.classes, key=lambda name: hashlib.sha256(name.encode()).digest())
    return photos.subset(ordered[_CALTECH_SPLITS[split]], name=f"{_CALTECH}/{split}")


DATASETS: dict[str, Callable[..., ClassDataset]] = {  # called with the split, and skip_bad=True when that is asked for
    "embedded": embedded.embedded,
    "caltech-photos": caltech_photos,
}
"""Every data set by name: a function of the split."""


def open_dataset(name: str | Path, split: str, *, skip_bad: bool = False) -> ClassDataset:
    """Open one split of a data set.

    A prepared folder has the splits that it names.  Any other folder, or a zip, has ``train``, ``val`` and ``test``
    inside, or class folders.  ``all`` opens class folders, and a CSV of filename and label.

    Parameters
    ----------
    name : str or Path
        A registered data set, a folder below GLOCAL_DATA, or any folder, zip or CSV of classes.
    split : str
        train, val, test or all.
    skip_bad : bool
        Leave unreadable images out instead of stopping.

    Returns
    -------
    ClassDataset
        Images with their classes.

    Examples
    --------
    >>> import glocal
    >>> digits = glocal.open_dataset("embedded", "test")
    >>> len(digits.classes)
    10
    """
    plugins.load(plugins.DATASETS, DATASETS, str(name))
    if str(name) in DATASETS:
        if split not in SPLITS:
            raise DataError(f"{name} has the splits {', '.join(SPLITS)}, got {split!r}", code="no-such-split")
        opener = DATASETS[str(name)]
        if not skip_bad:
            return opener(split)
        if "skip_bad" not in inspect.signature(opener).parameters:
            message = f"data set {str(name)!r} cannot leave out bad images: its function does not take skip_bad"
            raise DataError(f"{message}; open it without", code="skip-bad")
        return opener(split, skip_bad=True)
    home = os.environ.get("GLOCAL_DATA")
    candidates = ([Path(home) / name] if home else []) + [Path(name)]
    for folder in candidates:
        if is_prepared(folder):
            return open_prepared(folder, split)
        if folder.is_dir():
            return _open_folder(folder, split, skip_bad)
        if folder.is_file():
            return _open_file(folder, split, skip_bad)
    where = f"no folder {name} here or below GLOCAL_DATA ({home or 'not set'})"
    if str(name) in CATALOGUE:
        message = (
            f"the images of {name} are not there: {where}; set GLOCAL_DATA to the folder that has {name} in it, or "
            f"make it with glocal data prepare {name} --from PATH --out DIR"
        )
    else:
        message = f"dataset {str(name)!r} is none of those by name, and there is {where}; {meant(str(name), DATASETS)}"
    raise DataError(message, code="no-such-dataset")


def _open_folder(folder: Path, split: str, skip_bad: bool) -> ClassDataset:
    inside = _folder_of_split(folder, top_folders(folder), split)
    name = f"{folder.name}/{inside}" if inside else folder.name
    return ClassDataset.from_folder(folder, inside=inside, skip_bad=skip_bad, name=name)


def _folder_of_split(where: Path, folders: set[str], split: str) -> str:
    """The one of ``folders`` to open, empty for the whole."""
    present = [part for part in SPLITS if part in folders]
    if len(present) < 2:  # one alone may be a class: "train" is one of CIFAR-100
        if split == "all":
            return ""
        raise DataError(
            f"{where} is not divided into {', '.join(SPLITS)}, so there is no split {split!r}; "
            "give it these folders, or use --split all for all of its class folders",
            code="no-such-split",
        )
    if split not in present:
        message = f"{where} is divided into {', '.join(present)}; ask for one of these splits, got {split!r}"
        message += f", or give it a folder {split}" if split in SPLITS else ""  # training asks for val by itself
        raise DataError(message, code="no-such-split")
    return split


def _open_file(file: Path, split: str, skip_bad: bool) -> ClassDataset:
    if file.suffix.lower() == ".zip":
        inside = _folder_of_split(file, top_folders(file), split)
        return ClassDataset.from_folder(file, inside=inside, skip_bad=skip_bad, name=f"{file.stem}/{split}")
    if file.suffix.lower() == ".csv":
        if split != "all":
            raise DataError(
                f"{file} is one list of images, so there is no split {split!r}; use --split all, or divide it with "
                "glocal data prepare",
                code="no-such-split",
            )
        return ClassDataset.from_csv(file, skip_bad=skip_bad)
    raise DataError(f"{file} is neither a folder of class folders, nor a .zip of one, nor a .csv of filename,label")


__all__ = ["DATASETS", "SPLITS", "ClassDataset", "open_dataset"]

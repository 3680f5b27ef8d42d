"""Data sets in every form people have them, recognised by looking.

Known forms, each as a folder, a zip or a tar of it, where not said otherwise:

    pictures and {train,val,test}.csv (filename,label; header or not)        miniImageNet, CIFAR-FS
    class folders, in {train,val,test} or undivided, with superclasses or not  all
    data/<class>/ and splits/<whose>/{train,val,test}.txt                    CIFAR-FS
    images/<class>/, images.txt, image_class_labels.txt, classes.txt         CUB
    miniImageNet_category_split_{train_phase_train,val,test}.pickle          data, labels, catname2label
    mini-imagenet-cache-{split}.pkl                                          image_data, class_dict
    CIFAR_FS_{split}.pickle, FC100_{split}.pickle, {split}.pickle            data, labels
    cifar-100-python/{train,test,meta}                                       CIFAR-FS, FC100
    {split}_images.npz and {split}_labels.pkl                                tieredImageNet
    {split}_images_png.pkl and {split}_labels.pkl (label_specific)           tieredImageNet
    few-shot-{split}.npz (features, targets)                                 tieredImageNet, FC100
    one CSV of filename,label[,split]                                        one's own

When two packings give the same manifest: whenever their pixels and classes are the same.  CIFAR-FS and FC100 are: all
packings hold CIFAR-100's 32 px pixels.  miniImageNet's pickles of 84 px were made by others from the JPEG files, each
with its own resizing, so JPEG files, 84 px pickles and cache pickles are three variants.  tieredImageNet was published
through OpenCV: its npz arrays hold blue, green, red; its PNG files decode to red, green, blue.  The two are taken as
they are, as everybody who published numbers did, and differ by the order of colours; a packer who used one order for
both makes them equal.  Class names never enter the manifest; ``division`` says what classes are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from glocal.data.packings.array_files import arrays, cifar100_batches
from glocal.data.packings.content import Content, Form
from glocal.data.packings.division import divide_own, divide_published
from glocal.data.packings.picture_files import (
    class_folders,
    csv_per_split,
    cub,
    divided_folders,
    listed_classes,
    one_csv,
)
from glocal.data.packings.tree import Tree, open_tree
from glocal.data.prepare import Pictures
from glocal.data.splits import PUBLISHED, canonical_name
from glocal_runtime.errors import DataError

__all__ = ["Packing", "recognise"]

FORMS: tuple[Form, ...] = (  # the first that knows the files
    cifar100_batches,
    csv_per_split,
    one_csv,
    arrays,
    listed_classes,
    cub,
    divided_folders,
    class_folders,
)
KNOWN = (
    "class folders (in train, val and test or not), a CSV of filename,label or one per split, lists of classes, "
    "pickles of pictures and labels, npz arrays, cifar-100-python, CUB_200_2011, and a zip or tar of these"
)


@dataclass(frozen=True)
class Packing:
    dataset: str  # "mini-imagenet", "cifar-fs", ... or the given own name
    words: str  # the form, in words
    splits: Mapping[str, Pictures]
    counts: Mapping[str, int] | None  # pictures per split when known beforehand
    key: str  # stands for the input
    variant: str  # which known variant of the pixels


def recognise(
    name: str, path: str | Path, *, seed: int = 0, shares: tuple[float, float, float] = (0.6, 0.16, 0.24)
) -> Packing:
    """Look at ``path`` and say how to read the data set ``name`` from it.

    A published name gives the published splits, any other name is one's own data: divided as it is, or its classes
    dealt to train, val and test by ``seed`` in ``shares``.  Pictures are read only when the splits are.
    """
    tree = open_tree(Path(path))
    found = _look(tree)
    dataset = canonical_name(name)
    if dataset in PUBLISHED:
        splits, note = divide_published(found, dataset)
    else:
        splits, note = divide_own(found, seed, shares)
    words = "; ".join(filter(None, [found.words, note]))
    return Packing(
        dataset=dataset,
        words=words,
        splits={split: each.samples for split, each in splits.items()},
        counts={split: each.count for split, each in splits.items()},
        key=f"{tree.key} {found.key} {dataset} {words}",
        variant=_variant(dataset, found),
    )


def _look(tree: Tree) -> Content:
    for form in FORMS:
        found = form(tree)
        if found is not None:
            return found
    raise DataError(f"{tree.path}: no known form of a data set; it has {_seen(tree)}, and known are {KNOWN}")


def _seen(tree: Tree) -> str:
    if not tree.names:
        return "no files"
    first = ", ".join([*sorted(tree.names)[:3], *(["..."] if len(tree.names) > 3 else [])])
    return f"{len(tree.names)} files ({first}), {len(tree.pictures)} of them pictures"


def _variant(dataset: str, found: Content) -> str:
    """Pixels of one variant can be compared; those of two cannot."""
    if dataset not in PUBLISHED:
        return "own"
    if found.kind == "cache-pickle":
        return "cache-pickle"
    if dataset in ("cifar-fs", "fc100"):
        return "mixed-sizes" if found.side is None else f"{found.side}px"
    return "original-jpeg" if found.side is None else f"{found.side}px-{found.kind}"

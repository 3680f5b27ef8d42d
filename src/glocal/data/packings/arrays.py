"""Pickles and npz files, one or two per split, and CIFAR-100's own batches."""

from __future__ import annotations

from dataclasses import replace

from glocal.data.packings.found import SPLITS, WHOLE, Found, joined, labels_text, split_of
from glocal.data.packings.stores import Store, open_store
from glocal.data.packings.tree import Tree
from glocal.data.pickles import read_pickle, text_keys
from glocal.data.published_splits import CIFAR100
from glocal_runtime.errors import DataError

_SUFFIXES = (".pkl", ".pickle", ".npz")
_EXTRA = ("train_phase_val", "train_phase_test")  # further pictures of training classes, in no published split
_WORDS = {
    "cache-pickle": "one pickle per split (image_data, class_dict)",
    "pickle": "one pickle per split (data, labels)",
    "array": "one npz per split",
    "png": "one pickle of encoded pictures per split and one of labels",
}
_BETTER = ("array", "cache-pickle", "pickle", "png")  # which to take when one folder has the same split twice


def cifar100_batches(tree: Tree) -> Found | None:
    """``cifar-100-python/{train,test,meta}``: both files together, because the few-shot sets divide by class."""
    if not {"train", "test"} <= set(tree.names):
        return None
    stores = [open_store(tree, name) for name in ("train", "test")]
    parts = []
    for store in stores:
        if store.kind is None or store.labels is None:
            raise DataError(f"{tree.where(store.name)}: a batch of CIFAR-100 must hold data and fine_labels")
        if bad := next((label for label in store.labels if not label.isdigit() or int(label) >= len(CIFAR100)), None):
            raise DataError(f"{tree.where(store.name)}: a fine label must be in 0..99, got {bad!r}")
        parts.append(store.part(store.labels))
    names = {str(i): name for i, name in enumerate(CIFAR100)}
    if "meta" in tree.names:
        with tree.local("meta") as path:
            content = text_keys(read_pickle(path, name=tree.where("meta")), where=tree.where("meta"))
        if tuple(labels_text(content.get("fine_label_names"), tree.where("meta"))) != CIFAR100:
            raise DataError(
                f"{tree.where('meta')}: fine_label_names must be the 100 classes of CIFAR-100 in their order"
            )
    return Found("CIFAR-100's own batches (train, test, meta)", {WHOLE: joined(parts)}, "batches", 32, {WHOLE: names})


def arrays(tree: Tree) -> Found | None:
    """``<any name><split>.{pickle,pkl,npz}``, with labels inside or in ``<split>_labels.pkl``."""
    files = [name for name in tree.names if name.lower().endswith(_SUFFIXES)]
    ignored = [name for name in files if any(extra in name.lower() for extra in _EXTRA)]
    files = [name for name in files if name not in ignored]
    divided = {split_of(name) for name in files} - {None}
    if not files or (tree.pictures and len(divided) < 2):
        return None
    taken = {name for name in files if split_of(name) is not None} if divided else set(files)
    by_split: dict[str, list[Store]] = {}
    for name in sorted(taken):
        by_split.setdefault(split_of(name) or WHOLE, []).append(open_store(tree, name))
    chosen = {split: _chosen(tree, split, by_split[split]) for split in (*SPLITS, WHOLE) if split in by_split}
    parts = {split: store.part(store.labels or []) for split, store in chosen.items()}
    kinds, sides = {store.kind for store in chosen.values()}, {store.side for store in chosen.values()}
    kind = str(next(each for each in _BETTER if each in kinds))
    words = " and ".join(_WORDS[each] for each in _BETTER if each in kinds)
    if WHOLE in chosen:
        words = words.replace(" per split", "")
    if ignored:
        words += "; the pickles train_phase_val and train_phase_test belong to no published split and were left out"
    names = {split: store.names for split, store in chosen.items() if store.names is not None}
    complete = names if len(names) == len(chosen) else None
    return Found(words, parts, kind, sides.pop() if len(sides) == 1 else None, complete)


def _chosen(tree: Tree, split: str, stores: list[Store]) -> Store:
    """The one store of a split that has pictures, with labels of its own or of the one that has none."""
    pictures = [store for store in stores if store.kind is not None]
    labels = [store for store in stores if store.kind is None]
    what = f"split {split!r}" if split else "the data set"
    if not pictures:
        raise DataError(f"{tree.path}: {what} has labels ({labels[0].name}) and no pictures; copy its pictures too")
    best = min(pictures, key=lambda store: _BETTER.index(str(store.kind)))
    rivals = [store for store in pictures if store.kind == best.kind and store is not best]
    if rivals:
        raise DataError(f"{tree.path}: {best.name} and {rivals[0].name} both hold pictures of {what}; move one away")
    if best.labels is not None:
        return best
    if len(labels) != 1:
        raise DataError(f"{tree.path}: the pictures in {best.name} need one file of labels, found {len(labels)}")
    return replace(best, labels=labels[0].labels, names=labels[0].names)

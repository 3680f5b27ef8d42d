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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from glocal.common.errors import DataError
from glocal.research.data.packings.array_files import arrays, cifar100_batches
from glocal.research.data.packings.content import SPLITS, WHOLE, Content, Form, Part, joined
from glocal.research.data.packings.picture_files import (
    class_folders,
    csv_per_split,
    cub,
    divided_folders,
    listed_classes,
    one_csv,
)
from glocal.research.data.packings.tree import Tree, open_tree
from glocal.research.data.prepare import Pictures
from glocal.research.data.prepared_writer import Sample
from glocal.research.data.splits import (
    CIFAR100,
    PUBLISHED,
    Splits,
    canonical_name,
    check_disjoint,
    published_classes,
    seeded_split,
)

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
    found = next(filter(None, (form(tree) for form in FORMS)), None)
    if found is None:
        raise DataError(f"{tree.path}: no known form of a data set; it has {_seen(tree)}, and known are {KNOWN}")
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


_CIFAR = ("cifar-fs", "fc100")
Renamed = Mapping[str, str]  # label -> class name


@dataclass(frozen=True)
class Split:
    """One split to be: which labels of which part, under which names."""

    part: Part
    names: Renamed

    @property
    def count(self) -> int:
        return sum(self.part.counts[label] for label in self.names)

    def samples(self) -> Iterator[Sample]:
        for sample in self.part.samples(self.names.keys()):
            yield sample._replace(class_name=self.names[sample.class_name])


def divide_published(found: Content, name: str) -> tuple[dict[str, Split], str]:
    """The published splits, and what is to be said about them."""
    published = published_classes(name)
    home = {each: split for split, classes in published.items() for each in classes}
    found, names, note = _redivided(found, name)
    if note and WHOLE in names:
        raise DataError(
            f"the classes of {name} are only numbers here and not divided, so nobody can tell which belong to which "
            "split; get a packing with names, or with one file per split"
        )
    if WHOLE in names:
        renamed = names[WHOLE]
        surplus = [each for each in renamed.values() if each not in home]
        if surplus and name != "tiered-imagenet":  # which is whole classes of ImageNet, so that ImageNet contains it
            _refuse_class(surplus[0], name, len(home))
        part = found.parts[WHOLE]
        chosen = {split: {k: v for k, v in renamed.items() if home.get(v) == split} for split in SPLITS}
        if surplus:
            note = f"{len(surplus)} classes that {name} does not have were left out"
        splits = {split: Split(part, labels) for split, labels in chosen.items() if labels}
        if not splits:
            _refuse_class(surplus[0], name, len(home))
    else:
        for split, renamed in names.items():
            _check_published(renamed, split, name, published, home, named=not note)
        splits = {split: Split(found.parts[split], renamed) for split, renamed in names.items()}
    _check(splits)
    here = {split: len(splits[split].names) if split in splits else 0 for split in published}
    short = ", ".join(f"{n} of {len(published[split])} {split}" for split, n in here.items())
    whole = all(n == len(published[split]) for split, n in here.items())
    return splits, "; ".join(filter(None, [note, "" if whole else f"only {short} classes"]))


def _redivided(found: Content, name: str) -> tuple[Content, Mapping[str, Renamed], str]:
    """CIFAR-FS and FC100 are the same pictures: what is divided as one of them can be divided as the other."""
    names, note = _class_names(found, name)
    others = [each for each in _CIFAR if each != name] if name in _CIFAR and WHOLE not in names else []
    for other in others:
        other_names, other_note = _class_names(found, other)
        if not other_note and _known(other_names, other) and not _known(names, name):
            whole = {label: each for renamed in other_names.values() for label, each in renamed.items()}
            found = replace(found, parts={WHOLE: joined([*found.parts.values()])}, names={WHOLE: whole})
            return found, {WHOLE: whole}, ""
    return found, names, note


def divide_own(found: Content, seed: int, shares: tuple[float, float, float]) -> tuple[dict[str, Split], str]:
    """As the files are divided, or classes dealt to splits by a seed."""
    names, note = _class_names(found, None)
    if WHOLE not in names:
        splits = {split: Split(found.parts[split], renamed) for split, renamed in names.items()}
        _check(splits)
        return splits, note
    label_of = {renamed: label for label, renamed in names[WHOLE].items()}
    dealt = seeded_split(label_of, _class_counts(len(label_of), shares), seed=seed)
    part = found.parts[WHOLE]
    splits = {split: Split(part, {label_of[each]: each for each in classes}) for split, classes in dealt.items()}
    sizes = "/".join(str(len(classes)) for classes in dealt.values())
    return splits, "; ".join(filter(None, [note, f"classes divided {sizes} by seed {seed}"]))


def _class_names(found: Content, name: str | None) -> tuple[Mapping[str, Renamed], str]:
    """Names of the classes of every split, and what is to be said when they are made up."""
    labels = {split: part.counts.keys() for split, part in found.parts.items()}
    if found.names is not None:
        for split, told in found.names.items():
            if missing := sorted(labels[split] - told.keys()):
                raise DataError(f"label {missing[0]} of split {split!r} has no name in the list of names beside it")
        given = {split: {label: found.names[split][label] for label in each} for split, each in labels.items()}
        every = [each for renamed in given.values() for each in renamed.values()]
        if len(set(every)) == len(every):
            return given, ""
    if name is None or not all(label.isdigit() for each in labels.values() for label in each):
        return {split: {label: _spelled(label, name) for label in each} for split, each in labels.items()}, ""
    if name in _CIFAR and all(int(label) < len(CIFAR100) for each in labels.values() for label in each):
        numbered = {split: {label: CIFAR100[int(label)] for label in each} for split, each in labels.items()}
        if _known(numbered, name):
            return numbered, ""
    made_up = {split: {label: f"{split}-{int(label):03d}" for label in each} for split, each in labels.items()}
    return made_up, "labels are bare numbers in no defined order, so classes are called by split and number"


def _known(names: Mapping[str, Renamed], name: str) -> bool:
    """Whether all classes are published ones, each in its split."""
    published = published_classes(name)
    every = {each for classes in published.values() for each in classes}
    return all(set(renamed.values()) <= (set(published.get(s, ())) or every) for s, renamed in names.items())


def _spelled(label: str, name: str | None) -> str:
    """CIFAR-100's classes are written with spaces, hyphens or capitals too."""
    plain = label.lower().replace(" ", "_").replace("-", "_")
    return plain if name in _CIFAR and plain in CIFAR100 else label


def _check_published(
    renamed: Renamed, split: str, name: str, published: Splits, home: Mapping[str, str], *, named: bool
) -> None:
    if split not in published:
        raise DataError(f"{name} has the splits {', '.join(published)}, and here is a split {split!r}")
    if len(renamed) > len(published[split]):
        raise DataError(
            f"split {split!r} of {name} has {len(published[split])} classes, and here are {len(renamed)}; "
            "this is another data set, give it a name of its own"
        )
    for each in renamed.values() if named else ():
        if each not in home and name != "tiered-imagenet":
            _refuse_class(each, name, len(home))
        if home.get(each, split) != split:
            raise DataError(
                f"class {each!r} belongs to split {home[each]!r} of {name} as published, and here it is in {split!r}; "
                "divide it as published, or give this division a name of its own"
            )


def _refuse_class(each: str, name: str, n: int) -> None:
    raise DataError(
        f"class {each!r} is not one of the {n} classes of {name}; check what the path holds, or give it its own name"
    )


def _check(splits: Mapping[str, Split]) -> None:
    check_disjoint({split: each.names.values() for split, each in splits.items()})
    for split, each in splits.items():
        if len(set(each.names.values())) < len(each.names):
            raise DataError(f"two labels of split {split!r} mean the same class; merge them")


def _class_counts(n: int, shares: tuple[float, float, float]) -> dict[str, int]:
    """How many of n classes each split gets: shares rounded down, what is left to the largest remainders."""
    if len(shares) != 3 or min(shares) < 0 or shares[0] <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise DataError(f"shares of train, val and test must be three numbers that add up to 1, got {shares}")
    wanted = {split: share * n for split, share in zip(SPLITS, shares, strict=True) if share > 0}
    if n < len(wanted):
        raise DataError(f"{n} classes cannot be divided into {', '.join(wanted)}; give more classes or fewer shares")
    counts = {split: max(1, int(share)) for split, share in wanted.items()}
    while sum(counts.values()) != n:
        step = 1 if sum(counts.values()) < n else -1
        gaps = {split: step * (wanted[split] - n) for split, n in counts.items() if n + step > 0}
        counts[max(gaps, key=gaps.__getitem__)] += step
    return counts

"""From a folder that people have to the splits of a data set: which layout it is, and which class belongs where.

Two layouts give the same manifest when their pixels and classes are the same.  CIFAR-FS and FC100 hold CIFAR-100's
32 px pixels in every layout.  miniImageNet's pickles of 84 px were made by others from the JPEG files, each with its
own resizing.  tieredImageNet's npz arrays hold blue, green, red, as OpenCV does; its PNG files decode to red, green,
blue.  Pixels are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from glocal.common.errors import DataError
from glocal.common.words import printable
from glocal.research.data.array_layouts import arrays, cifar100_batches, joined
from glocal.research.data.layouts import (
    SPLITS,
    WHOLE,
    Content,
    Part,
    class_folders,
    csv_per_split,
    cub,
    inner_folder,
    listed_classes,
)
from glocal.research.data.prepared import Sample
from glocal.research.data.splits import (
    CIFAR100,
    PUBLISHED,
    canonical_name,
    check_disjoint,
    published_classes,
    seeded_split,
)

LAYOUTS = (cifar100_batches, csv_per_split, arrays, listed_classes, cub, class_folders)  # the first that fits
CIFAR = ("cifar-fs", "fc100")


@dataclass(frozen=True)
class Recognised:
    """A data set that can be read."""

    dataset: str  # "mini-imagenet", "cifar-fs", ... or the given own name
    words: str  # the layout
    splits: Mapping[str, Callable[[], Iterator[Sample]]]
    counts: Mapping[str, int]  # images per split
    variant: str = "own"  # which known variant of the pixels


@dataclass(frozen=True)
class _Split:
    part: Part
    names: Mapping[str, str]  # label -> class name

    def samples(self) -> Iterator[Sample]:
        for sample in self.part.samples(self.names.keys()):
            yield sample._replace(class_name=self.names[sample.class_name])


def recognise(
    name: str, folder: Path, *, seed: int = 0, shares: tuple[float, float, float] = (0.6, 0.16, 0.24)
) -> Recognised:
    """How to read the data set ``name`` from ``folder``.

    A published name gives the published splits.  Any other name is one's own data: divided as the folders are, or its
    classes dealt to train, val and test by ``seed`` in ``shares``.
    """
    root, dataset = inner_folder(folder), canonical_name(name)
    content = next(filter(None, (layout(root) for layout in LAYOUTS)))
    names, note = _class_names(content, dataset)
    splits, more = _published(content, names, dataset) if dataset in PUBLISHED else _own(content, names, seed, shares)
    for each in (name for split in splits.values() for name in split.names.values()):
        if each != printable(each):
            raise DataError(f"class {printable(each)!r} has a name that is not printable Unicode; rename it")
    check_disjoint({split: dict.fromkeys(each.names.values()) for split, each in splits.items()})
    return Recognised(
        dataset=dataset,
        words="; ".join(filter(None, [content.words, note, more])),
        splits={split: each.samples for split, each in splits.items()},
        counts={split: sum(each.part.counts[label] for label in each.names) for split, each in splits.items()},
        variant=_variant(dataset, content),
    )


def _variant(dataset: str, content: Content) -> str:
    """Pixels of one variant can be compared; those of two cannot."""
    if dataset not in PUBLISHED:
        return "own"
    if content.kind == "cache-pickle":
        return content.kind
    if dataset in CIFAR:
        return "mixed-sizes" if content.side is None else f"{content.side}px"
    return "original-jpeg" if content.side is None else f"{content.side}px-{content.kind}"


def _class_names(content: Content, dataset: str) -> tuple[dict[str, dict[str, str]], str]:
    """Split -> label -> class name, and what is to be said when names are made up."""
    labels = {split: [*part.counts] for split, part in content.parts.items()}
    same = {split: {label: _spelled(label, dataset) for label in each} for split, each in labels.items()}
    if dataset not in PUBLISHED or not all(label.isdigit() for each in labels.values() for label in each):
        return same, ""
    if dataset in CIFAR and all(int(label) < len(CIFAR100) for each in labels.values() for label in each):
        named = {split: {label: CIFAR100[int(label)] for label in each} for split, each in labels.items()}
        for published in map(published_classes, CIFAR):
            if all(set(each.values()) <= set(published.get(split, ())) for split, each in named.items()):
                return named, ""
    made_up = {split: {label: f"{split}-{int(label):03d}" for label in each} for split, each in labels.items()}
    return made_up, "labels are bare numbers in no defined order, so classes are called by split and number"


def _spelled(label: str, dataset: str) -> str:
    """CIFAR-100's classes are written with spaces, hyphens or capitals too."""
    plain = label.lower().replace(" ", "_").replace("-", "_")
    return plain if dataset in CIFAR and plain in CIFAR100 else label


def _published(content: Content, names: Mapping[str, Mapping[str, str]], dataset: str) -> tuple[dict[str, _Split], str]:
    """The published splits: by the published list where classes are called as in it, else as they are divided."""
    published = published_classes(dataset)
    listed = {name for classes in published.values() for name in classes}
    every = {name for each in names.values() for name in each.values()}
    strange = sorted(every - listed)
    note = ""
    if every & listed:
        if strange and dataset != "tiered-imagenet":  # which is whole classes of ImageNet, so ImageNet contains it
            _refuse_class(strange[0], dataset)
        note = f"{len(strange)} classes that {dataset} does not have were left out" if strange else ""
        name_of = {label: name for each in names.values() for label, name in each.items()}
        whole = joined([*content.parts.values()])
        chosen = {
            split: {label: name for label, name in name_of.items() if name in classes}
            for split, classes in published.items()
        }
        splits = {split: _Split(whole, each) for split, each in chosen.items() if each}
    else:
        numbered = all(name.startswith(f"{split}-") for split, each in names.items() for name in each.values())
        if WHOLE in names or not (numbered or dataset == "tiered-imagenet"):
            _refuse_class(strange[0], dataset)
        for split, each in names.items():
            if len(each) > len(published[split]):
                raise DataError(
                    f"split {split!r} of {dataset} has {len(published[split])} classes, and here are {len(each)}; "
                    "this is another data set, give it a name of its own"
                )
        splits = {split: _Split(content.parts[split], each) for split, each in names.items()}
    here = {split: len(splits[split].names) if split in splits else 0 for split in published}
    short = ", ".join(f"{n} of {len(published[split])} {split}" for split, n in here.items())
    whole_set = all(n == len(published[split]) for split, n in here.items())
    return splits, "; ".join(filter(None, [note, "" if whole_set else f"only {short} classes"]))


def _refuse_class(name: str, dataset: str) -> None:
    raise DataError(
        f"class {name!r} is not one of the classes of {dataset}; check what the folder holds, or give it its own name"
    )


def _own(
    content: Content, names: Mapping[str, Mapping[str, str]], seed: int, shares: tuple[float, float, float]
) -> tuple[dict[str, _Split], str]:
    """As the folders are divided, or classes dealt to splits by a seed."""
    if WHOLE not in names:
        return {split: _Split(content.parts[split], each) for split, each in names.items()}, ""
    dealt = seeded_split(names[WHOLE], _class_counts(len(names[WHOLE]), shares), seed=seed)
    splits = {split: _Split(content.parts[WHOLE], {name: name for name in classes}) for split, classes in dealt.items()}
    sizes = "/".join(str(len(classes)) for classes in dealt.values())
    return splits, f"classes divided {sizes} by seed {seed}"


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

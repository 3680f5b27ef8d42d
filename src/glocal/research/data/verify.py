"""Is this prepared data set what it is taken for?  Counts, classes and repeats against what is published.

Everything comes from the tables of the prepared form, so tieredImageNet takes seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from glocal.common.errors import DataError
from glocal.common.words import NAMED, counted, listed
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepared import is_prepared, open_prepared, read_index
from glocal.research.data.splits import CATALOGUE, Entry, canonical_name, published_classes

SHOWN = 5  # groups given as examples
LEAK = 0.01  # of the smallest split: more shared images than that were not published so


@dataclass(frozen=True)
class Place:
    """One of several equal images: ``index`` is what ``ClassDataset.image`` of that split takes."""

    split: str
    class_name: str
    index: int


Group = tuple[Place, ...]  # equal images


@dataclass(frozen=True)
class Duplicates:
    """Groups of equal images; ``by`` counts them for each split, or for those that share them, "train and test"."""

    groups: int
    images: int  # in all groups together
    mixed: int  # groups whose images are called different classes
    by: Mapping[str, int]
    examples: tuple[Group, ...]


@dataclass(frozen=True)
class DataFinding:
    severity: Literal["ok", "note", "problem"]
    about: str
    text: str


@dataclass(frozen=True)
class SplitState:
    """What a split holds, beside what was published (None for a data set of one's own)."""

    classes: int
    images: int
    published_classes: int | None
    published_images: int | None
    per_class: Mapping[str, int]
    manifest: str
    skipped: int


@dataclass(frozen=True)
class Verdict:
    name: str
    folder: str
    packing: str
    variant: str | None  # a key of the data set's variants, None when it is none of them
    splits: Mapping[str, SplitState]
    within: Duplicates
    across: Duplicates
    findings: tuple[DataFinding, ...]

    @property
    def problems(self) -> int:
        return sum(finding.severity == "problem" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "problems": self.problems}


def verify(folder: str | Path, name: str) -> Verdict:
    """Compare the prepared data set in ``folder`` with what is published of data set ``name``."""
    if not is_prepared(folder):
        raise DataError(
            f"{folder} holds no prepared data set; make one with glocal data prepare {name} --from PATH --out DIR"
        )
    name = canonical_name(name)
    index, entry = read_index(folder), CATALOGUE.get(name)
    data = {split: open_prepared(folder, split) for split in index.splits}
    within, across = find_duplicates(data)
    variant = index.variant if entry is not None and index.variant in entry.variants else None
    findings = [*_counts(data, entry), *_classes(data, entry)]
    if index.name != name:
        text = f"this was prepared as {index.name!r}, not as {name!r}; verify it by its name"
        findings.append(DataFinding("problem", "name", text))
    if entry is not None and entry.variants:
        form = entry.variants.get(index.variant)
        text = f"{form.words}: {form.consequence}" if form else "compare numbers only with those on these very images"
        findings.append(DataFinding("ok" if form else "note", "form", text))
    findings += [*_repeats("within", within, entry, data), *_repeats("across", across, entry, data)]
    if bad := [f"{each.where}: {each.reason}" for split in data.values() for each in split.skipped]:
        findings.append(
            DataFinding("note", "skipped", f"{counted(len(bad), 'image')} left out when preparing: {listed(bad)}")
        )
    splits = {split: _state(split, each, entry) for split, each in data.items()}
    return Verdict(name, str(folder), index.packing, variant, splits, within, across, tuple(findings))


def _state(split: str, data: ClassDataset, entry: Entry | None) -> SplitState:
    part = None if entry is None else entry.parts.get(split)
    return SplitState(
        classes=len(data.classes),
        images=len(data),
        published_classes=None if part is None else part.classes,
        published_images=None if part is None else part.images,
        per_class=dict(sorted(zip(data.classes, data.counts.tolist(), strict=True))),
        manifest=data.manifest,
        skipped=len(data.skipped),
    )


def _counts(data: Mapping[str, ClassDataset], entry: Entry | None) -> Iterator[DataFinding]:
    if entry is not None:
        for split in sorted(entry.parts.keys() ^ data.keys()):
            what = f"has no split called {split}" if split in data else f"needs a split {split}; prepare all at once"
            yield DataFinding("problem", "splits", f"{entry.title} {what}")
    for split, each in data.items():
        words = f"{split}: {counted(len(each.classes), 'class')} and {counted(len(each), 'image')}"
        published = None if entry is None else entry.parts.get(split)
        if entry is None:
            yield DataFinding("ok", "counts", words)
        if entry is None or published is None:
            continue
        pairs = zip(each.classes, each.counts.tolist(), strict=True)
        odd = [f"{name} ({n})" for name, n in pairs if entry.per_class not in (None, n)]
        if (len(each.classes), len(each)) != (published.classes, published.images):
            expected = f"{published.classes} and {published.images:,} as published"
            yield DataFinding("problem", "counts", f"{words} instead of {expected}")
        elif not odd:
            yield DataFinding("ok", "counts", f"{words}, as published")
        if odd:
            text = f"{split}: not {entry.per_class} images in {counted(len(odd), 'class')}: {listed(odd)}"
            yield DataFinding("problem", "counts", text)


def _classes(data: Mapping[str, ClassDataset], entry: Entry | None) -> Iterator[DataFinding]:
    """Class names against the published lists; a class in another split than its own is the worst that can be."""
    if entry is None or entry.class_list is None:
        return
    lists = published_classes(entry.class_list)
    home = {name: split for split, classes in lists.items() for name in classes}
    if not any(name in home for each in data.values() for name in each.classes):
        first = next(iter(data.values())).classes[0]
        text = f"the classes are not called as published ({first!r}), so only their number can be compared"
        yield DataFinding("note", "classes", text)
        return
    wrong = []
    for split, each in data.items():
        names = sorted(each.classes)
        for odd, what in (
            ([f"{name} (of {home[name]})" for name in names if home.get(name, split) != split], "of another split"),
            ([name for name in names if name not in home], "in no published list"),
            (sorted({*lists.get(split, ())} - {*names}), "missing"),
        ):
            if odd:
                text = f"{split}: {counted(len(odd), 'class')} {what}: {listed(odd)}"
                wrong.append(DataFinding("problem", "classes", text))
    yield from wrong or [DataFinding("ok", "classes", "every class is in the split it was published in")]


def _repeats(
    where: str, duplicates: Duplicates, entry: Entry | None, data: Mapping[str, ClassDataset]
) -> Iterator[DataFinding]:
    """Duplicates that were published are a note; images that splits of one's own share are a leak."""
    if not duplicates.groups:
        yield DataFinding("ok", "repeats", f"no image occurs twice {where} splits")
        return
    by = ", ".join(f"{n} in {splits}" for splits, n in duplicates.by.items())
    mixed = f", {duplicates.mixed} of them under different classes" if duplicates.mixed else ""
    groups = counted(duplicates.groups, "group")
    text = f"{duplicates.images} images make {groups} of equal ones {where} splits ({by}){mixed}"
    published = entry.repeats[where == "across"] if entry is not None and entry.repeats is not None else None
    if published is not None:
        text += ", as published" if duplicates.groups == published else f"; {published} were published"
    example = " = ".join(f"{at.split}/{at.class_name} #{at.index}" for at in duplicates.examples[0][:NAMED])
    allowed = 0.0 if entry is None else LEAK * min(map(len, data.values())) if published is None else float(published)
    leak = where == "across" and duplicates.groups > allowed
    yield DataFinding("problem" if leak else "note", "repeats", f"{text}; for example {example}")


def find_duplicates(splits: Mapping[str, ClassDataset]) -> tuple[Duplicates, Duplicates]:
    """Equal images within a split, and across splits.

    Two equal images of one split with a third in another are one group of each kind.
    """
    within: list[Group] = []
    across: list[Group] = []
    for group in _groups(splits):
        parts = [tuple(place for place in group if place.split == split) for split in splits]
        within += [part for part in parts if len(part) > 1]
        if sum(map(bool, parts)) > 1:
            across.append(group)
    return _counted(within), _counted(across)


def _groups(splits: Mapping[str, ClassDataset]) -> list[Group]:
    """Groups of equal images, in the order of their first one."""
    names, sets = list(splits), list(splits.values())
    start = np.cumsum([0, *map(len, sets)])  # where each split begins among all images
    digests = np.ascontiguousarray(np.concatenate([data.digest for data in sets])).view("V32").ravel()
    _, content, count = np.unique(digests, return_inverse=True, return_counts=True)
    groups: dict[int, list[Place]] = {}
    for row in np.flatnonzero(count[content] > 1).tolist():
        s = int(np.searchsorted(start, row, side="right")) - 1
        i = row - int(start[s])
        groups.setdefault(int(content[row]), []).append(Place(names[s], sets[s].classes[sets[s].label[i]], i))
    return [tuple(group) for group in groups.values()]


def _counted(groups: Sequence[Group]) -> Duplicates:
    return Duplicates(
        groups=len(groups),
        images=sum(map(len, groups)),
        mixed=sum(len({place.class_name for place in group}) > 1 for group in groups),
        by=dict(Counter(" and ".join(dict.fromkeys(place.split for place in group)) for group in groups)),
        examples=tuple(groups[:SHOWN]),
    )

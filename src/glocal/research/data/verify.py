"""Is this prepared data set what it is taken for?  Counts, classes, sizes, repeats and form against what is published.

Everything but ``deep`` comes from the tables of the prepared form, so tieredImageNet takes seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from glocal.common.errors import DataError
from glocal.common.words import NAMED, counted, listed
from glocal.recognizer.photos.sources import made_ahead
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.prepared import MappedBlobs, PreparedIndex, is_prepared, open_prepared, read_index
from glocal.research.data.splits import CATALOGUE, Duplicates, Entry, canonical_name, find_duplicates, published_classes

Progress: TypeAlias = Callable[[int, int], None]  # (done, total)
Severity: TypeAlias = Literal["ok", "note", "problem"]

_AT_ONCE = 1024  # pictures handed to the threads that read them again
_LEAK = 0.01  # of the smallest split: more shared pictures than that were not published so


@dataclass(frozen=True)
class Finding:
    severity: Severity
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
    sizes: tuple[tuple[int, int, int], ...]  # (height, width, pictures), most frequent first
    manifest: str
    skipped: int


@dataclass(frozen=True)
class Verdict:
    name: str
    folder: str
    packing: str
    variant: str | None  # a key of the data set's variants, None when it is none of them
    consequence: str | None  # of the variant, for comparing numbers
    splits: Mapping[str, SplitState]
    within: Duplicates
    across: Duplicates
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> int:
        return sum(finding.severity == "problem" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "problems": self.problems}


def verify(folder: str | Path, name: str, *, deep: bool = False, progress: Progress | None = None) -> Verdict:
    """Hold the prepared data set in ``folder`` against what is published of data set ``name``.

    ``deep`` reads every picture again and compares it with its digest.
    """
    if not is_prepared(folder):
        raise DataError(
            f"{folder} holds no prepared data set; make one with glocal data prepare {name} --from PATH --out DIR"
        )
    name = canonical_name(name)
    index, entry = read_index(folder), CATALOGUE.get(name)
    data = {split: open_prepared(folder, split) for split in index.splits}
    splits = {split: _state(split, each, entry) for split, each in data.items()}
    within, across = find_duplicates(data)
    variant, form = _known_form(index, entry, splits)
    told = f"this was prepared as {index.name!r}, not as {name!r}; verify it by its name"
    findings = [
        *([Finding("problem", "name", told)] if index.name != name else []),
        *(_own_counts(splits) if entry is None else _published_counts(splits, entry)),
        *(_classes(data, entry) if entry is not None and entry.class_list is not None else ()),
        *_sizes(splits),
        *([] if form is None else [form]),
        *_repeats(within, across, entry, splits),
        *_skipped(data),
        *(_deep(data, progress) if deep else ()),
    ]
    consequence = None if entry is None or variant is None else entry.variants[variant].consequence
    return Verdict(name, str(folder), index.packing, variant, consequence, splits, within, across, tuple(findings))


def _state(split: str, data: ClassDataset, entry: Entry | None) -> SplitState:
    part = None if entry is None else entry.parts.get(split)
    return SplitState(
        classes=len(data.classes),
        images=len(data),
        published_classes=None if part is None else part.classes,
        published_images=None if part is None else part.images,
        per_class=dict(sorted(zip(data.classes, data.counts.tolist(), strict=True))),
        sizes=tuple((h, w, n) for (h, w), n in Counter(_picture_sizes(data)).most_common()),
        manifest=data.manifest,
        skipped=len(data.skipped),
    )


def _picture_sizes(data: ClassDataset) -> Iterator[tuple[int, int]]:
    """(H, W) of every picture: one for all, or what each header says."""
    if isinstance(data.source, MappedBlobs):
        yield from map(data.source.size, range(len(data)))
    else:
        height, width, _ = data.image(0).shape
        yield from [(height, width)] * len(data)


def _deep(data: Mapping[str, ClassDataset], progress: Progress | None) -> Iterator[Finding]:
    damaged: list[str] = []
    total, done = sum(map(len, data.values())), 0
    for each in data.values():
        for found in made_ahead(partial(_damage, each), range(len(each)), _AT_ONCE, workers=2):
            damaged += filter(None, found)
            done += len(found)
            if progress is not None:
                progress(done, total)
    if damaged:
        text = f"{counted(len(damaged), 'picture')} not as prepared: {listed(damaged)}; prepare the data set again"
        yield Finding("problem", "pictures", text)
    else:
        yield Finding("ok", "pictures", f"all {total:,} pictures read again and equal to their digests")


def _damage(data: ClassDataset, i: int) -> str | None:
    """Where picture i is, when it is no longer what it was."""
    try:
        data.same_image(i)
    except DataError:
        return data.where(i)
    return None


def _own_counts(splits: Mapping[str, SplitState]) -> Iterator[Finding]:
    for split, state in splits.items():
        least, most = min(state.per_class.values()), max(state.per_class.values())
        each = f"{least}" if least == most else f"{least} to {most}"
        yield Finding(
            "ok", "counts", f"{split}: {state.classes} classes with {each} pictures each, {state.images:,} in all"
        )


def _published_counts(splits: Mapping[str, SplitState], entry: Entry) -> Iterator[Finding]:
    for split in sorted(entry.parts.keys() - splits.keys()):
        yield Finding("problem", "splits", f"there is no split {split}; prepare all of {entry.title} at once")
    for split in sorted(splits.keys() - entry.parts.keys()):
        yield Finding("problem", "splits", f"{entry.title} has no split called {split}")
    for split, part in entry.parts.items():
        if split not in splits:
            continue
        state = splits[split]
        found, wanted = (state.classes, state.images), (part.classes, part.images)
        words = f"{split}: {state.classes} classes and {state.images:,} pictures"
        odd = {each: n for each, n in state.per_class.items() if entry.per_class not in (None, n)}
        if found != wanted:
            yield Finding("problem", "counts", f"{words} instead of {part.classes} and {part.images:,} as published")
        if odd:
            named = listed([f"{each} ({count})" for each, count in odd.items()])
            yield Finding(
                "problem", "counts", f"{split}: not {entry.per_class} pictures in {counted(len(odd), 'class')}: {named}"
            )
        if found == wanted and not odd:
            each = "" if entry.per_class is None else f", {entry.per_class} of each class"
            yield Finding("ok", "counts", f"{words}{each}, as published")


def _classes(data: Mapping[str, ClassDataset], entry: Entry) -> Iterator[Finding]:
    """Class names against the published lists; a class in another split than its own is the worst that can be."""
    assert entry.class_list is not None
    lists = published_classes(entry.class_list)
    home = {each: split for split, classes in lists.items() for each in classes}
    if not any(each in home for found in data.values() for each in found.classes):
        first = next(iter(data.values())).classes[0]
        text = f"the classes are not called as published ({first!r}), so their lists cannot be compared, only counts"
        yield Finding("note", "classes", text)
        return
    wrong = False
    for split, found in data.items():
        moved = [f"{each} (of {home[each]})" for each in sorted(found.classes) if home.get(each, split) != split]
        strange = [each for each in sorted(found.classes) if each not in home]
        complete = split in entry.parts and entry.parts[split].classes == len(lists.get(split, ()))
        missing = sorted(set(lists[split]) - set(found.classes)) if complete else []
        for names, what in (
            (moved, "of another split, so results on this one cannot be believed"),
            (strange, "in no published list"),
            (missing, "missing"),
        ):
            if names:
                wrong = True
                yield Finding("problem", "classes", f"{split}: {counted(len(names), 'class')} {what}: {listed(names)}")
    if not wrong:
        yield Finding("ok", "classes", "every class is in the split it was published in")


def _sizes(splits: Mapping[str, SplitState]) -> Iterator[Finding]:
    sizes: Counter[tuple[int, int]] = Counter()
    for state in splits.values():
        sizes.update({(height, width): n for height, width, n in state.sizes})
    (height, width), most = sizes.most_common(1)[0]
    if len(sizes) == 1:
        yield Finding("ok", "sizes", f"all pictures have {width}x{height} pixels")
        return
    short = [min(size) for size in sizes]
    text = f"{len(sizes)} sizes, short side {min(short)} to {max(short)} px; {most:,} pictures have {width}x{height}"
    yield Finding("ok", "sizes", text)


def _known_form(
    index: PreparedIndex, entry: Entry | None, splits: Mapping[str, SplitState]
) -> tuple[str | None, Finding | None]:
    """Which known form this is: what preparing recognised, unless the pictures have other sizes than that form's."""
    if entry is None or not entry.variants:
        return None, None
    sizes = {size[:2] for state in splits.values() for size in state.sizes}
    fitting = [
        key
        for key, variant in entry.variants.items()
        if (len(sizes) > 1 if variant.side is None else sizes == {(variant.side, variant.side)})
    ]
    if not fitting:
        words = ", ".join(variant.words for variant in entry.variants.values())
        text = f"none of the known forms ({words}): compare numbers only with those measured on these very pictures"
        return None, Finding("note", "form", text)
    key = index.variant if index.variant in fitting else fitting[-1]
    variant = entry.variants[key]
    return key, Finding("ok", "form", f"{variant.words}: {variant.consequence}")


def _repeats(
    within: Duplicates, across: Duplicates, entry: Entry | None, splits: Mapping[str, SplitState]
) -> Iterator[Finding]:
    """Duplicates that were published are a note; pictures shared by splits of one's own are a leak."""
    known = None if entry is None else entry.repeats
    for kind, found, published in (("within", within, known and known[0]), ("across", across, known and known[1])):
        if not found.groups:
            yield Finding("ok", "repeats", f"no picture occurs twice {kind} splits")
            continue
        by = ", ".join(f"{n} in {where}" for where, n in found.by.items())
        mixed = f", {found.mixed} of them under different classes" if found.mixed else ""
        text = (
            f"{found.pictures} pictures make {counted(found.groups, 'group')} of equal ones {kind} splits ({by}){mixed}"
        )
        if found.groups == published:
            text += ", as published"
        elif published is not None and found.groups > published:
            text += f"; {published} were published"
        places = found.examples[0][:NAMED]
        example = " = ".join(f"{place.split}/{place.class_name} #{place.index}" for place in places)
        yield Finding(_weight(kind, found, entry, splits), "repeats", f"{text}; for example {example}")


def _weight(kind: str, found: Duplicates, entry: Entry | None, splits: Mapping[str, SplitState]) -> Severity:
    if kind == "within":
        return "note"
    if entry is None:
        return "problem"
    allowed = entry.repeats[1] if entry.repeats else _LEAK * min(state.images for state in splits.values())
    return "note" if found.groups <= allowed else "problem"


def _skipped(data: Mapping[str, ClassDataset]) -> Iterator[Finding]:
    left_out = [f"{bad.where}: {bad.reason}" for each in data.values() for bad in each.skipped]
    if left_out:
        text = f"{counted(len(left_out), 'picture')} left out when preparing: {listed(left_out)}"
        yield Finding("note", "skipped", text)

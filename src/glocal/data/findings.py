"""What can be said about a prepared data set, one sentence at a time.  ``verify`` asks for all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from glocal.data.dataset import ClassDataset
from glocal.data.facts import Facts, Variant
from glocal.data.prepared import PreparedIndex
from glocal.data.published_splits import published_classes
from glocal.data.repeats import Group, Repeats

Severity: TypeAlias = Literal["ok", "note", "problem"]

_NAMED = 5  # classes or pictures named in a sentence; the rest is counted
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


def check_names(index: PreparedIndex, name: str) -> Iterator[Finding]:
    if index.name != name:
        yield Finding("problem", "name", f"this was prepared as {index.name!r}, not as {name!r}; verify it by its name")


def own_counts(splits: Mapping[str, SplitState]) -> Iterator[Finding]:
    for split, state in splits.items():
        least, most = min(state.per_class.values()), max(state.per_class.values())
        each = f"{least}" if least == most else f"{least} to {most}"
        yield Finding(
            "ok", "counts", f"{split}: {state.classes} classes with {each} pictures each, {state.images:,} in all"
        )


def against_published(splits: Mapping[str, SplitState], facts: Facts) -> Iterator[Finding]:
    for split in sorted(facts.parts.keys() - splits.keys()):
        yield Finding("problem", "splits", f"there is no split {split}; prepare all of {facts.title} at once")
    for split in sorted(splits.keys() - facts.parts.keys()):
        yield Finding("problem", "splits", f"{facts.title} has no split called {split}")
    for split, part in facts.parts.items():
        if split not in splits:
            continue
        state = splits[split]
        found, wanted = (state.classes, state.images), (part.classes, part.images)
        words = f"{split}: {state.classes} classes and {state.images:,} pictures"
        odd = {} if facts.per_class is None else _other_than(state.per_class, facts.per_class)
        if found != wanted:
            yield Finding("problem", "counts", f"{words} instead of {part.classes} and {part.images:,} as published")
        if odd:
            named = listed([f"{each} ({count})" for each, count in odd.items()])
            yield Finding(
                "problem", "counts", f"{split}: not {facts.per_class} pictures in {counted(len(odd), 'class')}: {named}"
            )
        if found == wanted and not odd:
            each = "" if facts.per_class is None else f", {facts.per_class} of each class"
            yield Finding("ok", "counts", f"{words}{each}, as published")


def _other_than(counts: Mapping[str, int], wanted: int) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count != wanted}


def check_classes(data: Mapping[str, ClassDataset], facts: Facts) -> Iterator[Finding]:
    """Class names against the published lists; a class in another split than its own is the worst that can be."""
    assert facts.class_list is not None
    lists = published_classes(facts.class_list)
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
        complete = split in facts.parts and facts.parts[split].classes == len(lists.get(split, ()))
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


def check_sizes(splits: Mapping[str, SplitState]) -> Iterator[Finding]:
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


def known_form(
    index: PreparedIndex, facts: Facts | None, splits: Mapping[str, SplitState]
) -> tuple[str | None, Finding | None]:
    """Which known form this is: what preparing recognised, unless the pictures have other sizes than that form's."""
    if facts is None or not facts.variants:
        return None, None
    sizes = {size[:2] for state in splits.values() for size in state.sizes}
    fitting = [key for key, variant in facts.variants.items() if _fits(variant, sizes)]
    if not fitting:
        words = ", ".join(variant.words for variant in facts.variants.values())
        text = f"none of the known forms ({words}): compare numbers only with those measured on these very pictures"
        return None, Finding("note", "form", text)
    key = index.variant if index.variant in fitting else fitting[-1]
    variant = facts.variants[key]
    return key, Finding("ok", "form", f"{variant.words}: {variant.consequence}")


def _fits(variant: Variant, sizes: set[tuple[int, int]]) -> bool:
    return len(sizes) > 1 if variant.side is None else sizes == {(variant.side, variant.side)}


def check_repeats(
    within: Repeats, across: Repeats, facts: Facts | None, splits: Mapping[str, SplitState]
) -> Iterator[Finding]:
    """Repeats that were published are a note; pictures shared by splits of one's own are a leak."""
    known = None if facts is None else facts.repeats
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
        yield Finding(
            _weight(kind, found, facts, splits), "repeats", f"{text}; for example {_example(found.examples[0])}"
        )


def _weight(kind: str, found: Repeats, facts: Facts | None, splits: Mapping[str, SplitState]) -> Severity:
    if kind == "within":
        return "note"
    if facts is None:
        return "problem"
    allowed = facts.repeats[1] if facts.repeats else _LEAK * min(state.images for state in splits.values())
    return "note" if found.groups <= allowed else "problem"


def _example(group: Group) -> str:
    return " = ".join(f"{place.split}/{place.class_name} #{place.index}" for place in group[:_NAMED])


def check_skipped(data: Mapping[str, ClassDataset]) -> Iterator[Finding]:
    left_out = [f"{bad.where}: {bad.reason}" for each in data.values() for bad in each.skipped]
    if left_out:
        text = f"{counted(len(left_out), 'picture')} left out when preparing: {listed(left_out)}"
        yield Finding("note", "skipped", text)


def listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}{'es' if what.endswith('s') else 's'}"

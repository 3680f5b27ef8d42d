"""Is this prepared data set what it is taken for?  Counts, classes, sizes, repeats and form against what is published.

Everything but ``deep`` comes from the tables of the prepared form, so tieredImageNet takes seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from glocal.data.dataset import ClassDataset
from glocal.data.facts import FACTS, Facts
from glocal.data.findings import (
    Finding,
    SplitState,
    against_published,
    check_classes,
    check_names,
    check_repeats,
    check_sizes,
    check_skipped,
    counted,
    known_form,
    listed,
    own_counts,
)
from glocal.data.prepared import MappedBlobs, is_prepared, open_prepared, read_index
from glocal.data.published_splits import canonical_name
from glocal.data.repeats import Repeats, find_repeats
from glocal_runtime.errors import DataError

Progress: TypeAlias = Callable[[int, int], None]  # (done, total)

_AT_ONCE = 1024  # pictures handed to the threads that read them again


@dataclass(frozen=True)
class Verdict:
    name: str
    folder: str
    packing: str
    variant: str | None  # a key of the data set's variants, None when it is none of them
    consequence: str | None  # of the variant, for comparing numbers
    splits: Mapping[str, SplitState]
    within: Repeats
    across: Repeats
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
    index, facts = read_index(folder), FACTS.get(name)
    data = {split: open_prepared(folder, split) for split in index.splits}
    splits = {split: _state(split, each, facts) for split, each in data.items()}
    within, across = find_repeats(data)
    variant, form = known_form(index, facts, splits)
    findings = [
        *check_names(index, name),
        *(own_counts(splits) if facts is None else against_published(splits, facts)),
        *(check_classes(data, facts) if facts is not None and facts.class_list is not None else ()),
        *check_sizes(splits),
        *([] if form is None else [form]),
        *check_repeats(within, across, facts, splits),
        *check_skipped(data),
        *(_deep(data, progress) if deep else ()),
    ]
    consequence = None if facts is None or variant is None else facts.variants[variant].consequence
    return Verdict(name, str(folder), index.packing, variant, consequence, splits, within, across, tuple(findings))


def _state(split: str, data: ClassDataset, facts: Facts | None) -> SplitState:
    part = None if facts is None else facts.parts.get(split)
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
    with ThreadPoolExecutor(2) as pool:
        for each in data.values():
            for begin in range(0, len(each), _AT_ONCE):  # a task per picture of tieredImageNet would fill the memory
                rows = range(begin, min(begin + _AT_ONCE, len(each)))
                damaged += [where for where in pool.map(partial(_damage, each), rows) if where is not None]
                done += len(rows)
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

"""What was published about each data set, which classes are for training, validation and test, and what splits share.

``catalogue.toml`` says the first, ``class_lists`` or a seed the second, content digests the third.
FC100 is divided by superclass, so its list names superclasses; ``published_classes`` names the classes themselves.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from glocal.common.errors import DataError
from glocal.research.data.dataset import ClassDataset

PUBLISHED = ("cifar-fs", "cub", "fc100", "mini-imagenet", "tiered-imagenet")

Splits = dict[str, tuple[str, ...]]  # split name -> class names


def _class_list(name: str) -> Splits:
    text = resources.files("glocal.research.data").joinpath("class_lists", f"{name}.json").read_text("utf-8")
    return {key: tuple(classes) for key, classes in json.loads(text).items()}


SUPERCLASSES = _class_list("cifar-100")
CIFAR100 = tuple(sorted(name for names in SUPERCLASSES.values() for name in names))  # its label i is CIFAR100[i]
_SPELLED = {name.replace("-", ""): name for name in PUBLISHED}


def canonical_name(name: str) -> str:
    """The name of a published data set however it is spelled (CIFAR_FS, miniImageNet); any other name as it is."""
    return _SPELLED.get(name.lower().replace("-", "").replace("_", ""), name)


def published_split(name: str) -> Splits:
    """train, val and test classes as published; FC100 names CIFAR-100's superclasses, ImageNet sets their wnids."""
    if name not in PUBLISHED:
        raise DataError(f"no published split is called {name!r}; there are {', '.join(PUBLISHED)}")
    splits = _class_list(name)
    check_disjoint(splits)
    return splits


def published_classes(name: str) -> Splits:
    """train, val and test classes of a published data set, FC100's too."""
    splits = published_split(name)
    if name != "fc100":
        return splits
    return {split: tuple(sorted(c for each in names for c in SUPERCLASSES[each])) for split, names in splits.items()}


def check_disjoint(splits: Mapping[str, Iterable[str]]) -> None:
    """Refuse a class that occurs twice: then nothing measured on one split could be believed."""
    home: dict[str, str] = {}
    for split, classes in splits.items():
        for each in classes:
            if each in home:
                raise DataError(
                    f"a class must be in one split only, but {each!r} is in {home[each]!r} and again in {split!r}; "
                    "remove one of the two"
                )
            home[each] = split


def check_apart(a: ClassDataset, b: ClassDataset) -> list[tuple[str, str]]:
    """Refuse two splits that share a class; return (where in a, where in b) of every image that both hold.

    Shared images are for a warning only: CIFAR-FS itself has a few.
    """
    if shared := sorted(set(a.classes) & set(b.classes)):
        raise DataError(
            f"{a.name} and {b.name} share {len(shared)} classes, such as {shared[0]!r}; a class must be in one split "
            "only, so remove it from one of the two"
        )
    of_a = {digest.tobytes(): i for i, digest in enumerate(a.digest)}
    of_b = {digest.tobytes(): i for i, digest in enumerate(b.digest)}
    return [(a.where(i), b.where(of_b[digest])) for digest, i in of_a.items() if digest in of_b]


def seeded_split(class_names: Iterable[str], counts: Mapping[str, int], *, seed: int = 0) -> Splits:
    """Divide classes into splits of the sizes given, e.g. ``{"train": 64, "val": 16, "test": 20}``.

    Classes are ranked by sha256("seed:name").  So the order in which the names come has no influence, and every machine
    divides alike.
    """
    names = list(class_names)
    if twice := [each for each, count in Counter(names).items() if count > 1]:
        raise DataError(f"class names must differ from each other, but {twice[0]!r} occurs twice; remove one")
    if not counts or min(counts.values()) < 1:
        raise DataError(f"every split needs at least 1 class, got {dict(counts)}")
    if sum(counts.values()) > len(names):
        raise DataError(f"{dict(counts)} asks for {sum(counts.values())} classes, but there are only {len(names)}")
    ranked = sorted(names, key=lambda each: hashlib.sha256(f"{seed}:{each}".encode(errors="surrogateescape")).digest())
    splits: Splits = {}
    for split, count in counts.items():
        splits[split], ranked = tuple(sorted(ranked[:count])), ranked[count:]
    return splits


@dataclass(frozen=True)
class SplitSize:
    """One split as published."""

    classes: int
    images: int


@dataclass(frozen=True)
class Variant:
    """A form in which the images go around."""

    words: str
    consequence: str  # for comparing numbers


@dataclass(frozen=True)
class Entry:
    """One data set."""

    name: str
    title: str
    parts: Mapping[str, SplitSize]
    size: str  # of the images, in words
    source: str  # project or paper
    home: str  # public page
    terms: str
    todo: str  # what a user has to do to have it
    per_class: int | None = None  # images of every class, None when they differ
    variants: Mapping[str, Variant] = field(default_factory=dict)
    class_list: str | None = None  # the published split that says which class belongs where
    repeats: tuple[int, int] | None = None  # images published more than once: groups within splits, and across

    @property
    def images(self) -> int:
        return sum(part.images for part in self.parts.values())


def _entry(name: str, stored: dict[str, Any]) -> Entry:
    parts = {split: SplitSize(**part) for split, part in stored.pop("parts").items()}
    variants = {key: Variant(**each) for key, each in stored.pop("variants", {}).items()}
    repeats = stored.pop("repeats", None)
    return Entry(name=name, parts=parts, variants=variants, repeats=repeats and tuple(repeats), **stored)


_TEXT = resources.files("glocal.research.data").joinpath("catalogue.toml").read_text("utf-8")
CATALOGUE: Mapping[str, Entry] = {name: _entry(name, stored) for name, stored in tomllib.loads(_TEXT).items()}

"""What was published about each data set; ``catalogue.toml`` says it, and ``verify`` holds pictures against it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class SplitSize:
    """One split as published."""

    classes: int
    images: int


@dataclass(frozen=True)
class Variant:
    """A form in which the pictures go around."""

    words: str
    consequence: str  # for comparing numbers
    side: int | None = None  # pixels of every picture, None when they differ


@dataclass(frozen=True)
class Entry:
    """One data set."""

    name: str
    title: str
    parts: Mapping[str, SplitSize]
    size: str  # of the pictures, in words
    source: str  # project or paper
    home: str  # public page
    terms: str
    todo: str  # what a user has to do to have it
    per_class: int | None = None  # pictures of every class, None when they differ
    variants: Mapping[str, Variant] = field(default_factory=dict)
    class_list: str | None = None  # the published split that says which class belongs where
    repeats: tuple[int, int] | None = None  # pictures published more than once: groups within splits, and across

    @property
    def images(self) -> int:
        return sum(part.images for part in self.parts.values())


def _entry(name: str, stored: dict[str, Any]) -> Entry:
    parts = {split: SplitSize(**part) for split, part in stored.pop("parts").items()}
    variants = {key: Variant(**each) for key, each in stored.pop("variants", {}).items()}
    repeats = stored.pop("repeats", None)
    return Entry(name=name, parts=parts, variants=variants, repeats=repeats and tuple(repeats), **stored)


_TEXT = resources.files("glocal.data").joinpath("catalogue.toml").read_text("utf-8")
CATALOGUE: Mapping[str, Entry] = {name: _entry(name, stored) for name, stored in tomllib.loads(_TEXT).items()}

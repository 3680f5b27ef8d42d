"""What a recognizer keeps of its photos: their views by class, a thumbnail, and a way to know them again."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from PIL import Image
from torch import Tensor

from glocal.data.images import Pixels
from glocal.errors import DataError
from glocal.recognizer.eye import Batch
from glocal.recognizer.naming import check_class_name, check_distinct
from glocal.recognizer.twins import stacked
from glocal.types import Views

THUMBNAIL = 112  # pixels a side
LARGEST_HALF = 6e4  # a view with a larger number is kept in float32


@dataclass(frozen=True)
class Photo:
    name: str  # the file it came from
    digest: str  # of its pixels as the backbone sees them
    thumbnail: bytes  # JPEG


@dataclass(frozen=True)
class Bank:
    """K photos of one class, or of the known unknowns; row i of every tensor belongs to photo i.

    Local views are rounded to half precision when they come in, not when they are saved: a recognizer answers the same
    before and after it went through a file.
    """

    photos: tuple[Photo, ...]
    views: Views  # on the CPU
    signature: Tensor  # (K, 256) uint8

    def __len__(self) -> int:
        return len(self.photos)

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> Bank:
        found = list(batches)
        pictures = [picture for batch in found for picture in batch.readable]
        return cls(
            tuple(Photo(each.name, each.digest, thumbnail(each.pixels)) for each in pictures),
            join([on_cpu(batch.views) for batch in found]),
            stacked([each.signature for each in pictures]),
        )

    def rows(self, keep: list[int]) -> Bank:
        pick = torch.tensor(keep, dtype=torch.long)
        return Bank(tuple(self.photos[i] for i in keep), self.views.rows(pick), self.signature[pick])

    def __add__(self, other: Bank) -> Bank:
        return Bank(
            self.photos + other.photos,
            join([self.views, other.views]),
            torch.cat([self.signature, other.signature]),
        )


@dataclass(frozen=True)
class Support:
    """The classes in order, each with its bank."""

    classes: Mapping[str, Bank]

    def __post_init__(self) -> None:
        for name in self.classes:
            check_class_name(name)
        check_distinct(self.classes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.classes)

    @property
    def shots(self) -> list[int]:
        return [len(bank) for bank in self.classes.values()]

    @cached_property
    def photos(self) -> tuple[Photo, ...]:
        """All photos, class by class."""
        return tuple(photo for bank in self.classes.values() for photo in bank.photos)

    @cached_property
    def label(self) -> Tensor:
        """(S,) the class of each photo."""
        return torch.repeat_interleave(torch.arange(len(self.classes)), torch.tensor(self.shots))

    @cached_property
    def signature(self) -> Tensor:
        return torch.cat([bank.signature for bank in self.classes.values()])

    def views(self) -> Views:
        """All views in full precision, rows as in ``label``."""
        joined = join([bank.views for bank in self.classes.values()])
        return Views(joined.vec.float(), None if joined.local is None else joined.local.float())

    def having(self, name: str) -> str:
        """The name as it is enrolled, or a sentence that names the classes there are."""
        wanted = check_class_name(name)
        if wanted not in self.classes:
            shown = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            raise DataError(f"there is no class {name!r}; the classes are {shown}")
        return wanted

    def with_class(self, name: str, bank: Bank) -> Support:
        """With the class, at the end when it is new."""
        return Support({**self.classes, check_class_name(name): bank})

    def without(self, name: str) -> Support:
        name = self.having(name)
        if len(self.classes) == 1:
            raise DataError(f"{name!r} is the only class; a recognizer needs at least one, add another first")
        return Support({each: bank for each, bank in self.classes.items() if each != name})

    def renamed(self, old: str, new: str) -> Support:
        old, new = self.having(old), check_class_name(new)
        if new in self.classes and new != old:
            raise DataError(f"there is a class {new!r} already; remove it first, or choose another name")
        return Support({new if each == old else each: bank for each, bank in self.classes.items()})


def join(views: list[Views]) -> Views:
    locals_ = [each.local for each in views if each.local is not None]
    return Views(torch.cat([each.vec for each in views]), torch.cat(locals_) if locals_ else None)


def on_cpu(views: Views) -> Views:
    local = views.local
    if local is not None:
        local = local.cpu()
        local = local.half() if not local.numel() or float(local.abs().max()) < LARGEST_HALF else local
    return Views(views.vec.float().cpu(), local)


def thumbnail(pixels: Pixels) -> bytes:
    """(size, size, 3) -> a small JPEG of the part that the backbone sees."""
    image, buffer = Image.fromarray(pixels), io.BytesIO()
    if image.width > THUMBNAIL:
        image = image.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()

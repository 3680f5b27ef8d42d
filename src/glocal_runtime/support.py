"""What a recognizer keeps of its photos: their views by class, a thumbnail, and a way to know them again."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from PIL import Image

from glocal_runtime.errors import DataError
from glocal_runtime.eye import Batch
from glocal_runtime.images import Pixels
from glocal_runtime.left_out import Labels, LeftOut
from glocal_runtime.naming import check_class_name, check_distinct
from glocal_runtime.twins import stacked
from glocal_runtime.views import Views, join

THUMBNAIL = 112  # pixels a side


@dataclass(frozen=True)
class Photo:
    name: str  # the file it came from
    digest: str  # of its pixels as the backbone sees them
    thumbnail: bytes  # JPEG


class AnyBank(Protocol):
    """K photos of one class, or of the known unknowns, whatever kind of array holds their numbers."""

    @property
    def photos(self) -> tuple[Photo, ...]: ...

    @property
    def views(self) -> Any: ...

    @property
    def signature(self) -> Any: ...  # (K, 256) uint8

    def __len__(self) -> int: ...

    def rows(self, keep: list[int]) -> Any: ...

    def __add__(self, other: Any) -> Any: ...


B = TypeVar("B", bound=AnyBank)
S = TypeVar("S", bound="Classes[Any]")


@dataclass(frozen=True)
class Bank:
    """Row i of every array belongs to photo i; the views are as ``Views.stored`` leaves them."""

    photos: tuple[Photo, ...]
    views: Views
    signature: Pixels  # (K, 256)

    def __len__(self) -> int:
        return len(self.photos)

    @classmethod
    def of(cls, batches: Iterable[Batch[Views]]) -> Bank:
        found = list(batches)
        pictures = [picture for batch in found for picture in batch.readable]
        return cls(
            tuple(Photo(each.name, each.digest, thumbnail(each.pixels)) for each in pictures),
            join([batch.views.stored() for batch in found]),
            stacked([each.signature for each in pictures]),
        )

    def rows(self, keep: list[int]) -> Bank:
        return Bank(tuple(self.photos[i] for i in keep), self.views.rows(keep), self.signature[keep])

    def __add__(self, other: Bank) -> Bank:
        return Bank(
            self.photos + other.photos,
            join([self.views, other.views]),
            np.concatenate([self.signature, other.signature]),
        )


@dataclass(frozen=True)
class Classes(Generic[B]):
    """The classes in order, each with its bank."""

    classes: Mapping[str, B]

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
    def class_of(self) -> Labels:
        """(S,) the class of each photo."""
        return np.repeat(np.arange(len(self.classes)), self.shots)

    @cached_property
    def signature(self) -> Pixels:
        """(S, 256)."""
        return np.concatenate([np.asarray(bank.signature) for bank in self.classes.values()])

    def having(self, name: str) -> str:
        """The name as it is enrolled, or a sentence that names the classes there are."""
        wanted = check_class_name(name)
        if wanted not in self.classes:
            shown = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            raise DataError(f"there is no class {name!r}; the classes are {shown}")
        return wanted

    def with_class(self: S, name: str, bank: B) -> S:
        """With the class, at the end when it is new."""
        return type(self)({**self.classes, check_class_name(name): bank})

    def without(self: S, name: str) -> S:
        name = self.having(name)
        if len(self.classes) == 1:
            raise DataError(f"{name!r} is the only class; a recognizer needs at least one, add another first")
        return type(self)({each: bank for each, bank in self.classes.items() if each != name})

    def without_photo(self: S, digest: str) -> tuple[str, S]:
        """The class that had the photo, and the classes without it."""
        for name, bank in self.classes.items():
            rest = [i for i, photo in enumerate(bank.photos) if photo.digest != digest]
            if len(rest) < len(bank):
                if not rest:
                    raise DataError(f"this is the only photo of class {name!r}; remove the class, or add a photo first")
                return name, type(self)({**self.classes, name: bank.rows(rest)})
        raise DataError(f"there is no support photo {digest[:12]!r}; it may have been removed before")

    def renamed(self: S, old: str, new: str) -> S:
        old, new = self.having(old), check_class_name(new)
        if new in self.classes and new != old:
            raise DataError(f"there is a class {new!r} already; remove it first, or choose another name")
        return type(self)({new if each == old else each: bank for each, bank in self.classes.items()})


class Support(Classes[Bank]):
    def views(self) -> Views:
        """All views in full precision, rows as in ``class_of``."""
        return join([bank.views for bank in self.classes.values()]).full()


def carried_over(left: Sequence[LeftOut], old: Classes[Any], new: Classes[Any]) -> list[LeftOut]:
    """Left-out scores of the classes whose photos are the same before and after, renumbered for ``new``."""
    place = {id(bank): i for i, bank in enumerate(new.classes.values())}
    banks = list(old.classes.values())
    start_old, start_new = (np.cumsum([0, *each.shots]).tolist() for each in (old, new))
    kept = []
    for each in left:
        label = place.get(id(banks[each.label]))
        if label is not None:
            photo = each.photo - start_old[each.label] + start_new[label]
            nearest = place.get(id(banks[each.nearest]), label)  # a class that is gone can mislead nobody
            kept.append(each._replace(photo=photo, label=label, nearest=nearest))
    return kept


def thumbnail(pixels: Pixels) -> bytes:
    """(size, size, 3) -> a small JPEG of the part that the backbone sees."""
    image, buffer = Image.fromarray(pixels), io.BytesIO()
    if image.width > THUMBNAIL:
        image = image.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()

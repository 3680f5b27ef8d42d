"""What a recognizer keeps of its photos, in tensors; see ``glocal_runtime.support``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.recognizer.eye import Batch
from glocal.recognizer.twins import stacked
from glocal.types import Views
from glocal_runtime import support
from glocal_runtime.support import THUMBNAIL, Photo, thumbnail

__all__ = ["THUMBNAIL", "Bank", "Photo", "Support", "join", "on_cpu", "thumbnail"]


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


class Support(support.Classes[Bank]):
    """The classes in order, each with its bank."""

    @property
    def label(self) -> Tensor:
        """(S,) the class of each photo."""
        return torch.from_numpy(self.class_of)

    def views(self) -> Views:
        """All views in full precision, rows as in ``label``."""
        joined = join([bank.views for bank in self.classes.values()])
        return Views(joined.vec.float(), None if joined.local is None else joined.local.float())


def join(views: list[Views]) -> Views:
    locals_ = [each.local for each in views if each.local is not None]
    return Views(torch.cat([each.vec for each in views]), torch.cat(locals_) if locals_ else None)


def on_cpu(views: Views) -> Views:
    """As they are stored; see ``glocal_runtime.views``."""
    return Views.from_numpy(Views(views.vec.float(), views.local).numpy().stored())

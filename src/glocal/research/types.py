"""The values that travel between layers.  Letters used in every shape comment:

S support images; Q query images; B images of a batch.  N known classes (ways); K shots.  C channels of a map;
H W size of a map; P = H * W pixels of a map.  D size of an embedding.

One polarity everywhere: a larger ``open_score`` means more unknown; unknown is the positive class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from glocal.common.errors import DataError
from glocal.recognizer.features import UNKNOWN
from glocal.recognizer.photos.images import IMAGENET_MEAN, IMAGENET_STD, Preprocess

__all__ = [
    "IMAGENET_MEAN", "IMAGENET_STD", "UNKNOWN", "BaseClasses", "Episode", "Output", "Preprocess",
    "Views", "check_support", "normalize", "tensor_hash", "to_one_hot",
]  # fmt: skip


class _OutputFields(NamedTuple):
    logits: Tensor  # (Q, N)  larger = more like that known class
    open_score: Tensor  # (Q,)  larger = more likely unknown


class Output(_OutputFields):
    """What every method says about a batch of queries; unpacks as (logits, open_score)."""

    __slots__ = ()

    def __new__(cls, logits: Tensor, open_score: Tensor) -> Output:
        if logits.ndim != 2 or open_score.shape != logits.shape[:1]:
            raise DataError(
                f"a method must give logits (Q, N) and open_score (Q,) of the same queries, got shapes "
                f"{tuple(logits.shape)} and {tuple(open_score.shape)}"
            )
        return super().__new__(cls, logits, open_score)


@dataclass(frozen=True)
class Views:
    """What a method keeps of each image; row i of every field belongs to image i."""

    vec: Tensor  # (B, D)
    local: Tensor | None = None  # (B, D', H, W), only for methods that look at pixels

    def __post_init__(self) -> None:
        if self.vec.ndim != 2:
            raise DataError(f"Views.vec must be (B, D), got shape {tuple(self.vec.shape)}")
        # .shape[0], because len() would fix the number of pictures of an exported graph
        if self.local is not None and (self.local.ndim != 4 or self.local.shape[0] != self.vec.shape[0]):
            raise DataError(
                f"Views.local must be (B, D', H, W) with B = {len(self.vec)} as in vec, got {tuple(self.local.shape)}"
            )

    def __len__(self) -> int:
        return len(self.vec)

    def rows(self, pick: slice | Tensor) -> Views:
        """Those of some pictures."""
        return Views(self.vec[pick], None if self.local is None else self.local[pick])


@dataclass(frozen=True)
class Episode:
    """One N-way task.  ``support`` and ``query`` hold images before ``encode``, feature maps after it."""

    support: Tensor  # (S, ...)
    support_label: Tensor  # (S,)  0..N-1
    query: Tensor  # (Q, ...)
    query_label: Tensor  # (Q,)  0..N-1 or UNKNOWN
    drawn: tuple[int, ...] = ()  # dataset ids of every class drawn, known classes first
    # The task seen from the other side (unknown classes as the known ones); only for methods with needs_mirror.
    mirror_support: Tensor | None = None  # (S', ...)
    mirror_support_label: Tensor | None = None  # (S',)  0..M-1
    mirror_query_label: Tensor | None = None  # (Q,)  0..M-1 for unknown queries, UNKNOWN for known ones

    def __post_init__(self) -> None:
        check_support(self.support, self.support_label)
        _check_labels(self.query_label, "query labels", "Q")
        if len(self.query) != len(self.query_label):
            raise DataError(f"{len(self.query)} queries but {len(self.query_label)} query labels")
        if len(self.query_label):
            low, top = int(self.query_label.min()), int(self.query_label.max())
            if top >= self.n_way or low < UNKNOWN:
                raise DataError(
                    f"query labels must be {UNKNOWN} (unknown) or 0..{self.n_way - 1}, got {low}..{top}: "
                    f"the support has {self.n_way} classes"
                )
        if self.support.shape[1:] != self.query.shape[1:]:
            raise DataError(
                f"support and query must have rows of one shape, got {tuple(self.support.shape[1:])} and "
                f"{tuple(self.query.shape[1:])}"
            )
        mirror = (self.mirror_support, self.mirror_support_label, self.mirror_query_label)
        if any(part is not None for part in mirror):
            if self.mirror_support is None or self.mirror_support_label is None or self.mirror_query_label is None:
                raise DataError("a mirrored task needs its support, support labels and query labels together")
            check_support(self.mirror_support, self.mirror_support_label)
            _check_labels(self.mirror_query_label, "mirrored query labels", "Q")
            if not torch.equal(self.mirror_query_label == UNKNOWN, self.known):
                raise DataError("mirrored query labels must be unknown exactly where the query labels are known")

    @property
    def n_way(self) -> int:
        """How many classes are enrolled."""
        return int(self.support_label.max()) + 1

    @property
    def support_one_hot(self) -> Tensor:
        """(S, N) the support labels as methods take them."""
        return to_one_hot(self.support_label)

    @property
    def known(self) -> Tensor:
        """(Q,) bool: the query's class is among the enrolled ones."""
        return self.query_label != UNKNOWN

    def encode(self, backbone: Callable[[Tensor], Tensor]) -> Episode:
        """Run the backbone once over all images of the task together."""
        parts = [self.support, self.query] + ([] if self.mirror_support is None else [self.mirror_support])
        maps = torch.split(backbone(torch.cat(parts)), [len(part) for part in parts])
        return replace(
            self, support=maps[0], query=maps[1], mirror_support=None if self.mirror_support is None else maps[2]
        )

    def mirrored(self) -> Episode:
        """The same queries with the roles exchanged: unknown classes are enrolled, known ones are unknown."""
        if self.mirror_support is None or self.mirror_support_label is None or self.mirror_query_label is None:
            raise DataError("this task was drawn without a mirrored side; draw it with mirror=True")
        flipped = self.drawn[self.n_way :] + self.drawn[: self.n_way]
        return Episode(
            self.mirror_support, self.mirror_support_label, self.query, self.mirror_query_label, drawn=flipped
        )

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Episode:
        """Move every tensor to ``device``; ``dtype`` applies to images and maps only."""

        def move(x: Tensor | None) -> Tensor | None:
            return None if x is None else x.to(device, dtype if x.is_floating_point() else None)

        moved = {name: move(getattr(self, name)) for name in self.__dataclass_fields__ if name != "drawn"}
        return replace(self, **moved)  # type: ignore[arg-type]


def to_one_hot(label: Tensor, n_way: int | None = None) -> Tensor:
    """Labels (S,) as rows (S, N) of 0 and 1, N = ``n_way`` or largest label + 1.  The row of ``UNKNOWN`` is 0.

    >>> to_one_hot(torch.tensor([1, 0, UNKNOWN]))
    tensor([[0., 1.],
            [1., 0.],
            [0., 0.]])
    """
    n_way = int(label.max()) + 1 if n_way is None else n_way
    return (label[:, None] == torch.arange(n_way, device=label.device)).float()


def check_support(support: Tensor, label: Tensor) -> None:
    """Refuse labels that are not exactly 0..N-1; a gap would become a NaN prototype."""
    _check_labels(label, "support labels", "S")
    if len(support) != len(label):
        raise DataError(f"{len(support)} support images but {len(label)} labels")
    seen = sorted(set(label.tolist()))
    if not seen or seen != list(range(len(seen))):
        raise DataError(f"support labels must be 0..N-1 without gaps and at least one, got {seen}")


def _check_labels(label: Tensor, what: str, length: str) -> None:
    if label.ndim != 1 or label.dtype == torch.bool or label.is_floating_point() or label.is_complex():
        raise DataError(f"{what} must be whole numbers ({length},), got {label.dtype} {tuple(label.shape)}")


@dataclass(frozen=True)
class BaseClasses:
    """What training leaves of the base classes for methods that remember them; row b is class ``names[b]``.

    ``Episode.drawn`` of a training task counts classes in the same order.
    """

    names: tuple[str, ...]
    weight: Tensor  # (B, C) rows of the base classifier; the class means where there is no such classifier
    centre: Tensor  # (B, C) mean embedding of each class
    mean: Tensor  # (C,) mean embedding of all base pictures
    vec: Tensor | None = None  # (I, C) the embedding of every base image, for methods that need more than means
    label: Tensor | None = None  # (I,) the class of each

    def images(self) -> tuple[Tensor, Tensor]:
        """The embeddings (I, C) of all base images and their labels (I,), or a sentence where they are not kept."""
        if self.vec is None or self.label is None:
            raise DataError("this method needs the embeddings of all base images; BaseClasses has vec and label for it")
        return self.vec, self.label

    def __post_init__(self) -> None:
        b, c = len(self.names), self.mean.shape[-1]
        for name, rows in (("weight", self.weight), ("centre", self.centre)):
            if rows.shape != (b, c):
                raise DataError(f"base classes need a {name} of shape ({b}, {c}), got {tuple(rows.shape)}")


def normalize(images: Tensor, preprocess: Preprocess) -> Tensor:
    """uint8 (B, 3, size, size) -> float32, normalised, in the memory layout it came in."""
    scale = torch.tensor([1 / (255 * s) for s in preprocess.std], device=images.device).view(3, 1, 1)
    pairs = zip(preprocess.mean, preprocess.std, strict=True)
    shift = torch.tensor([-m / s for m, s in pairs], device=images.device).view(3, 1, 1)
    return images.float() * scale + shift


def tensor_hash(tensors: Mapping[str, Tensor], start: str = "") -> str:
    """Hash of names, types, shapes and bytes, after ``start``."""
    digest = hashlib.sha256(start.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        # As raw bytes, because numpy has no bfloat16; contiguous, because channels-last is the same weight.
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

"""Thirteen domains of photos, encoded once, and heads that never saw the domain they are asked about.

Photos come from GLOCAL_DATA: ``caltech-photos`` and the folders of ``photo-domains``.  Of every photo the pooled
features and the cells of the earlier stages are kept in a work folder, so that a head with another whitening costs
nothing more than a matrix product.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tasks import TableRidge, numbered

from glocal.recognizer.features import Array, Features
from glocal.recognizer.heads.head import Head
from glocal.recognizer.heads.prototypes import Prototypes
from glocal.recognizer.heads.ridge import Ridge
from glocal.recognizer.photos.images import Preprocess
from glocal.recognizer.photos.sources import Picture, as_source, take
from glocal.research.backbones import build_backbone
from glocal.research.backbones.efficientnet import EfficientNetLite
from glocal.research.methods.ridge import KernelRidge
from glocal.research.ops.similarity import pool
from glocal.research.types import normalize

CALTECH = "caltech"
ENCODERS = {"fast": "efficientnet-lite0", "better": "efficientnet-lite2"}
BATCH = 16
TEMPERATURE = 0.05


@dataclass(frozen=True)
class Domain:
    """Photos of one domain, row by row."""

    name: str
    label: np.ndarray[Any, np.dtype[np.int64]]  # (P,)
    pooled: torch.Tensor  # (P, D)
    local: torch.Tensor  # (P, C, side, side)

    @property
    def classes(self) -> int:
        return int(self.label.max()) + 1

    @cached_property
    def matches(self) -> Array:
        """Of all pairs of photos, (P, P)."""
        cells = (self.local.flatten(2).mT.contiguous().numpy(),)
        return Ridge().match(cells, cells, (len(self.label),) * 2)

    def covariance(self) -> torch.Tensor:
        """Of square-root vectors within their classes, (D, D)."""
        roots = KernelRidge(self.pooled.shape[1]).roots(self.pooled).double()
        off = torch.cat([roots[self.label == c] - roots[self.label == c].mean(dim=0) for c in range(self.classes)])
        return off.mT @ off / (len(off) - self.classes)


def folders(data: Path) -> dict[str, Path]:
    others = sorted(each for each in (data / "photo-domains").iterdir() if each.is_dir())
    return {CALTECH: data / "caltech-photos"} | {each.name: each for each in others}


def domains(
    encoder: str, work: Path, *, without: Sequence[str] = (), per_class: int | None = None
) -> dict[str, Domain]:
    """All thirteen, but for those ``without``; what is not in ``work`` yet is encoded, minutes on one core.

    ``per_class``: at most so many photos of each class, by name.
    """
    found = {}
    for name, folder in folders(Path(os.environ["GLOCAL_DATA"])).items():
        if name in without:
            continue
        kept = work / f"{encoder}-{name}{'' if per_class is None else f'-{per_class}'}.npz"
        if not kept.exists():
            _encode(encoder, folder, kept, per_class)
        with np.load(kept) as arrays:
            pooled, local = (torch.from_numpy(arrays[key]).float() for key in ("pooled", "local"))
            found[name] = Domain(name, arrays["label"], pooled, local)
    return found


def head_without(every: dict[str, Domain], left_out: str, kind: str = "ridge") -> tuple[Head, Features]:
    """A head whose whitening never saw the domain, and the features of the domain for it."""
    some = next(iter(every.values()))
    if kind == "protonet":
        return Prototypes(temperature=TEMPERATURE), Features(every[left_out].pooled.numpy())
    method = ridge_method(some.pooled.shape[1])
    method.fit(torch.stack([each.covariance() for name, each in every.items() if name != left_out]).mean(dim=0))
    domain = every[left_out]
    return TableRidge(domain.matches), numbered(method.vectors(domain.pooled).numpy())


def ridge_method(width: int, patch_channels: Sequence[int] = ()) -> KernelRidge:
    return KernelRidge(width + sum(patch_channels), patch_channels=patch_channels, temperature=TEMPERATURE).eval()


@torch.inference_mode()
def _encode(encoder: str, folder: Path, kept: Path, per_class: int | None = None) -> None:
    backbone = build_backbone(ENCODERS[encoder], {"early": True}, trainable=False).eval()
    assert isinstance(backbone, EfficientNetLite)
    method = ridge_method(backbone.channels - sum(backbone.patch_channels), backbone.patch_channels)
    classes = sorted(each for each in folder.iterdir() if each.is_dir())
    files = [(c, file) for c, each in enumerate(classes) for file in sorted(each.iterdir())[:per_class]]
    pooled, local = [], []
    for start in range(0, len(files), BATCH):
        pixels = np.stack([_pixels(file, backbone.preprocess) for _, file in files[start : start + BATCH]])
        images = normalize(torch.from_numpy(pixels).permute(0, 3, 1, 2), backbone.preprocess)
        head, *early = torch.split(backbone(images), [method.width, *method.patch_channels], dim=1)
        pooled.append(pool(head).numpy())
        local.append(method.patches(early).half().numpy())
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(".partial.npz")
    np.savez(
        partial,
        label=np.array([c for c, _ in files]),
        pooled=np.concatenate(pooled),
        local=np.concatenate(local),
    )
    partial.rename(kept)


def _pixels(file: Path, preprocess: Preprocess) -> Any:
    picture = take(as_source(file), preprocess)
    assert isinstance(picture, Picture), picture
    return picture.pixels

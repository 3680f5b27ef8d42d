"""The feature bank: every image once through a backbone, its map kept on disk for the next call.

A bank is a folder of the cache, named by everything its numbers depend on:

    maps.npy   (n, C, H, W) float32: row i is the map of dataset image i.
    done.bin   n bytes: 1 where the row is there, marked after it is written.
    lock       held while building; the system frees it when its holder dies.

Every image is compared with its digest while it is encoded, so that no map gets under the name of another image.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL
import torch
from filelock import FileLock
from torch import Tensor, nn

from glocal.common.cache import cache_dir
from glocal.common.errors import DataError, RecipeError
from glocal.research.backbones import Backbone
from glocal.research.data.dataset import ClassDataset, Indices
from glocal.research.data.loader import ImageLoader, shift
from glocal.research.ops.similarity import pool
from glocal.research.source_hash import source_hash
from glocal.research.types import normalize

Progress = Callable[[int, int], None]  # (done, total)

BATCH = 16  # of ResNet-12 at 32 pixels faster than 8 or 32 on a CPU, and little is filled up for few images
AT_ONCE = 32 * 288**2  # pixels that go through a backbone at once: larger images go a few at a time
MAPS_UP_TO = 1 << 30  # bytes of maps; beyond, methods that need means alone get a bank of those
FORMAT = 4  # part of every key: raise it when the meaning of a stored number changes


@dataclass(frozen=True)
class View:
    """A fixed change of the image before it is encoded: maps cannot be flipped or cropped afterwards."""

    flip: bool = False
    down: int = 0
    right: int = 0

    def __call__(self, images: Tensor) -> Tensor:
        return shift(images.flip(-1) if self.flip else images, self.down, self.right)


PLAIN = View()


def views(n: int, size: int) -> list[View]:
    """The first n of: plain, flipped, then shifts by an eighth of the image, flipped in turn."""
    step = max(1, size // 8)
    shifts = [(0, 0), (step, step), (-step, -step), (step, -step), (-step, step)]
    most = [View(flip, down, right) for down, right in shifts for flip in (False, True)]
    if n > len(most):
        raise RecipeError(f"train.views must be at most {len(most)}, got {n}")
    return most[:n]


class Pooled(nn.Module):
    """The 1x1 means of the maps of a backbone: a bank of them is smaller by the number of pixels."""

    def __init__(self, backbone: Backbone):
        super().__init__()
        self.backbone, self.preprocess = backbone, backbone.preprocess
        self.training = backbone.training

    def forward(self, images: Tensor) -> Tensor:
        # Contiguous, as maps are that come out of a bank: the same bits as their means.
        return pool(self.backbone(images).contiguous())[:, :, None, None]

    def fingerprint(self) -> str:
        return f"means of {self.backbone.fingerprint()}"


Encoder = Backbone | Pooled


def is_large(backbone: Backbone, images: int, device: torch.device | str) -> bool:
    """Whether a bank of so many maps is beyond what is kept for the sake of methods that need more than means."""
    side = backbone.preprocess.size
    with torch.inference_mode():
        return images * 4 * backbone(torch.zeros(1, 3, side, side, device=device)).numel() > MAPS_UP_TO


class FeatureBank:
    """``bank(indices)`` gives maps (B, C, H, W) in float32; rows must have been asked for when it was built."""

    def __init__(self, maps: npt.NDArray[Any], row: Indices, home: Path | None = None):
        self._maps = np.asarray(maps)  # (rows, C, H, W); taking rows of a np.memmap is slower
        self._row = row  # (n,) row of every dataset image, -1 for those that are not here
        self._home = home

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one map."""
        c, h, w = self._maps.shape[1:]
        return c, h, w

    def __call__(self, indices: Indices) -> Tensor:
        rows = self._row[indices]
        if (rows < 0).any():
            absent = int(indices[rows < 0][0])
            message = f"image {absent} is not in this feature bank; name it in `wanted` when building the bank"
            raise DataError(message, code="not-in-bank")
        return torch.from_numpy(self._maps[rows])

    def drop(self) -> None:
        """Take it off the disk, when nobody will ask for these weights again; what has it open reads on."""
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    @classmethod
    def build(
        cls,
        encoder: Encoder,
        dataset: ClassDataset,
        *,
        wanted: Indices | None = None,
        view: View = PLAIN,
        folder: Path | None = None,
        workers: int = 2,
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> FeatureBank:
        """Open the bank of these weights, images, preprocessing and view; encode what is wanted and missing.

        ``wanted`` are dataset indices (all when None), e.g. ``tasks.images()``; ``folder`` is where banks live.
        """
        options: dict[str, Any] = {"view": view, "workers": workers, "device": device}
        n, rows = len(dataset), np.arange(len(dataset)) if wanted is None else np.unique(wanted)
        home = (folder or cache_dir() / "banks") / bank_key(encoder, dataset, view=view, device=device)[:32]
        try:
            home.mkdir(parents=True, exist_ok=True)
            with FileLock(home / "lock"):
                done = _rows_done(home, n)
                missing = rows[done[rows] == 0]
                finished = 0
                batches = encode(encoder, dataset, missing, verify=True, **options) if len(missing) else ()
                for indices, maps in batches:
                    _write_rows(home, done, indices, maps)
                    finished += len(indices)
                    if progress is not None:
                        progress(finished, len(missing))
                stored = np.load(home / "maps.npy", mmap_mode="r", allow_pickle=False)
            row = np.full(n, -1)
            row[rows] = rows
            return cls(stored, row, home)
        except FileNotFoundError:  # somebody deleted the cache while it was written
            return cls.in_memory(encoder, dataset, wanted=rows, **options)
        except OSError as error:
            raise DataError(
                f"the feature bank in {home} could not be written: {error.strerror or error}; free some space or "
                "point GLOCAL_CACHE at another disk, what was encoded so far is kept",
                code="cache",
            ) from error

    @classmethod
    def in_memory(
        cls, encoder: Encoder, dataset: ClassDataset, *, wanted: Indices | None = None, **options: Any
    ) -> FeatureBank:
        """The same without a file, for weights that will be different in a moment; ``options`` are of ``encode``."""
        rows = np.arange(len(dataset)) if wanted is None else np.unique(wanted)
        maps = torch.cat([batch.float().cpu() for _, batch in encode(encoder, dataset, rows, **options)])
        row = np.full(len(dataset), -1)
        row[rows] = np.arange(len(rows))
        return cls(maps.contiguous().numpy(), row)


def bank_key(encoder: Encoder, dataset: ClassDataset, *, view: View = PLAIN, device: torch.device | str = "cpu") -> str:
    """Hash of everything a stored map depends on; Pillow resizes, torch and the device compute."""
    programs = [torch.device(device).type, str(torch.__version__), PIL.__version__, source_hash([encoder])]
    prepared = encoder.preprocess.fingerprint()
    parts = [FORMAT, encoder.fingerprint(), dataset.manifest, prepared, repr(view), *programs]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def encode(
    encoder: Encoder,
    dataset: ClassDataset,
    wanted: Indices,
    *,
    view: View = PLAIN,
    workers: int = 2,
    device: torch.device | str = "cpu",
    verify: bool = False,
) -> Iterator[tuple[Indices, Tensor]]:
    """Yield (indices, maps) batch by batch, each image decoded and encoded once; ``verify`` as for ImageLoader.

    The last batch is filled up to full size: kernels choose their order of summation by the batch size, and the map of
    an image must not depend on the number of others.
    """
    if getattr(encoder, "training", False):
        raise DataError(
            "the backbone is in training mode, where a map depends on its batch; call backbone.eval() first"
        )
    size = max(1, min(BATCH, AT_ONCE // encoder.preprocess.size**2))
    loader = ImageLoader(dataset, encoder.preprocess, workers=workers, verify=verify)
    for indices, images in loader.batches(wanted, size):
        images = torch.cat([images, images[-1:].expand(size - len(images), -1, -1, -1)])
        with torch.inference_mode():  # ends before the yield: the caller must not find itself inside
            images = view(images).to(device).contiguous(memory_format=torch.channels_last)
            maps = encoder(normalize(images, encoder.preprocess))[: len(indices)]
        yield indices, maps


def _rows_done(home: Path, n: int) -> npt.NDArray[np.uint8]:
    """(n,) 1 where a row is there; 0 everywhere when the files do not fit together, and are started anew."""
    try:
        maps, done = np.load(home / "maps.npy", mmap_mode="r"), np.fromfile(home / "done.bin", np.uint8)
    except (OSError, ValueError, EOFError):  # a kill may leave an empty file
        return np.zeros(n, np.uint8)
    return done if len(maps) == len(done) == n and maps.ndim == 4 else np.zeros(n, np.uint8)


def _write_rows(home: Path, done: npt.NDArray[np.uint8], indices: Indices, maps: Tensor) -> None:
    """By file calls, not through the memory map: a full disk is then an error and not a crash."""
    rows = np.ascontiguousarray(maps.float().cpu().numpy())
    if not done.any():
        for name in ("done.bin", "maps.npy"):
            (home / name).unlink(missing_ok=True)  # a reader of the old file keeps it
        shape = (len(done), *rows.shape[1:])
        np.lib.format.open_memmap(home / "maps.npy", mode="w+", dtype=np.float32, shape=shape)
        (home / "done.bin").write_bytes(done.tobytes())
    with open(home / "maps.npy", "r+b") as file:
        begin = file.seek(0, os.SEEK_END) - len(done) * rows[0].nbytes
        for index, row in zip(indices.tolist(), rows, strict=True):
            file.seek(begin + index * row.nbytes)
            file.write(row.data)
    done[indices] = 1
    with open(home / "done.bin", "r+b") as file:
        file.write(done.data)

"""The feature bank: every image through the backbone once, its map kept on disk for the next call.

A bank is named by everything its numbers depend on, and ``bank_files`` says how it lies on disk.  Every picture is
compared with its digest while it is encoded, so that a map cannot get under the name of another picture.  Two builders
at once take turns, and the second finds the work done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import PIL
import torch
from filelock import FileLock
from torch import Tensor

from glocal.data.bank_files import BankFiles, bank_sizes, clear_banks
from glocal.data.cache import cache_dir
from glocal.data.dataset import ClassDataset
from glocal.data.views import BATCH, PLAIN, View, encode
from glocal.source_hash import source_hash
from glocal.types import Encoder
from glocal_runtime.errors import DataError

__all__ = ["PLAIN", "FeatureBank", "View", "bank_key", "bank_sizes", "clear_banks", "encode"]

Indices = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]  # (done, total)

FORMAT = 2  # part of every key: raise it when the meaning of a stored number changes


class FeatureBank:
    """``bank(indices)`` gives maps (B, C, H, W) in float32; rows must have been asked for when it was built."""

    def __init__(self, maps: npt.NDArray[Any], row: Indices):
        self._maps = maps  # (rows, C, H, W)
        self._row = row  # (n,) row of every dataset image, -1 for those that are not here

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one map."""
        c, h, w = self._maps.shape[1:]
        return c, h, w

    def __call__(self, indices: Indices) -> Tensor:
        _check_range(indices, len(self._row))
        rows = self._row[indices]
        if (rows < 0).any():
            absent = int(indices[rows < 0][0])
            raise DataError(f"image {absent} is not in this feature bank; name it in `wanted` when building the bank")
        return torch.from_numpy(self._maps[rows]).float()

    @classmethod
    def build(
        cls,
        encoder: Encoder,
        dataset: ClassDataset,
        *,
        wanted: Indices | None = None,
        view: View = PLAIN,
        dtype: Literal["float32", "float16"] = "float32",
        folder: Path | None = None,
        batch_size: int = BATCH,
        workers: int = 2,
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> FeatureBank:
        """Open the bank of these weights, pictures, preprocessing and view; encode what is wanted and missing.

        ``wanted`` are dataset indices (all when None), e.g. ``tasks.images()``; ``folder`` is where banks live.
        """
        key = bank_key(encoder, dataset, view=view, dtype=dtype, batch_size=batch_size, device=device)
        home = (folder or cache_dir() / "banks") / key[:32]
        rows = _wanted_rows(wanted, dataset)
        try:
            home.mkdir(parents=True, exist_ok=True)
            with FileLock(home / "lock"):
                files = BankFiles(home, key, len(dataset), dtype)
                missing = rows[~files.intact(rows)]
                batches = encode(
                    encoder,
                    dataset,
                    missing,
                    view=view,
                    batch_size=batch_size,
                    workers=workers,
                    device=device,
                    verify=True,
                )
                finished = 0
                for indices, maps in batches:
                    files.write(indices, maps)
                    finished += len(indices)
                    if progress is not None:
                        progress(finished, len(missing))
                return cls(files.maps(), _places(rows, rows, len(dataset)))
        except OSError as error:
            raise DataError(
                f"the feature bank in {home} could not be written: {error.strerror or error}; free some space or "
                "point GLOCAL_CACHE at another disk, what was encoded so far is kept"
            ) from error

    @classmethod
    def in_memory(
        cls, encoder: Encoder, dataset: ClassDataset, *, wanted: Indices | None = None, **how: Any
    ) -> FeatureBank:
        """The same without a file, for weights that will be different in a moment (validation while training).

        ``how``: view, batch_size, workers, device, as for ``build``.
        """
        rows = _wanted_rows(wanted, dataset)
        maps = torch.cat([batch.float().cpu() for _, batch in encode(encoder, dataset, rows, **how)])
        return cls(maps.contiguous().numpy(), _places(rows, np.arange(len(rows)), len(dataset)))


def bank_key(
    encoder: Encoder,
    dataset: ClassDataset,
    *,
    view: View = PLAIN,
    dtype: str = "float32",
    batch_size: int = BATCH,
    device: torch.device | str = "cpu",
) -> str:
    """Hash of everything a stored map depends on; Pillow resizes, torch and the device compute."""
    programs = [torch.device(device).type, str(torch.__version__), PIL.__version__, source_hash([encoder])]
    prepared = encoder.preprocess.fingerprint()
    parts = [FORMAT, encoder.fingerprint(), dataset.manifest, prepared, repr(view), dtype, batch_size, *programs]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _wanted_rows(wanted: Indices | None, dataset: ClassDataset) -> Indices:
    if wanted is None:
        return np.arange(len(dataset))
    if not len(wanted):
        raise DataError("a feature bank needs at least one image, but `wanted` is empty")
    _check_range(wanted, len(dataset))
    return np.unique(wanted)


def _check_range(indices: Indices, n: int) -> None:
    if len(indices) and not 0 <= indices.min() <= indices.max() < n:
        raise DataError(f"image indices must be in 0..{n - 1}, got {indices.min()}..{indices.max()}")


def _places(images: Indices, rows: Indices, n: int) -> Indices:
    place = np.full(n, -1, np.int64)
    place[images] = rows
    return place

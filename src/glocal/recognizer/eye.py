"""From pictures to views with the modules of a model; how pictures are read is told in ``glocal_runtime.eye``."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch

from glocal.engine.checkpoint import Model
from glocal.types import Views
from glocal_runtime import eye
from glocal_runtime.eye import AHEAD, BATCH, Image_, Picture, Source, Unreadable, as_source, take
from glocal_runtime.images import Pixels

Batch: TypeAlias = eye.Batch[Views]

__all__ = ["AHEAD", "BATCH", "Batch", "Eye", "Image_", "Picture", "Source", "Unreadable", "as_source", "take"]


class Eye(eye.AnyEye[Views]):
    """Backbone and embedding of a model on one device."""

    def __init__(self, model: Model, *, device: torch.device | str = "cpu", workers: int = 2) -> None:
        self.device, self.workers = torch.device(device), max(1, workers)
        self.preprocess = model.backbone.preprocess
        self._normalize = model.backbone.preprocess.normalize
        self._backbone, self._method = model.backbone.on(self.device).eval(), model.method.to(self.device).eval()

    def embed(self, pixels: list[Pixels]) -> Views:
        """Pictures (size, size, 3) -> views, on the device."""
        size = self.preprocess.size
        stacked = np.stack(pixels or [np.zeros((size, size, 3), np.uint8)])  # some networks cannot take 0 pictures
        with torch.inference_mode():
            images = torch.from_numpy(stacked).permute(0, 3, 1, 2).to(self.device)
            images = images.contiguous(memory_format=torch.channels_last)
            return self._method.embed(self._backbone(self._normalize(images))).rows(slice(len(pixels)))

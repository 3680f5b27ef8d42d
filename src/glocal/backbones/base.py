"""What every backbone is: images in, feature maps out, and it knows how its pictures must be prepared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from glocal.errors import DataError, RecipeError
from glocal.types import Preprocess


class Backbone(nn.Module):
    """A subclass sets ``stage_channels`` and ``preprocess`` and yields one map per stage from ``stages_of``.

    ``backbone.trainable = False`` freezes it: no gradients, and batch norm and dropout stay in evaluation mode even
    when the module around it trains.  ``preprocess`` belongs to the weights: whoever loads other weights replaces it.
    """

    stage_channels: tuple[int, ...]  # channels of the map after stage 1, 2, ...
    preprocess: Preprocess
    weights_in_package: bool = False  # a new one has the weights that an installed package brings
    smallest_image: int = 1  # side in pixels below which the last map would be empty

    def __init__(self) -> None:
        super().__init__()
        self._trainable = True

    def stages_of(self, images: Tensor) -> Sequence[Tensor]:
        """Normalised (B, 3, size, size) -> the map of every stage, first to last, each (B, C, H, W)."""
        raise NotImplementedError

    @property
    def channels(self) -> int:
        return self.stage_channels[-1]

    @property
    def architecture(self) -> str:
        """Part of the fingerprint: whatever the names and shapes of the weights do not already tell."""
        return type(self).__name__

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, size, size) -> the last map (B, C, H, W)."""
        self._check(images)
        return self.stages_of(images)[-1]

    def stages(self, images: Tensor, wanted: Sequence[int]) -> list[Tensor]:
        """Maps of the stages named (1 = first), from one pass: ``stages(x, (3, 4))``."""
        n = len(self.stage_channels)
        for stage in wanted:
            if not 1 <= stage <= n:
                raise RecipeError(f"stage must be in 1..{n} for {type(self).__name__}, got {stage}")
        self._check(images)
        maps = self.stages_of(images)
        return [maps[stage - 1] for stage in wanted]

    def _check(self, images: Tensor) -> None:
        if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < self.smallest_image:
            raise DataError(
                f"{type(self).__name__} needs images (B, 3, H, W) of at least {self.smallest_image} pixels a side, "
                f"got shape {tuple(images.shape)}; its own preprocess makes them {self.preprocess.size} pixels"
            )

    def train(self, mode: bool = True) -> Backbone:
        """Frozen backbones ignore ``train()``: their batch norm must not drift."""
        super().train(mode and self.trainable)
        return self

    @property
    def trainable(self) -> bool:
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = value
        self.requires_grad_(value)
        self.train(self.training and value)

    def on(self, device: torch.device | str) -> Backbone:
        """On that device, weights in the memory layout that convolutions are fastest with."""
        self.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self

    def fingerprint(self) -> str:
        """Hash of the architecture's name and every weight and buffer: equal fingerprints give equal maps."""
        digest = hashlib.sha256(self.architecture.encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            # As raw bytes, because numpy has no bfloat16; contiguous, because channels-last is the same weight.
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()


def check_image_size(name: str, image_size: int, smallest: int) -> None:
    """Refuse a setting that would leave no pixel of the last map."""
    if image_size < smallest:
        raise RecipeError(f"image_size of {name} must be at least {smallest} pixels, got {image_size}")

"""What every backbone is: images in, feature maps out, and it knows how its pictures must be prepared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from glocal.common.errors import DataError, RecipeError
from glocal.research.ops.packing import PACKED, fits, pack
from glocal.research.types import Preprocess, tensor_hash


class Backbone(nn.Module):
    """Images to feature maps.

    A subclass sets ``stage_channels`` and ``preprocess`` and returns one map per stage from ``stages_of``.
    ``backbone.trainable = False`` freezes it: no gradients, and batch norm and dropout stay in evaluation mode even
    when the module around it trains.  ``preprocess`` belongs to the weights and is replaced with them.

    Examples
    --------
    >>> class Grey(Backbone):
    ...     stage_channels = (1,)
    ...
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.preprocess = Preprocess(8)
    ...
    ...     def stages_of(self, images):
    ...         return [images.mean(dim=1, keepdim=True)]
    >>> Grey()(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 1, 8, 8])
    """

    stage_channels: tuple[int, ...]  # channels of the map after stage 1, 2, ...
    preprocess: Preprocess
    weights_in_package: bool = False  # a new one has the weights that an installed package brings
    smallest_image: int = 1  # side in pixels below which the last map would be empty
    early_stage: int | None = None  # the stage whose map forward() packs behind the last one

    def __init__(self) -> None:
        super().__init__()
        self._trainable = True

    def stages_of(self, images: Tensor) -> Sequence[Tensor]:
        """Compute the map of every stage; a subclass writes it.

        Parameters
        ----------
        images : Tensor
            Normalised (B, 3, size, size).

        Returns
        -------
        sequence of Tensor
            First stage to last, each (B, C, H, W).
        """
        raise NotImplementedError

    @property
    def channels(self) -> int:
        """Of the map that ``forward`` returns."""
        return self.stage_channels[-1] + PACKED * self.early_channels

    @property
    def early_channels(self) -> int:
        """Channels of the early map before packing: what a method's ``early_channels`` must be.  0 without one."""
        return 0 if self.early_stage is None else self.stage_channels[self.early_stage - 1]

    @property
    def architecture(self) -> str:
        """Part of the fingerprint: whatever the names and shapes of the weights do not already tell."""
        name = type(self).__name__
        return name if self.early_stage is None else f"{name} and its stage {self.early_stage}"

    def forward(self, images: Tensor) -> Tensor:
        """Compute the map that methods see.

        Parameters
        ----------
        images : Tensor
            Normalised (B, 3, size, size).

        Returns
        -------
        Tensor
            (B, C, H, W) of the last stage, with the early one behind it if ``early_stage`` is set.
        """
        self._check(images)
        maps = self.stages_of(images)
        return maps[-1] if self.early_stage is None else pack(maps[-1], maps[self.early_stage - 1])

    def hand_out(self, stages: Sequence[int] | None, sides: Sequence[int]) -> None:
        """Let forward() return the last stage alone or the two last.

        Parameters
        ----------
        stages : sequence of int, optional
            Numbers of the stages, from 1; the last alone when left out.
        sides : sequence of int
            Side of the map of every stage.
        """
        name, last = type(self).__name__, len(self.stage_channels)
        wanted = [last] if stages is None else list(stages)
        if wanted not in ([last], [last - 1, last]):
            raise RecipeError(f"stages of {name} must be [{last}] or [{last - 1}, {last}], got {wanted}")
        self.early_stage = last - 1 if len(wanted) > 1 else None
        before, after = sides[-2:]
        if self.early_stage and not fits(before, after):
            raise RecipeError(
                f"stages = {wanted} of {name} needs an early map that is twice as wide as the last. Images of "
                f"{self.preprocess.size} pixels give {before}x{before} and {after}x{after}; "
                "an image_size that is a multiple of 64 always fits"
            )

    def _check(self, images: Tensor) -> None:
        if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < self.smallest_image:
            raise DataError(
                f"{type(self).__name__} needs images (B, 3, H, W) of at least {self.smallest_image} pixels a side, "
                f"got shape {tuple(images.shape)}; its own preprocess makes them {self.preprocess.size} pixels"
            )

    def train(self, mode: bool = True) -> Backbone:
        """Switch between training and evaluation, in which a frozen backbone stays: its batch norm must not drift.

        Parameters
        ----------
        mode : bool
            True for training.

        Returns
        -------
        Backbone
            Itself.
        """
        super().train(mode and self.trainable)
        return self

    @property
    def trainable(self) -> bool:
        """Whether it learns; set it to False to freeze the backbone."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = value
        self.requires_grad_(value)
        self.train(self.training and value)

    def on(self, device: torch.device | str) -> Backbone:
        """Move to a device, with weights in the memory layout that convolutions are fastest with.

        Parameters
        ----------
        device : torch.device or str
            Where it computes.

        Returns
        -------
        Backbone
            Itself.
        """
        self.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self

    def fingerprint(self) -> str:
        """Hash architecture and weights: equal fingerprints give equal maps.

        Returns
        -------
        str
            Hexadecimal digits.
        """
        return tensor_hash(self.state_dict(), self.architecture)


def check_image_size(name: str, image_size: int, smallest: int) -> None:
    """Refuse a setting that would leave no pixel of the last map."""
    if image_size < smallest:
        raise RecipeError(f"image_size of {name} must be at least {smallest} pixels, got {image_size}")


class Pixels(Backbone):
    """The picture itself, without weights: what a trained backbone has to beat.

    A vector is a 1x1 map: (B, 3, size, size) -> (B, 3 * size * size, 1, 1), values 0..1.
    """

    def __init__(self, *, image_size: int):
        super().__init__()
        self.preprocess = Preprocess(image_size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        self.stage_channels = (3 * image_size * image_size,)

    def stages_of(self, images: Tensor) -> list[Tensor]:
        size = self.preprocess.size
        if images.shape[2:] != (size, size):
            raise DataError(
                f"Pixels was built for {size}x{size} images, got {tuple(images.shape)}; "
                "apply its preprocess first, or build it with the other image_size"
            )
        return [images.flatten(1)[:, :, None, None]]

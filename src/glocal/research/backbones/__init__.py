"""Backbones by name.  Adding one: a file here and a line in BACKBONES."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from glocal.common.errors import RecipeError
from glocal.research import plugins
from glocal.research.backbones.base import Backbone, Pixels
from glocal.research.backbones.conv4 import Conv4
from glocal.research.backbones.efficientnet import EfficientNetLite0, EfficientNetLite2
from glocal.research.backbones.resnet12 import ResNet12
from glocal.research.backbones.resnet18 import ResNet18
from glocal.research.backbones.timm import TimmBackbone

BACKBONES: dict[str, Callable[..., Backbone]] = {
    "conv4": Conv4,
    "resnet12": ResNet12,
    "resnet18": ResNet18,
    "efficientnet-lite0": EfficientNetLite0,
    "efficientnet-lite2": EfficientNetLite2,
    "timm": TimmBackbone,
    "pixels": Pixels,
}
"""Every backbone by its name in recipes; take more with ``BACKBONES["name"] = Class``."""


def build_backbone(name: str, settings: Mapping[str, Any] | None = None, *, trainable: bool = True) -> Backbone:
    """The backbone of that name with these settings, frozen or trainable."""
    settings = dict(settings or {})
    signature = inspect.signature(plugins.find(plugins.BACKBONES, BACKBONES, name))
    try:
        signature.bind(**settings)
    except TypeError as error:
        known = ", ".join(signature.parameters)
        raise RecipeError(f"settings of backbone {name!r}: {error}; it has {known}") from error
    backbone = BACKBONES[name](**settings)
    backbone.trainable = trainable
    return backbone


__all__ = ["BACKBONES", "Backbone", "build_backbone"]

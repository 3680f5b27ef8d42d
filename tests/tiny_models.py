"""A model that is built in a millisecond."""

from __future__ import annotations

from typing import Any

import torch

from glocal.research.backbones import build_backbone
from glocal.research.engine.checkpoint import TrainedModel
from glocal.research.methods import METHODS
from glocal.research.types import BaseClasses


def tiny_model(method: str = "protonet", *, seed: int = 0, **settings: Any) -> TrainedModel:
    """16-pixel pictures, four channels; one seed gives one backbone under every method."""
    if method == "protonet":  # untrained maps are so alike that its probabilities tie
        settings = {"open_score": "distance"} | settings
    torch.manual_seed(seed)
    eye = {"width": 4, "image_size": 16}
    backbone = build_backbone("conv4", eye)
    record = {"backbone": {"name": "conv4", "settings": eye}, "method": {"name": method, "settings": settings}}
    return TrainedModel(backbone, METHODS[method](backbone.channels, **settings), record)


def tiny_base(channels: int) -> BaseClasses:
    """Six base classes of ten images, whose classifier is not their means."""
    vec, label = torch.rand(60, channels), torch.arange(60) % 6
    centre = torch.stack([vec[label == b].mean(dim=0) for b in range(6)])
    return BaseClasses(tuple("abcdef"), centre.flip(0), centre, vec.mean(dim=0), vec, label)

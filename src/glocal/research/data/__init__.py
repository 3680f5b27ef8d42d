"""Images by class, tasks drawn from them, and the maps a backbone made of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glocal.research.data.dataset import ClassDataset
    from glocal.research.data.episodes import Draw, EpisodeSampler, EpisodeSpec, TaskList
    from glocal.research.data.features import FeatureBank
    from glocal.research.data.loader import ImageLoader
    from glocal.research.data.registry import DATASETS, SPLITS, open_dataset

__all__ = [
    "DATASETS",
    "SPLITS",
    "ClassDataset",
    "Draw",
    "EpisodeSampler",
    "EpisodeSpec",
    "FeatureBank",
    "ImageLoader",
    "TaskList",
    "open_dataset",
]

_HOMES = {
    "dataset": ("ClassDataset",),
    "episodes": ("Draw", "EpisodeSampler", "EpisodeSpec", "TaskList"),
    "features": ("FeatureBank",),
    "loader": ("ImageLoader",),
    "registry": ("DATASETS", "SPLITS", "open_dataset"),
}


def __getattr__(name: str) -> Any:
    """Loaded when asked for: where folders of photos are listed, torch need not be installed."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Pictures by class, tasks drawn from them, and the maps a backbone made of them."""

from glocal.data.dataset import ClassDataset
from glocal.data.episodes import Draw, EpisodeSampler, EpisodeSpec, TaskList
from glocal.data.features import FeatureBank
from glocal.data.loader import ImageLoader
from glocal.data.registry import DATASETS, SPLITS, open_dataset

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

"""Feature maps of the pictures of task lists: every picture once, support pictures also flipped and shifted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.backbones import Backbone
from glocal.data.dataset import ClassDataset
from glocal.data.episodes import Draw, TaskList
from glocal.data.features import FeatureBank
from glocal.data.loader import views
from glocal.types import Episode

Fetch = Callable[[npt.NDArray[np.int64]], Tensor]  # data set indices -> maps, usually a FeatureBank


def build_banks(
    backbone: Backbone,
    data: ClassDataset,
    lists: Sequence[TaskList],
    *,
    support_views: int = 1,
    device: torch.device | str = "cpu",
    **how: Any,
) -> list[FeatureBank]:
    """The plain bank first, with every picture of the tasks; then one per further view, with the support alone.

    ``how``: workers, folder and progress of ``FeatureBank.build``.
    """
    encoder = backbone.on(device).eval()
    plain, *others = views(support_views, encoder.preprocess.size)
    every = np.unique(np.concatenate([tasks.images() for tasks in lists]))
    banks = [FeatureBank.build(encoder, data, wanted=every, view=plain, device=device, **how)]
    if others:
        support = np.unique(np.concatenate([draw.support for tasks in lists for draw in tasks]))
        banks += [FeatureBank.build(encoder, data, wanted=support, view=view, device=device, **how) for view in others]
    return banks


def task_maps(draw: Draw, fetch: Fetch, more_views: Sequence[Fetch] = ()) -> Episode:
    """A task with its maps; every support picture once per view, V * K shots where K were drawn."""
    episode = draw.episode(fetch)
    if not more_views:
        return episode
    support = torch.cat([episode.support, *(view(draw.support) for view in more_views)])
    return replace(episode, support=support, support_label=episode.support_label.repeat(1 + len(more_views)))

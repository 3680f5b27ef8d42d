"""Maps of the pictures of several task lists, and of their support pictures under further views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from glocal.backbones import Backbone
from glocal.data.dataset import ClassDataset
from glocal.data.episodes import TaskList
from glocal.data.features import FeatureBank
from glocal.data.views import views


def view_banks(
    backbone: Backbone,
    data: ClassDataset,
    lists: Sequence[TaskList],
    *,
    support_views: int = 1,
    device: torch.device | str = "cpu",
    **how: Any,
) -> list[FeatureBank]:
    """The plain bank first, with every picture of the tasks; then one per further view, with the support alone.

    Views are those of frozen training: flipped, then shifted.  ``how``: workers and progress of ``FeatureBank.build``.
    """
    eye = backbone.on(device).eval()
    plain, *others = views(support_views, eye.preprocess.size)
    every = np.unique(np.concatenate([tasks.images() for tasks in lists]))
    banks = [FeatureBank.build(eye, data, wanted=every, view=plain, device=device, **how)]
    if others:
        support = np.unique(np.concatenate([_support(tasks) for tasks in lists]))
        banks += [FeatureBank.build(eye, data, wanted=support, view=view, device=device, **how) for view in others]
    return banks


def _support(tasks: TaskList) -> np.ndarray[Any, np.dtype[np.int64]]:
    seen: set[int] = set()
    for draw in tasks:
        seen.update(draw.support.tolist())
    return np.array(sorted(seen), dtype=np.int64)

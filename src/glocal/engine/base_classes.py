"""The base classes as a method may remember them: classifier rows, class means, overall mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from glocal.data.dataset import ClassDataset
from glocal.data.features import FeatureBank
from glocal.engine.checkpoint import Model
from glocal.ops.similarity import class_mean, pool
from glocal.types import BaseClasses


def base_classes(
    model: Model, data: ClassDataset, rows: npt.NDArray[np.int64], *, device: torch.device, workers: int
) -> BaseClasses:
    """From the pictures ``rows`` of the base split, in their plain view, with the backbone as it is now."""
    backbone = model.backbone.eval()
    with torch.autocast(device.type, enabled=False):
        bank = FeatureBank.build(backbone, data, wanted=rows, device=device, workers=workers)
    with torch.no_grad():
        vec = torch.cat([pool(bank(part)) for part in np.array_split(rows, 1 + len(rows) // 1024)])
    centre = class_mean(vec, torch.from_numpy(data.label[rows]))
    classifier = model.extra.get("base.weight")
    if classifier is None or classifier.shape != centre.shape:
        classifier = centre
    return BaseClasses(tuple(data.classes), classifier.detach().cpu().float(), centre, vec.mean(dim=0))

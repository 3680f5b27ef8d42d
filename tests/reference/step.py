"""One GEL training step as the paper's pseudo-code suggests it: slow twin of engine.train, and its yardstick."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.research.methods.gel import GEL
from glocal.research.types import Episode
from reference.energy import EnergyLoss
from reference.similarity import algorithm_1


def naive_losses(backbone: nn.Module, method: GEL, task: Episode) -> dict[str, Tensor]:
    """``task`` holds images: the same number of shots for each known and (mirrored) unknown class, known queries first.

    The encoder runs twice, once for embeddings and once for maps; all 2N classes give support, of which N are used,
    and all of which the calibration sees; cosines are broadcast (Algorithm 1), energies and margins as in Algorithm 2.
    """
    assert task.mirror_support is not None
    images = torch.cat([task.support, task.mirror_support, task.query])
    n_way, n_support = task.n_way, len(task.support) + len(task.mirror_support)
    shot = len(task.support) // n_way
    embedding = backbone(images).mean(dim=(2, 3))  # (2NK + Q, D)
    maps = backbone(images) if method.reduce is None else method.reduce(backbone(images))
    maps = method.calibrate(maps)  # (2NK + Q, D/2, H, W)

    proto = method.attend(embedding[:n_support].unflatten(0, (-1, shot)).mean(dim=1)[:n_way])
    e_sim = -((embedding[n_support:, None] - proto) ** 2).sum(dim=2) / method.temperature
    f_proto = maps[:n_support].unflatten(0, (-1, shot)).mean(dim=1)[:n_way]
    f_sim = algorithm_1(maps[n_support:], f_proto, method.top_k)

    n_known = int(task.known.sum())
    closed = F.cross_entropy(e_sim[:n_known], task.query_label[:n_known])
    margin = EnergyLoss(*method.margins, sizes=[n_known, len(task.query) - n_known])(e_sim, f_sim)
    return {"closed": closed, "energy": method.energy_weight * margin}

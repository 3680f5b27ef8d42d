"""Slow twin of GEL: energies and loss from the equations, query by query, in evaluation mode."""

from __future__ import annotations

import torch
from torch import Tensor

from glocal.research.methods.gel import GEL
from glocal.research.types import Episode
from reference.energy import energy, energy_margin
from reference.feat import attend, cross_entropy, pooled
from reference.similarity import class_mean, neg_sq_euclidean, pixel_loops, similarity
from reference.snatcher import movement


def calibrated(method: GEL, maps: Tensor) -> Tensor:
    """PReLU(BN(Conv1x1(f))) with running statistics, pixel by pixel."""
    conv, bn, prelu = method.calibrate
    out = torch.empty(len(maps), len(conv.weight), *maps.shape[2:], dtype=maps.dtype)
    for i, h, w in torch.cartesian_prod(*map(torch.arange, (len(maps), *maps.shape[2:]))).tolist():
        x = conv.weight[:, :, 0, 0] @ maps[i, :, h, w] + conv.bias
        x = (x - bn.running_mean) / torch.sqrt(bn.running_var + bn.eps) * bn.weight + bn.bias
        out[i, :, h, w] = torch.where(x > 0, x, prelu.weight * x)
    return out


@torch.no_grad()
def class_similarity(method: GEL, task: Episode) -> Tensor:
    proto = attend(method.attend, class_mean(pooled(task.support), task.support_label))
    return similarity(pooled(task.query), proto, method.distance) / method.temperature


@torch.no_grad()
def pixel_similarity(method: GEL, task: Episode) -> Tensor:
    class_map = class_mean(calibrated(method, task.support), task.support_label)
    s_f = pixel_loops(calibrated(method, task.query), class_map, method.top_k)
    return s_f if getattr(method, "local_scale", "sum") == "sum" else s_f / task.query[0, 0].numel()


@torch.no_grad()
def scores(method: GEL, task: Episode, a: float = 1.0, b: float = 1.0) -> dict[str, list[float]]:
    """Every open score of the method that it has beside those on the logits."""
    s_c = class_similarity(method, task)
    raw = class_mean(pooled(task.support), task.support_label)
    found = {
        "E_c": [energy(row) for row in s_c.tolist()],
        "snatcher": movement(lambda rows: attend(method.attend, rows), raw, pooled(task.query), s_c).tolist(),
    }
    if method.variant.maps:
        class_map = class_mean(task.support, task.support_label)
        distances = neg_sq_euclidean(task.query.flatten(1), class_map.flatten(1)) / method.map_temperature
        found["E_m"] = [energy(row) for row in distances.tolist()]
    if method.variant.pixel:
        found["E_f"] = [energy(row) for row in pixel_similarity(method, task).tolist()]
        found["E"] = [a * e_c + b * e_f for e_c, e_f in zip(found["E_c"], found["E_f"], strict=True)]
    nearest = [-max(row) for row in s_c.tolist()]
    for name in [name for name in ("E_m", "E_f", "E") if name in found]:
        for other, more in (("distance", nearest), ("snatcher", found["snatcher"])):
            both = "delay" if (name, other) == ("E_f", "distance") else f"{name}+{other}"
            found[both] = [e + m for e, m in zip(found[name], more, strict=True)]
    return found


@torch.no_grad()
def loss(method: GEL, task: Episode, trained: str | None, a: float = 1.0, b: float = 1.0) -> dict[str, float]:
    terms = {"closed": cross_entropy(class_similarity(method, task), task.query_label)}
    if trained is not None:
        known = (task.query_label >= 0).tolist()
        terms["energy"] = method.energy_weight * energy_margin(
            scores(method, task, a, b)[trained], known, *method.margins
        )
    return terms

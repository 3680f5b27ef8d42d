"""GEL in the form of the authors' program where that differs from the equations: plain loops over weights and maps.

Nothing of ``glocal`` is used, so that nothing can be wrong in both.  ``weights`` are a method's tensors by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


def seeded_task(seed: int, *, channels: int, side: int, shot: int = 1, way: int = 3) -> tuple[Tensor, Tensor]:
    """Maps that look like a ReLU's, in float64: support (way * shot, C, S, S) class by class, queries (2 * way, ...).

    Each class has a centre; the last ``way`` queries are of classes without support.
    """
    rng = torch.Generator().manual_seed(seed)
    centre = torch.randn(2 * way, channels, 1, 1, generator=rng, dtype=torch.float64)

    def maps(of: list[int]) -> Tensor:
        noise = torch.randn(len(of), channels, side, side, generator=rng, dtype=torch.float64)
        return (0.5 * centre[of] + 0.4 * noise).relu()

    return maps([n for n in range(way) for _ in range(shot)]), maps(list(range(2 * way)))


def energy(similarities: list[float]) -> float:
    top = max(similarities)
    return -(top + math.log(sum(math.exp(s - top) for s in similarities)))


def class_means(rows: Tensor, way: int) -> list[Tensor]:
    shot = len(rows) // way
    return [sum(rows[n * shot + k] for k in range(shot)) / shot for n in range(way)]


def squared(a: Tensor, b: Tensor) -> float:
    return sum((x - y) ** 2 for x, y in zip(a.flatten().tolist(), b.flatten().tolist(), strict=True))


def map_energies(support: Tensor, query: Tensor, way: int, temperature: float = 64.0) -> list[float]:
    """Their run without pixels: -log Σ_n exp(-||f - f_n||² / T / 10) of the maps as they are."""
    means = class_means(support, way)
    return [energy([-squared(q, mean) / temperature / 10 for mean in means]) for q in query]


def normed(weights: Weights, name: str, x: Tensor) -> Tensor:
    """Batch norm by running statistics: x (C,) -> (C,)."""
    scale = weights[f"{name}.weight"] / torch.sqrt(weights[f"{name}.running_var"] + 1e-5)
    return (x - weights[f"{name}.running_mean"]) * scale + weights[f"{name}.bias"]


def halved(weights: Weights, fmap: Tensor) -> Tensor:
    """Their downsample of ResNet-18 at 84 px: every second pixel through a linear map and batch norm."""
    side = range(0, fmap.shape[1], 2)
    rows = [
        torch.stack([normed(weights, "reduce.1", weights["reduce.0.weight"][:, :, 0, 0] @ fmap[:, h, w]) for w in side])
        for h in side
    ]
    return torch.stack(rows).permute(2, 0, 1)


def calibrated(weights: Weights, fmap: Tensor) -> Tensor:
    out = torch.empty(len(weights["calibrate.0.weight"]), *fmap.shape[1:], dtype=fmap.dtype)
    for h in range(fmap.shape[1]):
        for w in range(fmap.shape[2]):
            x = weights["calibrate.0.weight"][:, :, 0, 0] @ fmap[:, h, w] + weights["calibrate.0.bias"]
            x = normed(weights, "calibrate.1", x)
            out[:, h, w] = torch.where(x > 0, x, weights["calibrate.2.weight"] * x)
    return out


def attended(weights: Weights, rows: list[Tensor]) -> list[Tensor]:
    w = {part: weights[f"attend.{part}.weight"] for part in ("w_qs", "w_ks", "w_vs", "fc", "layer_norm")}
    out = []
    for x in rows:
        affinity = [math.exp(float((w["w_qs"] @ x) @ (w["w_ks"] @ y)) / math.sqrt(len(x))) for y in rows]
        mixed = sum(a / sum(affinity) * (w["w_vs"] @ y) for a, y in zip(affinity, rows, strict=True))
        y = x + w["fc"] @ mixed + weights["attend.fc.bias"]
        y = (y - y.mean()) / torch.sqrt(((y - y.mean()) ** 2).mean() + 1e-5)
        out.append(y * w["layer_norm"] + weights["attend.layer_norm.bias"])
    return out


def pixels(query: Tensor, mean: Tensor, top_k: int) -> float:
    total = 0.0
    for u in query.flatten(1).T:
        cosines = [float(u @ v) / float(u.norm() * v.norm()) for v in mean.flatten(1).T]
        total += sum(sorted(cosines)[-top_k:]) / top_k
    return total


def on_resnet18(
    weights: Weights, support: Tensor, query: Tensor, way: int, top_k: int
) -> tuple[list[list[float]], list[float]]:
    """s_c of the means of the unreduced maps, and E = E_c + E_f with E_f of the halved and calibrated ones."""
    means = attended(weights, class_means(support.flatten(2).mean(dim=2), way))
    local = torch.stack([calibrated(weights, halved(weights, fmap)) for fmap in support])
    class_maps = class_means(local, way)
    s_class, total = [], []
    for fmap in query:
        embedding = fmap.flatten(1).mean(dim=1)
        own = calibrated(weights, halved(weights, fmap))
        s_class.append([-squared(embedding, mean) / 64 for mean in means])
        total.append(energy(s_class[-1]) + energy([pixels(own, mean, top_k) for mean in class_maps]))
    return s_class, total

"""Slow twin of PEELER: convolutions pixel by pixel, distances query by query, every loss term from its formula."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from glocal.research.methods.peeler import Peeler, PeelerBlock, SecondLastStage
from glocal.research.types import Episode
from reference.feat import cross_entropy, pooled
from reference.similarity import class_mean, neg_sq_euclidean


def convolve(layer: nn.Conv2d, image: Tensor) -> Tensor:
    """One image (C, H, W), zeros around it, at every ``stride``-th pixel."""
    weight, (reach, _), (stride, _) = layer.weight, layer.padding, layer.stride
    _, height, width = image.shape
    out = torch.zeros(len(weight), math.ceil(height / stride), math.ceil(width / stride), dtype=image.dtype)
    for y in range(0, height, stride):
        for x in range(0, width, stride):
            for dy in range(-reach, reach + 1):
                for dx in range(-reach, reach + 1):
                    if 0 <= y + dy < height and 0 <= x + dx < width:
                        part = weight[:, :, dy + reach, dx + reach] @ image[:, y + dy, x + dx]
                        out[:, y // stride, x // stride] += part
    return out


def normalise(layer: nn.GroupNorm, image: Tensor) -> Tensor:
    """One mean and one variance for the whole image, one factor and offset per channel."""
    mean = image.sum() / image.numel()
    variance = ((image - mean) ** 2).sum() / image.numel()
    unit = (image - mean) / torch.sqrt(variance + layer.eps)
    return torch.stack([w * row + b for w, row, b in zip(layer.weight, unit, layer.bias, strict=True)])


def block(layer: PeelerBlock, image: Tensor) -> Tensor:
    inside = normalise(layer.norm1, convolve(layer.conv1, image)).clamp(min=0)
    side = convolve(layer.shortcut, image) if isinstance(layer.shortcut, nn.Conv2d) else image
    return (side + normalise(layer.norm2, convolve(layer.conv2, inside))).clamp(min=0)


def normalise_batch(layer: nn.BatchNorm2d, images: list[Tensor]) -> list[Tensor]:
    """One mean and one variance per channel: of all images while it trains, the remembered ones otherwise."""
    out = torch.stack(images)
    for c in range(out.shape[1]):
        mean, variance = layer.running_mean[c], layer.running_var[c]
        if layer.training:
            values = out[:, c].flatten()
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / len(values)
        out[:, c] = layer.weight[c] * (out[:, c] - mean) / torch.sqrt(variance + layer.eps) + layer.bias[c]
    return list(out)


@torch.no_grad()
def second_last_stage(stage: SecondLastStage, images: list[Tensor]) -> list[Tensor]:
    """σ of every image (E, 2H, 2W)."""
    for layer in stage:
        inside = normalise_batch(layer.norm1, [convolve(layer.conv1, image) for image in images])
        inside = [convolve(layer.conv2, image.clamp(min=0)) for image in inside]
        side = images
        if isinstance(layer.shortcut, nn.Sequential):
            side = normalise_batch(layer.shortcut[1], [convolve(layer.shortcut[0], image) for image in images])
        images = [(a + b).clamp(min=0) for a, b in zip(normalise_batch(layer.norm2, inside), side, strict=True)]
    return images


def final(method: Peeler, maps: Tensor) -> Tensor:
    """(B, C + 4E, H, W) -> (B, C, H, W)."""
    return maps[:, : maps.shape[1] - 4 * method.early_channels]


def early(method: Peeler, maps: Tensor) -> list[Tensor]:
    """(B, C + 4E, H, W) -> B times (E, 2H, 2W): four channels in a row are the 2x2 pixels of one."""
    b, total, height, width = maps.shape
    out = torch.zeros(b, method.early_channels, 2 * height, 2 * width, dtype=maps.dtype)
    for e in range(method.early_channels):
        for y in range(2 * height):
            for x in range(2 * width):
                channel = total - 4 * method.early_channels + 4 * e + 2 * (y % 2) + x % 2
                out[:, e, y, x] = maps[:, channel, y // 2, x // 2]
    return list(out)


@torch.no_grad()
def precisions(method: Peeler, support: Tensor) -> list[Tensor]:
    """A_i of every support image."""
    parts = method.precision
    assert parts is not None
    if method.sigma is None:
        sigma = [normalise(parts.sigma[1], convolve(parts.sigma[0], image)).clamp(min=0) for image in support]
    else:
        sigma = second_last_stage(method.sigma, early(method, support))
    g = sum(block(parts.l0[1], block(parts.l0[0], s)) for s in sigma) / len(sigma)
    a = [block(parts.l1[1], block(parts.l1[0], torch.cat([s, g]))) for s in sigma]
    return [(1 + convolve(parts.expand, x)).clamp(min=0) for x in a]


@torch.no_grad()
def logits(method: Peeler, support: Tensor, label: Tensor, query: Tensor) -> Tensor:
    """support (S, C, H, W), query (Q, C, H, W), after the adapter -> (Q, N)."""
    if method.precision is None:
        return neg_sq_euclidean(pooled(query), class_mean(pooled(support), label)) / method.temperature
    a, mu = class_mean(torch.stack(precisions(method, support)), label), class_mean(final(method, support), label)
    rows = []
    for q in final(method, query):
        row = []
        for a_n, mu_n in zip(a, mu, strict=True):
            apart = [float((q[c] * a_n[c]).mean() - (mu_n[c] * a_n[c]).mean()) for c in range(len(q))]
            row.append(-math.sqrt(sum(x * x for x in apart)) / method.temperature)
        rows.append(row)
    return torch.tensor(rows, dtype=query.dtype)


def softmax(row: list[float]) -> list[float]:
    return [math.exp(s) / sum(math.exp(t) for t in row) for s in row]


def open_score(rows: Tensor) -> Tensor:
    """min_n softmax(d)_n with d = -logit."""
    return torch.tensor([min(softmax([-s for s in row])) for row in rows.tolist()], dtype=rows.dtype)


@torch.no_grad()
def terms(method: Peeler, task: Episode) -> dict[str, float]:
    """closed, open and, when there are base classes, auxiliary; without the adapter."""
    rows = logits(method, task.support, task.support_label, task.query)
    unknown = [softmax(row.tolist()) for row, y in zip(rows, task.query_label, strict=True) if y < 0]
    sharp = [sum(p * math.log(p) for p in row) for row in unknown]
    found = {
        "closed": cross_entropy(rows, task.query_label),
        "open": method.open_weight * sum(sharp) / max(1, len(sharp)),
    }
    if method.base is not None:
        images = [*zip(task.support, task.support_label, strict=True), *zip(task.query, task.query_label, strict=True)]
        known = [(image, task.drawn[y]) for image, y in images if y >= 0]
        x = pooled(final(method, torch.stack([image for image, _ in known])))
        own = torch.tensor([b for _, b in known])
        apart = neg_sq_euclidean(x, method.base.rows) / method.auxiliary_temperature
        found["auxiliary"] = method.auxiliary_weight * cross_entropy(apart, own)
    return found

"""Networks that name and compute things as the published programs do, and files as they write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (4, 6, 8, 12)
DIM = WIDTHS[-1]


class Block(nn.Module):
    def __init__(self, inside: int, outside: int):
        super().__init__()
        for i, channels in enumerate((inside, outside, outside), start=1):
            setattr(self, f"conv{i}", nn.Conv2d(channels, outside, 3, padding=1, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(outside))
        self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        y = F.leaky_relu(self.bn1(self.conv1(x)), 0.1)
        y = F.leaky_relu(self.bn2(self.conv2(y)), 0.1)
        return F.max_pool2d(F.leaky_relu(self.bn3(self.conv3(y)) + self.downsample(x), 0.1), 2)


class Encoder(nn.Module):
    def __init__(self, nested: bool):
        super().__init__()
        for i, (inside, outside) in enumerate(zip((3, *WIDTHS), WIDTHS, strict=False), start=1):
            block = Block(inside, outside)
            setattr(self, f"layer{i}", nn.Sequential(block) if nested else block)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.w_qs, self.w_ks, self.w_vs = (nn.Linear(DIM, DIM, bias=False) for _ in range(3))
        self.layer_norm, self.fc = nn.LayerNorm(DIM), nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        weight = F.softmax(self.w_qs(x) @ self.w_ks(x).T / DIM**0.5, dim=1)
        return self.layer_norm(self.fc(weight @ self.w_vs(x)) + x)


class Feat(nn.Module):
    def __init__(self, base_classes: int = 0):
        super().__init__()
        self.encoder, self.slf_attn = Encoder(nested=True), Attention()
        if base_classes:
            self.fc = nn.Linear(DIM, base_classes)


class Gel(Feat):
    def __init__(self, *, ahead_combine: bool = True):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(DIM, DIM // 2, 1), nn.BatchNorm2d(DIM // 2), nn.PReLU())
        self.EnergyLoss = nn.Module()
        if ahead_combine:
            self.EnergyLoss.awl = nn.Module()
            self.EnergyLoss.awl.params = nn.Parameter(torch.ones(2))


class Pretrained(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.fc = Encoder(nested=True), nn.Linear(DIM, 64)


class TaneAttention(nn.Module):
    """Without biases and LayerNorm; the semantic half is there and unused by ATT and ATT-G."""

    def __init__(self):
        super().__init__()
        self.w_qs, self.w_ks, self.w_vs, self.fc = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.w_qs_sem, self.w_ks_sem, self.w_vs_sem = (nn.Linear(3, DIM, bias=False) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """x (N, D), memory (N, M, D): each row has a memory of its own."""
        affinity = self.w_qs(x)[:, None] @ self.w_ks(memory).mT / DIM**0.5
        return x + self.fc(affinity.softmax(dim=-1) @ self.w_vs(memory))[:, 0]


class Tane(nn.Module):
    """After meta-training: the heads of ATT and ATT-G; after pre-training: a linear classifier."""

    def __init__(self, *, meta: bool, combined: bool = False, mlp: bool = False, words: bool = False):
        super().__init__()
        self.feature = Encoder(nested=False)
        if not meta:
            linear = nn.Linear(DIM, 64)
            self.cls_classifier = nn.Module() if combined else linear
            if combined:
                self.cls_classifier.classifier, self.cls_classifier.temp = linear, nn.Parameter(torch.tensor(10.0))
            return
        self.metric, head = nn.Module(), nn.Module()
        self.metric.temp = nn.Parameter(torch.tensor(10.0))
        for name in ("weight_base", "weight_mem"):
            setattr(head, name, nn.Parameter(torch.randn(64, DIM)))
        head.bias_base = nn.Parameter(torch.randn(64))
        head.calibrator, head.open_generator, head.metric = nn.Module(), nn.Module(), nn.Module()
        head.calibrator.calibrator, head.open_generator.att = TaneAttention(), TaneAttention()
        for part in (head.calibrator, head.open_generator):
            part.map_sem = nn.Sequential(nn.Linear(3, 3))
            if words:
                part.task_visfuse = nn.Linear(DIM + 3, DIM)
        if mlp:
            layers = nn.Linear(DIM, DIM), nn.LeakyReLU(0.5), nn.Dropout(0.5), nn.Linear(DIM, DIM)
            head.open_generator.agg_func = nn.Sequential(*layers)
        head.metric.temp = nn.Parameter(torch.tensor(11.0))
        self.cls_classifier = head

    def logits(self, mean: Tensor, query: Tensor, *, base: bool) -> Tensor:
        """Class means (N, D), query (Q, D) -> (Q, N + 1): ATT-G, whose memory is the base classifier, or ATT."""
        head = self.cls_classifier
        rows = head.weight_base.expand(len(mean), -1, -1)
        proto = head.calibrator.calibrator(mean, rows if base else mean[:, None])
        unlike = head.open_generator.att(proto, rows if base else proto[:, None]).mean(dim=0, keepdim=True)
        unlike = head.open_generator.agg_func(unlike) if hasattr(head.open_generator, "agg_func") else unlike
        return head.metric.temp * F.cosine_similarity(query[:, None], torch.cat([proto, unlike]), dim=-1)


def shaken(module: nn.Module) -> nn.Module:
    """No weight keeps a value that a new module would have too."""
    generator = torch.Generator().manual_seed(5)
    for name, value in module.state_dict().items():
        if value.is_floating_point():
            noise = torch.rand(value.shape, generator=generator)
            value.copy_(noise + 0.5 if name.endswith("running_var") else noise - 0.4)
        else:
            value.fill_(7)
    return module.eval()


def write(path: Path, module: nn.Module, *, prefix: str = "", container: str | None = "params", **beside: Any) -> Path:
    state = {prefix + name: value for name, value in module.state_dict().items()}
    torch.save({container: state, **beside} if container else state, path)
    return path

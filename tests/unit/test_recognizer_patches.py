"""Matching patches, against loops."""

from __future__ import annotations

import torch

from glocal.recognizer.patches import FOREIGN, best_cosine, class_maps
from glocal.types import Views


def loop_best(local: torch.Tensor, other: torch.Tensor) -> list[float]:
    """Of one map (D, H, W) against another."""
    a, b = local.flatten(1).T, other.flatten(1).T
    return [max(float(torch.cosine_similarity(u, v, dim=0)) for v in b) for u in a]


def support(seed: int = 0) -> tuple[Views, torch.Tensor]:
    torch.manual_seed(seed)
    label = torch.tensor([0, 0, 0, 1, 1, 2])
    return Views(torch.randn(6, 4), torch.randn(6, 5, 2, 3) + label.view(-1, 1, 1, 1)), label


def test_the_level_is_what_nine_of_ten_foreign_patches_stay_below() -> None:
    views, label = support()
    maps = class_maps(views, label)
    means = [views.local[label == c].mean(dim=0) for c in range(3)]
    foreign = [x for c in range(3) for i in range(6) if label[i] != c for x in loop_best(views.local[i], means[c])]
    assert maps is not None
    assert maps.n_patches == 6
    assert abs(maps.level - torch.tensor(foreign).quantile(FOREIGN).item()) < 1e-6


def test_matching_counts_patches_above_the_level_of_that_class() -> None:
    views, label = support()
    maps = class_maps(views, label)
    torch.manual_seed(7)
    query, of = torch.randn(4, 5, 2, 3) + 1, torch.tensor([2, 0, 1, 1])
    found = maps.match(query, of)
    for i in range(4):
        mean = views.local[label == of[i]].mean(dim=0)
        assert found[i].tolist() == [x >= maps.level for x in loop_best(query[i], mean)]
    assert 0 < found.sum() < found.numel()


def test_a_support_photo_is_matched_without_itself() -> None:
    views, label = support()
    maps = class_maps(views, label)
    rows = torch.tensor([1, 4])
    found = maps.match_without(views.local[rows], label[rows])
    rest = [views.local[[0, 2]].mean(dim=0), views.local[3]]
    for i, row in enumerate(rows.tolist()):
        assert found[i].tolist() == [x >= maps.level for x in loop_best(views.local[row], rest[i])]


def test_nothing_to_match_without_maps_or_rivals() -> None:
    views, label = support()
    assert class_maps(Views(views.vec), label) is None
    assert class_maps(views.rows(label == 0), label[label == 0]) is None


def test_a_patch_is_its_own_best() -> None:
    views, _ = support()
    assert torch.allclose(best_cosine(views.local, views.local), torch.ones(6, 6), atol=1e-6)

"""Vectors and cells of the ridge head, made of the maps of an encoder."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from glocal.common.errors import RecipeError
from glocal.recognizer.features import Features
from glocal.recognizer.heads.ridge import Ridge
from glocal.research.methods.ridge import KernelRidge
from glocal.research.ops.similarity import cells
from glocal.research.types import to_one_hot

LABEL = torch.tensor([0, 0, 1, 1, 1, 2])


def test_it_decides_as_the_head_of_the_recognizer() -> None:
    torch.manual_seed(0)
    method = KernelRidge(13, patch_channels=[3, 2], side=2, rank=4).eval()
    method.fit(torch.cov(method.roots(torch.rand(200, 8)).T))
    support, query = method.embed(torch.rand(6, 13, 5, 5)), method.embed(torch.rand(4, 13, 5, 5))
    assert support.vec.norm(dim=1).tolist() == pytest.approx([1] * 6)
    comparison = method.compare(method.enroll(support, to_one_hot(LABEL)), query)
    one, other = (Features(each.vec.numpy(), (each.local.numpy(),)) for each in (support, query))
    scores = Ridge().compare(Ridge().enroll(one, LABEL.numpy()), other)
    assert comparison.logits.tolist() == scores.logits.tolist()
    for name, values in {"E": scores.open_score, **scores.parts}.items():
        assert comparison.scores[name].tolist() == pytest.approx(values.tolist())


def test_whitening_evens_out_how_photos_of_one_class_differ() -> None:
    torch.manual_seed(1)
    pooled = torch.rand(4000, 8) * torch.tensor([9.0, 4, 2, 1, 1, 1, 1, 1])
    head = KernelRidge(8, rank=8)
    roots = head.roots(pooled)
    head.fit(torch.cov(roots.T), shrink=0.0)
    white = roots - (roots @ head.directions * head.gains) @ head.directions.mT
    vectors = torch.cat([F.normalize(pooled, dim=1), F.normalize(white, dim=1)], dim=1) * 0.5**0.5
    torch.testing.assert_close(head.vectors(pooled), vectors)
    variance = torch.linalg.eigvalsh(torch.cov(white.T))
    assert float(variance.max() / variance[1]) < 1.001  # one direction has none: roots have length 1


@pytest.mark.parametrize(("n", "side"), [(7, 4), (9, 4), (17, 9), (14, 7), (4, 4), (5, 1)])
def test_cells_are_adaptive_average_pooling(n: int, side: int) -> None:
    maps = torch.randn(2, 3, n, n)
    torch.testing.assert_close(cells(maps, side), F.adaptive_avg_pool2d(maps, side))


def test_patches_that_leave_nothing_of_the_map_are_refused() -> None:
    with pytest.raises(RecipeError, match="patch_channels"):
        KernelRidge(4, patch_channels=[2, 2])

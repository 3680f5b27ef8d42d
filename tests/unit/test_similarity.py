from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from glocal.common.errors import DataError, RecipeError
from glocal.research.ops import similarity
from glocal.research.ops.similarity import SIMILARITIES, class_mean, pixel_similarity, pool
from glocal.research.types import to_one_hot
from reference import similarity as slow


def maps(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("top_k", [1, 6])
def test_query_and_class_maps_may_differ_in_size(top_k: int):
    query, class_map = maps(3, 5, 4, 2), maps(2, 5, 2, 3, seed=1)
    torch.testing.assert_close(
        pixel_similarity(query, class_map, top_k), slow.pixel_loops(query, class_map, top_k), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("top_k", [1, 4])
def test_taking_turns_changes_nothing(top_k: int):
    """Neither values nor gradients; the slices of the query are compared at once, all of it in turns."""
    query, class_map = maps(120, 4, 10, 10).requires_grad_(), maps(10, 4, 10, 10, seed=1).requires_grad_()
    assert 12 * 10 * 100 * 100 < similarity.PIXEL_PAIRS < 120 * 10 * 100 * 100
    whole = torch.cat([pixel_similarity(some, class_map, top_k) for some in query.split(12)])
    weight = maps(120, 10, seed=2)
    expected = torch.autograd.grad((weight * whole).sum(), (query, class_map))
    turns = pixel_similarity(query, class_map, top_k)
    torch.testing.assert_close(turns, whole, rtol=0, atol=1e-12)
    found = torch.autograd.grad((weight * turns).sum(), (query, class_map))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_a_black_pixel_is_like_nothing_and_no_query_gives_no_row():
    query = torch.zeros(1, 3, 2, 2, requires_grad=True)
    similarity_ = pixel_similarity(query, maps(2, 3, 2, 2, dtype=torch.float32), 2)
    assert similarity_.tolist() == [[0.0, 0.0]]
    similarity_.sum().backward()
    assert query.grad.isfinite().all()
    assert pixel_similarity(query[:0], maps(2, 3, 2, 2, dtype=torch.float32), 1).shape == (0, 2)


def test_what_does_not_fit_is_refused():
    for top_k in (0, -1, 5, 10):
        sentence = rf"top_k must be in 1\.\.4 \(pixels of one class map\), got {top_k}; these maps are 2x2"
        with pytest.raises(RecipeError, match=sentence):
            pixel_similarity(maps(1, 3, 3, 3), maps(2, 3, 2, 2), top_k)
    with pytest.raises(DataError, match="query maps have 3 channels but class maps 4"):
        pixel_similarity(maps(1, 3, 2, 2), maps(2, 4, 2, 2), 1)


@pytest.mark.parametrize("distance", SIMILARITIES)
def test_similarities_equal_their_loops_and_have_a_gradient(distance: str):
    query, proto = maps(6, 5), maps(3, 5, seed=1)
    expected = slow.similarity(query, proto, distance)
    torch.testing.assert_close(SIMILARITIES[distance](query, proto), expected, rtol=0, atol=1e-12)
    assert gradcheck(SIMILARITIES[distance], (maps(4, 3).requires_grad_(), maps(2, 3, seed=1).requires_grad_()))


def test_euclid_at_distance_zero_has_gradient_zero():
    query = torch.tensor([[1.0, 2.0]], requires_grad=True)
    similarity.neg_euclidean(query, torch.tensor([[1.0, 2.0]])).sum().backward()
    assert query.grad.tolist() == [[0.0, 0.0]]


def test_class_mean_of_unequal_classes():
    label = torch.tensor([2, 0, 1, 0, 2, 2])
    x = maps(6, 3, 2, 2)
    torch.testing.assert_close(class_mean(x, to_one_hot(label)), slow.class_mean(x, label), rtol=0, atol=1e-12)
    torch.testing.assert_close(pool(x), x.sum((2, 3)) / 4, rtol=0, atol=1e-12)

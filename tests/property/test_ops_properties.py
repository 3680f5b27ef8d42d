from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glocal.research.ops.open_scores import energy, energy_margin
from glocal.research.ops.similarity import neg_sq_euclidean, pixel_similarity
from reference import similarity as slow

sizes = st.integers(1, 4)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), sizes, sizes, sizes, sizes, sizes, st.data())
def test_pixel_similarity_equals_algorithm_1(seed, n_query, n_class, channels, height, width, data):
    top_k = data.draw(st.integers(1, height * width))
    query, class_map = draw(seed, n_query, channels, height, width), draw(seed + 1, n_class, channels, height, width)
    found = pixel_similarity(query, class_map, top_k)
    torch.testing.assert_close(found, slow.algorithm_1(query, class_map, top_k), rtol=0, atol=1e-12)
    assert found.abs().max() <= height * width + 1e-9


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.01, 100), st.floats(0.01, 100))
def test_pixel_similarity_sees_directions_only(seed, a, b):
    query, class_map = draw(seed, 3, 4, 2, 2), draw(seed + 1, 2, 4, 2, 2)
    torch.testing.assert_close(pixel_similarity(a * query, b * class_map, 2), pixel_similarity(query, class_map, 2))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), sizes, sizes, st.floats(-1e4, 1e4))
def test_squared_distance_equals_its_loops_wherever_the_origin_is(seed, n_query, n_class, shift):
    query, proto = draw(seed, n_query, 3) + shift, draw(seed + 1, n_class, 3) + shift
    torch.testing.assert_close(
        neg_sq_euclidean(query, proto), slow.neg_sq_euclidean(query, proto), rtol=1e-9, atol=1e-9
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), sizes, st.floats(-50, 50))
def test_energy_falls_by_what_similarities_rise(seed, n_class, rise):
    s = draw(seed, 5, n_class)
    torch.testing.assert_close(energy(s + rise), energy(s) - rise)
    assert (energy(s) <= -s.amax(-1) + 1e-12).all()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(-10, 10), st.booleans()), max_size=12), st.floats(0, 3))
def test_margin_never_grows_when_energies_part(rows, step):
    e = torch.tensor([r[0] for r in rows], dtype=torch.float64)
    known = torch.tensor([r[1] for r in rows], dtype=torch.bool)
    apart = torch.where(known, e - step, e + step)
    assert 0 <= energy_margin(apart, known) <= energy_margin(e, known)

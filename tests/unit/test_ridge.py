"""The recognizer's head against a slow twin, photo by photo and cell by cell, as its formulas are written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glocal.common.errors import RecipeError
from glocal.research.methods import ridge
from glocal.research.methods.ridge import KernelRidge
from glocal.research.ops.cells import cells
from glocal.research.ops.solve import newton_solve, solve
from glocal.research.types import UNKNOWN, Views, to_one_hot

LABEL = torch.tensor([0, 0, 1, 1, 1, 2])


@pytest.fixture
def method() -> KernelRidge:
    torch.manual_seed(0)
    head = KernelRidge(13, patch_channels=[3, 2], side=2, rank=4).eval()
    roots = head.roots(torch.rand(200, 8))
    head.fit(torch.cov(roots.T))
    return head


def twin(support: Views, query: Views, *, ridge: float = 0.1, weight: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """s_c and s_f of every query and class, with loops."""
    e, q = support.vec.double().numpy(), query.vec.double().numpy()
    assert support.local is not None
    assert query.local is not None
    c, d = (x.double().flatten(2).numpy() for x in (support.local, query.local))

    def match(a: np.ndarray, b: np.ndarray) -> float:
        there = np.mean([max(float(a[:, u] @ b[:, v]) for v in range(b.shape[1])) for u in range(a.shape[1])])
        back = np.mean([max(float(a[:, u] @ b[:, v]) for u in range(a.shape[1])) for v in range(b.shape[1])])
        return float(there + back) / 2

    n = len(e)
    kernel = np.array([[e[i] @ e[j] + match(c[i], c[j]) for j in range(n)] for i in range(n)])
    labels = LABEL.numpy()
    shots = np.bincount(labels)
    weight_of = np.array([shots[k] / shots.mean() for k in labels])
    alpha = np.linalg.inv(kernel + ridge * np.diag(weight_of)) @ np.eye(3)[labels]
    pairs = [e[i] @ e[j] for i in range(n) for j in range(n) if i != j and labels[i] == labels[j]]
    rho = np.mean(pairs)
    s_c, s_f = np.zeros((len(q), 3)), np.zeros((len(q), 3))
    for i in range(len(q)):
        for k in range(3):
            mean = e[labels == k].mean(axis=0)
            length = np.sqrt((1 + (shots[k] - 1) * rho) / shots[k] / ((1 + (shots.mean() - 1) * rho) / shots.mean()))
            s_c[i, k] = q[i] @ mean / np.linalg.norm(mean) * length
            s_c[i, k] += weight * sum(q[i] @ e[j] * alpha[j, k] for j in range(n))
            s_f[i, k] = weight * sum(match(d[i], c[j]) * alpha[j, k] for j in range(n))
    return s_c, s_f


def test_it_is_its_formulas(method: KernelRidge) -> None:
    support, query = method.embed(torch.rand(6, 13, 5, 5)), method.embed(torch.rand(4, 13, 5, 5))
    comparison = method.compare(method.enroll(support, to_one_hot(LABEL)), query)
    s_c, s_f = twin(support, query)
    best = (s_c + s_f).argmax(axis=1)
    np.testing.assert_allclose(comparison.logits.numpy() * method.temperature, s_c + s_f, atol=1e-5)
    for name, values in (("E_c", s_c), ("E_f", s_f), ("E", s_c + s_f)):
        np.testing.assert_allclose(comparison.open_score(name).numpy(), -values[np.arange(4), best], atol=1e-5)


def test_whitening_evens_out_how_photos_of_one_class_differ(method: KernelRidge) -> None:
    torch.manual_seed(1)
    pooled = torch.rand(4000, 8) * torch.tensor([9.0, 4, 2, 1, 1, 1, 1, 1])
    head = KernelRidge(8, rank=8)
    roots = head.roots(pooled)
    head.fit(torch.cov(roots.T), shrink=0.0)
    white = roots - (roots @ head.directions * head.gains) @ head.directions.mT
    variance = torch.linalg.eigvalsh(torch.cov(white.T))
    assert float(variance.max() / variance[1]) < 1.001  # one direction has none: roots have length 1


def test_many_photos_are_judged_by_prototypes_alone(method: KernelRidge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "MOST", 5)
    support, query = method.embed(torch.rand(6, 13, 5, 5)), method.embed(torch.rand(4, 13, 5, 5))
    comparison = method.compare(method.enroll(support, to_one_hot(LABEL)), query)
    means = torch.stack([support.vec[k == LABEL].mean(dim=0) for k in range(3)])
    proto = ridge.prototypes(means, torch.tensor([2.0, 3.0, 1.0]))
    torch.testing.assert_close(comparison.logits * method.temperature, query.vec @ proto.T)
    more = Views(torch.cat([support.vec, query.vec]), torch.cat([support.local, query.local]))  # type: ignore[list-item]
    rows = to_one_hot(torch.cat([LABEL, torch.full((4,), UNKNOWN)]))
    with_unknown = method.compare(method.enroll(more, rows), query)
    torch.testing.assert_close(with_unknown.logits, comparison.logits)
    assert not len(method.enroll(support, to_one_hot(LABEL)).alpha), "no table of photos and classes"


def test_turns_give_what_one_product_gives(method: KernelRidge, monkeypatch: pytest.MonkeyPatch) -> None:
    some, others = torch.randn(7, 3, 2, 2), torch.randn(5, 3, 2, 2)
    whole = ridge.cell_match(some, others)
    monkeypatch.setattr(ridge, "PAIRS", 40)
    torch.testing.assert_close(ridge.cell_match(some, others), whole)


def test_the_length_of_a_prototype_takes_away_what_its_number_of_photos_adds() -> None:
    torch.manual_seed(0)
    centre = F.normalize(torch.randn(3, 50), dim=1)

    def photos(of: int, n: int) -> torch.Tensor:
        return F.normalize(centre[of] + 0.2 * torch.randn(n, 50), dim=1)

    shots = [1, 4, 30]
    score = torch.zeros(3)
    for _ in range(40):
        proto = ridge.prototypes(
            torch.stack([photos(k, n).mean(dim=0) for k, n in enumerate(shots)]), torch.tensor(shots).float()
        )
        score += torch.stack([(photos(k, 50) @ proto[k]).mean() for k in range(3)])
    assert float(score.max() / score.min()) < 1.1  # lengths of 1 make it 1.5


@pytest.mark.parametrize(("n", "side"), [(7, 4), (9, 4), (17, 9), (14, 7), (4, 4), (5, 1)])
def test_cells_are_adaptive_average_pooling(n: int, side: int) -> None:
    maps = torch.randn(2, 3, n, n)
    torch.testing.assert_close(cells(maps, side), F.adaptive_avg_pool2d(maps, side))


@pytest.mark.parametrize("photos", [1, 25, 300])
def test_the_solution_by_products_alone_is_the_solution(photos: int) -> None:
    torch.manual_seed(0)
    vec = F.normalize(torch.rand(photos, 40), dim=1)  # alike, as features of real photos are: a bad condition
    kernel, target = 2.5 * vec @ vec.T, torch.eye(5)[torch.arange(photos) % 5]
    exact = solve(kernel, target, torch.full((photos,), 0.1))
    found = newton_solve(kernel + 0.1 * torch.eye(photos), target)
    torch.testing.assert_close(kernel @ found, kernel @ exact, atol=2e-4, rtol=1e-3)


def test_patches_that_leave_nothing_of_the_map_are_refused() -> None:
    with pytest.raises(RecipeError, match="patch_channels"):
        KernelRidge(4, patch_channels=[2, 2])

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from conformance.suite import DIM, double_task, toy_base
from glocal.research.methods.mahalanobis import Mahalanobis
from glocal.research.types import BaseClasses
from reference import mahalanobis as slow
from refusal import refused


def build(**settings: Any) -> Mahalanobis:
    method = Mahalanobis(DIM, **settings).double().eval()
    method.set_base(toy_base())
    return method


@pytest.mark.parametrize(
    "settings",
    [
        {"shrinkage": 0.0, "normalise": True, "correct_shots": False},
        {"shrinkage": 0.3, "normalise": True, "correct_shots": True},
        {"shrinkage": 0.1, "normalise": False, "correct_shots": False},
    ],
)
def test_distances_equal_a_system_of_equations_per_pair(settings: dict[str, Any]):
    method, t, base = build(**settings), double_task(), toy_base()
    support, query = method.views(t)
    compared = method.compare(method.enroll(support, t.support_one_hot), query)
    of_classes, of_all = slow.distances(base.images(), t.support, t.support_label, t.query, **settings)
    expected = torch.tensor(of_classes, dtype=torch.float64)
    torch.testing.assert_close(compared.logits, -expected / 2, rtol=1e-9, atol=1e-9)
    relative = expected.amin(dim=1) / 2 - torch.tensor(of_all, dtype=torch.float64) / 2
    torch.testing.assert_close(compared.scores["relative"], relative, rtol=1e-9, atol=1e-9)


def test_the_length_of_an_embedding_changes_nothing():
    method, t = build(), double_task()
    longer = method(replace(t, query=3 * t.query))
    torch.testing.assert_close(longer.logits, method(t).logits)
    torch.testing.assert_close(longer.open_score, method(t).open_score)


def test_too_few_base_images_are_refused_without_shrinkage():
    few = torch.randn(10, DIM, generator=torch.Generator().manual_seed(0))
    base = BaseClasses(("a", "b"), few[:2], few[:2], few[0], few, torch.arange(10) % 2)
    with refused("recipe", "10 base images in 16 dimensions", "method.shrinkage"):
        Mahalanobis(DIM).set_base(base)
    method = Mahalanobis(DIM, shrinkage=0.1)
    method.set_base(base)
    assert method.double()(double_task()).logits.isfinite().all()


def test_class_means_alone_are_not_enough():
    rows = torch.eye(DIM)[:2]
    with refused("data", "embeddings of all base images"):
        Mahalanobis(DIM).set_base(BaseClasses(("a", "b"), rows, rows, rows[0]))

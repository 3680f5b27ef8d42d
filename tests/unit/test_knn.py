from __future__ import annotations

import pytest
import torch

from conformance.suite import DIM, double_task
from glocal.research.methods.knn import KNN
from glocal.research.types import Views, to_one_hot
from reference import knn as slow
from refusal import refused


@pytest.mark.parametrize("k", [1, 3, 6])
def test_scores_and_logits_equal_their_loops(k: int):
    method, t = KNN(DIM, k=k).eval(), double_task()
    support, query = method.views(t)
    compared = method.compare(method.enroll(support, t.support_one_hot), query)
    for name, expected in slow.scores(t.support, t.support_label, t.query, k).items():
        assert compared.scores[name].tolist() == pytest.approx(expected, abs=1e-10), name
    expected = torch.tensor(slow.logits(t.support, t.support_label, t.query), dtype=torch.float64)
    torch.testing.assert_close(compared.logits, expected, rtol=0, atol=1e-10)


def test_images_that_are_equally_far_count_each():
    method = KNN(2, k=2)
    state = method.enroll(
        Views(torch.tensor([[0.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])), to_one_hot(torch.tensor([0, 0, 1]))
    )
    compared = method.compare(state, Views(torch.tensor([[1.0, 0.0]])))
    found = {name: round(compared.scores[name].item(), 4) for name in method.own_scores}
    assert found == {"knn": 1.4142, "knn_mean": 1.4142, "knn_balanced": 1.4142}
    two = method.compare(state, Views(torch.tensor([[-1.0, 0.0]])))
    assert [round(two.scores[name].item(), 4) for name in method.own_scores] == [1.4142, 0.7071, 0.0]


def test_more_neighbours_than_support_images_are_refused():
    with refused("recipe", "k = 7", "this task has 6"):
        KNN(DIM, k=7)(double_task())

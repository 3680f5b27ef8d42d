from __future__ import annotations

import pytest
import torch

from conformance.suite import DIM, double_task, toy_task
from glocal.methods.base import TEMPERATURES
from glocal.methods.protonet import ProtoNet
from glocal.ops.similarity import SIMILARITIES
from glocal_runtime.errors import RecipeError
from reference.feat import cross_entropy, pooled
from reference.similarity import class_mean, similarity


@pytest.mark.parametrize("distance", SIMILARITIES)
def test_logits_and_loss_equal_their_loops(distance: str):
    task = double_task()
    method = ProtoNet(DIM, distance=distance)
    proto = class_mean(pooled(task.support), task.support_label)
    expected = similarity(pooled(task.query), proto, distance) / TEMPERATURES[distance]
    torch.testing.assert_close(method(task).logits, expected, rtol=0, atol=1e-10)
    assert method.loss(task)["closed"].item() == pytest.approx(cross_entropy(expected, task.query_label), abs=1e-10)


@pytest.mark.parametrize("distance", SIMILARITIES)
def test_nearest_is_the_distance_to_the_nearest_support_image(distance: str):
    task = double_task()
    out = ProtoNet(DIM, distance=distance, open_score="nearest")(task)
    to_images = similarity(pooled(task.query), pooled(task.support), distance) / TEMPERATURES[distance]
    expected = torch.tensor([min(-float(s) for s in row) for row in to_images], dtype=torch.float64)
    torch.testing.assert_close(out.open_score, expected, rtol=0, atol=1e-10)
    assert not torch.allclose(out.open_score, -out.logits.amax(dim=-1))


def test_a_score_chosen_later_is_checked_too():
    method = ProtoNet(DIM)
    method.open_score = "E_f"
    with pytest.raises(RecipeError, match=r"open_score must be one of nearest, entropy, doubt, .*, got 'E_f'"):
        method(toy_task(0))


def test_loss_without_known_queries_is_zero():
    assert ProtoNet(DIM).loss(toy_task(0, n_query=0))["closed"].item() == 0

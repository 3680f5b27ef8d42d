from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from conformance.suite import DIM, double_task, mean_loss, toy_task
from glocal.common.errors import RecipeError
from glocal.research.methods.base import TEMPERATURES
from glocal.research.methods.open_prototype import OpenPrototype
from glocal.research.methods.protonet import ProtoNet
from glocal.research.ops.similarity import SIMILARITIES
from glocal.research.types import Episode
from reference import open_prototype as slow
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


def test_loss_without_known_queries_and_a_score_chosen_later():
    assert ProtoNet(DIM).loss(toy_task(0, n_query=0))["closed"].item() == 0
    method = ProtoNet(DIM)
    method.score_name = "E_f"
    with pytest.raises(RecipeError, match=r"open_score must be one of nearest, entropy, doubt, .*, got 'E_f'"):
        method(toy_task(0))


def build(**settings) -> OpenPrototype:
    torch.manual_seed(0)
    method = OpenPrototype(DIM, **settings).double()
    if method.sharpness is not None and method.offset is not None:
        method.sharpness.data.fill_(0.3)
        method.offset.data.fill_(-0.7)
    return method


def off_centre(seed: int) -> Episode:
    """Maps around 3, as those of a backbone that ends in a ReLU."""
    task = toy_task(seed)
    return replace(task, support=task.support + 3, query=task.query + 3)


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("distance", SIMILARITIES)
@pytest.mark.parametrize(("shots", "n_unknown"), [((2, 1, 3), 5), ((1,), 3), ((1, 1), 0)])
def test_score_and_loss_equal_their_loops(distance: str, calibrated: bool, shots: tuple[int, ...], n_unknown: int):
    task = double_task(0, shots=shots, n_unknown=n_unknown)
    method = build(distance=distance, calibrated=calibrated)
    expected = slow.logits(method, task.support, task.support_label, task.query)
    out = method(task)
    torch.testing.assert_close(out.logits, expected[:, :-1], rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, slow.p_open(expected), rtol=0, atol=1e-10)
    label = torch.where(task.query_label < 0, len(shots), task.query_label)
    terms = {name: term.item() for name, term in method.loss(task).items()}
    assert terms == {"classes": pytest.approx(cross_entropy(expected, label), abs=1e-10)}


@pytest.mark.parametrize("distance", ["sq-euclidean", "cosine"])
def test_it_learns_where_features_do_not_lie_around_the_origin(distance: str):
    torch.manual_seed(0)
    method = OpenPrototype(DIM, distance=distance, calibrated=False)
    held_out = [off_centre(1000 + i) for i in range(8)]
    before = mean_loss(method, held_out)
    optimiser = torch.optim.Adam(method.parameters(), lr=0.05)
    for step in range(60):
        optimiser.zero_grad()
        sum(method.loss(off_centre(step)).values()).backward()
        optimiser.step()
    assert mean_loss(method, held_out) < 0.95 * before
    known, unknown = zip(*[(method(t).open_score[t.known].mean(), method(t).open_score[~t.known].mean())
                           for t in held_out], strict=True)  # fmt: skip
    assert sum(unknown) > 1.1 * sum(known)


def test_it_learns_one_prototype_and_a_calibration_that_begins_as_nothing():
    task = toy_task(0)
    torch.manual_seed(0)
    plain = OpenPrototype(DIM, calibrated=False)(task)
    torch.manual_seed(0)
    calibrated = OpenPrototype(DIM, calibrated=True)(task)
    assert torch.equal(plain.logits, calibrated.logits)
    assert torch.equal(plain.open_score, calibrated.open_score)
    assert {name: p.shape for name, p in OpenPrototype(DIM, calibrated=False).named_parameters()} == {"open": (DIM,)}
    assert set(OpenPrototype(DIM, calibrated=True).state_dict()) == {"open", "sharpness", "offset"}

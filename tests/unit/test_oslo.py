from __future__ import annotations

import pytest
import torch

from conformance.suite import DIM, double_task, toy_task
from glocal.methods.oslo import OSLO
from glocal.types import UNKNOWN, Views
from reference import oslo as slow
from reference.feat import cross_entropy, pooled


@pytest.mark.parametrize("shots", [(1, 1), (2, 1, 3), (1,)])
@pytest.mark.parametrize(("steps", "inlier", "assignment"), [(2, 0.05, 0.1), (1, 0.05, 0.1), (4, 0.3, 0.2)])
def test_score_and_loss_equal_the_loops(shots: tuple[int, ...], steps: int, inlier: float, assignment: float):
    method = OSLO(DIM, steps=steps, inlier_temperature=inlier, assignment_temperature=assignment)
    task = double_task(0, shots=shots)
    cosines, outlier = slow.scores(
        pooled(task.support),
        task.support_label,
        pooled(task.query),
        steps=steps,
        inlier=inlier,
        assignment=assignment,
    )
    out = method(task)
    torch.testing.assert_close(out.logits, cosines, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, outlier, rtol=0, atol=1e-10)
    assert method.loss(task)["closed"].item() == pytest.approx(cross_entropy(cosines, task.query_label), abs=1e-10)


def test_unknown_queries_get_the_larger_score():
    scores, known = [], []
    for seed in range(8):
        task = toy_task(seed, shots=(3, 3, 3))
        scores.append(OSLO(DIM)(task).open_score)
        known.append(task.query_label != UNKNOWN)
    score, mask = torch.cat(scores), torch.cat(known)
    assert (score[~mask][:, None] > score[mask]).float().mean() > 0.8  # AUROC


def test_sure_inliers_keep_their_order():
    """1 - ξ is not computed by a subtraction that rounds all of them to 0."""
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.02], [-1.0, -0.2]])
    state = OSLO.State(x[:2], torch.tensor([0, 1]))
    score = OSLO(2, inlier_temperature=0.03).score(state, Views(x[2:])).open_score
    assert 0 < score[0] < 1e-12
    assert score[0] < score[1]

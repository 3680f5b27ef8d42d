from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from conformance.suite import DIM, double_task, toy_base
from glocal.research.methods.dnpg import DNPG, BaseFit
from reference import dnpg as slow


def build(**settings: Any) -> DNPG:
    """Away from where it starts: equal scales and an offset of 0 would hide mistakes."""
    torch.manual_seed(0)
    method = DNPG(DIM, epochs=2, dropout=0.0, **settings).double()
    method.set_base(toy_base())
    with torch.no_grad():
        method.like.rows.mul_(20)
        method.unlike.rows.mul_(20)
        method.scales.copy_(torch.tensor([3.0, 4.0, 5.0]))
        method.offset.fill_(0.3)
    for mlp in method.generate:
        mlp[2].p = 0.0
    return method.eval()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("settings", [{}, {"negatives": 1}])
def test_scores_equal_their_loops(settings: dict[str, Any], training: bool):
    method, t = build(**settings).train(training), double_task(n_query=2)
    rows = torch.tensor(slow.similarities(method, t, t.drawn if training else ()), dtype=torch.float64)
    out = method(t)
    torch.testing.assert_close(out.logits, rows[:, :-1], rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, rows.softmax(dim=1)[:, -1], rtol=0, atol=1e-10)


def test_loss_equals_its_loops_on_both_sides():
    method, t = build(alignment_weight=0.7).train(), double_task(n_query=2, n_unknown=3)
    sides = [slow.side(method, each, t.drawn) for each in (t, t.mirrored())]
    terms = {name: term.item() for name, term in method.loss(t).items()}
    assert terms == pytest.approx(
        {
            "classes": sum(side[0] for side in sides),
            "negatives": sum(side[1] for side in sides),
            "alignment": 0.7 * slow.alignment(method, t, t.drawn),
        },
        abs=1e-10,
    )
    alone = replace(t, mirror_support=None, mirror_support_label=None, mirror_query_label=None)
    assert sorted(method.loss(alone)) == ["classes", "negatives"]


def test_the_fit_equals_its_loops_and_ends_where_classes_are_told_apart():
    torch.manual_seed(0)
    base = toy_base()
    vec, label = base.images()
    fit = BaseFit(20, DIM).double()
    assert fit.loss(vec[:9].double(), label[:9]).item() == pytest.approx(
        slow.fit_loss(fit, vec[:9].double(), label[:9])
    )
    fit = BaseFit(20, DIM)
    fit.run(vec, label, 30)
    near = torch.cdist(vec, fit.like.detach()).argmin(dim=1)
    far = torch.cdist(vec, fit.unlike.detach().flatten(0, 1)).view(len(vec), 20, 4).square().mean(dim=2).argmax(dim=1)
    assert (near == label).float().mean() > 0.9
    assert (far == label).float().mean() > 0.5, "its own rows are the farthest; chance is 0.05"

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from conformance.suite import DIM, double_task, toy_base
from glocal.common.errors import RecipeError
from glocal.research.methods.att import ATT, ATTG
from reference import att as slow

SETTINGS = [
    (ATT, {}),
    (ATT, {"memory": "single"}),
    (ATT, {"negative": "mlp", "scale": 7.0}),
    (ATTG, {}),
    (ATTG, {"negative": "mlp"}),
    (ATTG, {"rows": "means"}),
]


def build(kind: type[ATT] = ATT, **settings) -> ATT:
    torch.manual_seed(0)
    method = kind(DIM, **settings).double().eval()
    method.set_base(toy_base())
    return method


def base_of(method: ATT) -> torch.Tensor | None:
    if not isinstance(method, ATTG):
        return None
    return (toy_base().weight if method.rows == "classifier" else toy_base().centre).double()


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
@pytest.mark.parametrize("shots", [(2, 1, 3), (1, 1), (1,)])
def test_logits_and_open_score_equal_their_loops(kind: type[ATT], settings: dict, shots: tuple[int, ...]):
    method, t = build(kind, **settings), double_task(shots=shots)
    rows = slow.similarities(method, t, base_of(method))
    share = [math.exp(row[-1]) / sum(math.exp(s) for s in row) for row in rows]
    out = method(t)
    torch.testing.assert_close(out.logits, torch.tensor(rows, dtype=torch.float64)[:, :-1], rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, torch.tensor(share, dtype=torch.float64), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_loss_of_both_sides_equals_its_loops(kind: type[ATT], settings: dict):
    method, t = build(kind, **settings), double_task(shots=(2, 1, 3), n_unknown=4)
    found = method.loss(t)
    sides = [slow.terms(method, side, base_of(method)) for side in (t, t.mirrored())]
    assert len(t.mirrored().support_label.unique()) == 4  # the other side has more classes than this one
    assert found["classes"].item() == pytest.approx(sum(classes for classes, _ in sides), abs=1e-10)
    assert found["negatives"].item() == pytest.approx(sum(negatives for _, negatives in sides), abs=1e-10)


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
@pytest.mark.parametrize("n_unknown", [0, 5])
def test_a_task_without_a_mirror_is_learnt_from_one_side(kind: type[ATT], settings: dict, n_unknown: int):
    method = build(kind, **settings)
    t = replace(
        double_task(n_unknown=n_unknown), mirror_support=None, mirror_support_label=None, mirror_query_label=None
    )
    classes, negatives = slow.terms(method, t, base_of(method))
    found = method.loss(t)
    assert found["classes"].item() == pytest.approx(classes, abs=1e-10)
    assert found["negatives"].item() == pytest.approx(negatives, abs=1e-10)


def test_training_hides_the_classes_of_the_task_which_are_no_matter_at_test():
    method, t = build(ATTG, dropout=0.0, attention_dropout=0.0).train(), double_task()
    t = replace(t, drawn=(19, 3, 0, 7, 11, 12, 5, 2))
    sides = [slow.terms(method, side, base_of(method), hidden=t.drawn) for side in (t, t.mirrored())]
    shown = [slow.terms(method, side, base_of(method)) for side in (t, t.mirrored())]
    for i, name in enumerate(("classes", "negatives")):
        expected = sum(terms[i] for terms in sides)
        assert method.loss(t)[name].item() == pytest.approx(expected, abs=1e-10)
        assert abs(expected - sum(terms[i] for terms in shown)) > 1e-4
    assert method.eval().loss(t)["classes"].item() == pytest.approx(sum(a for a, _ in shown), abs=1e-10)
    method, t = build(ATTG), double_task()
    elsewhere = replace(t, drawn=tuple(range(100, 108)))
    assert torch.equal(method(elsewhere).logits, method(t).logits)
    with pytest.raises(RecipeError, match=r"cannot hide the classes \[100, .* among 20 base classes"):
        method.train()(elsewhere)


def test_layers_start_as_published():
    torch.manual_seed(0)
    method = ATT(512)
    assert method.scale.item() == 10
    for layer in (method.calibrator, method.open_generator):
        assert (layer.dropout.p, layer.attention_dropout.p) == (0.1, 0.1)
        for linear in (layer.w_qs, layer.w_ks, layer.w_vs, layer.fc):
            assert linear.bias is None
            assert linear.weight.std().item() == pytest.approx(math.sqrt(2 / (2 * 512)), rel=0.02)
    assert not any("w_qs" in name or "w_ks" in name for name in ATT(DIM, memory="single").state_dict())
    assert {name.split(".")[-2] for name in ATT(DIM).state_dict() if "." in name} == {"w_qs", "w_ks", "w_vs", "fc"}

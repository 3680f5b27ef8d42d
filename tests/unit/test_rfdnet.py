from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from conformance.suite import DIM, double_task, toy_base
from glocal.research.methods.rfdnet import RFDNet
from reference import rfdnet as slow
from reference.feat import cross_entropy


def build(**settings) -> RFDNet:
    """With scales, bias and linear layers away from where they start: ones and identities would hide mistakes."""
    torch.manual_seed(0)
    method = RFDNet(DIM, **settings).double()
    method.set_base(toy_base())
    with torch.no_grad():
        method.scale.fill_(3.0)
        method.attention_scale.fill_(2.5)
        method.bias.fill_(0.4)
        for layer in method.relate:
            layer.weight.add_(0.5 * torch.randn(DIM, DIM, dtype=torch.float64))
            layer.bias.add_(0.5 * torch.randn(DIM, dtype=torch.float64))
    return method.eval()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shots", [(1, 1), (2, 1, 3), (1, 4, 2, 1, 5)])
def test_scores_equal_their_loops(shots: tuple[int, ...], training: bool):
    method, t = build().train(training), double_task(shots=shots, n_query=2)
    expected = slow.logits(method, t.support, t.support_label, t.query, hidden=t.drawn if training else ())
    out = method(t)
    torch.testing.assert_close(out.logits, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, -expected.amax(dim=-1), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("n_query", "n_unknown"), [(2, 3), (2, 0)])
@pytest.mark.parametrize("margin", [2.0, 4.0])
def test_loss_equals_its_loops(n_query: int, n_unknown: int, margin: float):
    method, t = build(margin=margin, margin_weight=0.7).train(), double_task(n_query=n_query, n_unknown=n_unknown)
    logits = slow.logits(method, t.support, t.support_label, t.query, hidden=t.drawn)
    known, unknown = slow.margins(logits, t.query_label, margin)
    terms = method.loss(t)
    assert set(terms) == {"closed", "known", "unknown"}
    assert terms["closed"].item() == pytest.approx(cross_entropy(logits, t.query_label), abs=1e-10)
    assert terms["known"].item() == pytest.approx(0.7 * known, abs=1e-10)
    assert terms["unknown"].item() == pytest.approx(0.7 * unknown, abs=1e-10)


def test_own_classes_are_hidden_in_training_alone():
    method, t = build(), double_task()
    trained = method.train()(t).logits
    hidden = list(t.drawn)
    with torch.no_grad():
        method.centre.rows[hidden] += 5
        method.key.rows[hidden] -= 3
    assert torch.equal(method(t).logits, trained)
    assert (method.eval()(t).logits - trained).abs().max() > 1e-3
    assert torch.equal(method(t).logits, method(replace(t, drawn=())).logits)
    method.train().loss(t)["closed"].backward()
    touched = method.centre.rows.grad.abs().sum(dim=-1) > 0
    assert not touched[hidden].any()
    assert touched.sum() == 20 - len(set(hidden))


def test_it_starts_as_released_and_old_heads_load_with_a_bias_of_zero():
    torch.manual_seed(0)
    method, base = RFDNet(DIM), toy_base()
    method.set_base(base)
    assert torch.equal(method.centre.rows, base.centre)
    assert method.key.rows.shape == base.centre.shape
    assert method.key.rows.std().item() == pytest.approx(math.sqrt(2 / DIM), rel=0.1)
    assert (method.scale.item(), method.attention_scale.item(), method.bias.item()) == (1, 1, 0)
    torch.manual_seed(0)
    method = RFDNet(64)
    for layer in method.relate:
        assert not layer.bias.any()
        assert (layer.weight - torch.eye(64)).std().item() == pytest.approx(0.001, rel=0.1)
    old = {name: value for name, value in build().state_dict().items() if not name.endswith(".bias")}
    loaded = RFDNet(DIM).double()
    loaded.load_state_dict(old)
    assert not any(layer.bias.any() for layer in loaded.relate)
    assert torch.equal(loaded.relate[1].weight, old["relate.1.weight"])

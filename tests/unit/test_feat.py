from __future__ import annotations

import math

import pytest
import torch

from conformance.suite import DIM, double_task
from glocal.research.methods.blocks import ResidualLinear, SetAttention
from glocal.research.methods.feat import FEAT
from reference import feat as slow


def build(**settings) -> FEAT:
    torch.manual_seed(0)
    return FEAT(DIM, **settings).double().eval()


def sets(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_attention_equals_its_loops_also_within_groups():
    layer = build().attend
    torch.nn.init.normal_(layer.layer_norm.weight)
    x = sets(3, 5, DIM)
    expected = torch.stack([slow.attend(layer, rows) for rows in x])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-10)
    layer, x, group = build().attend, sets(6, DIM), torch.tensor([1, 0, 1, 1, 0, 2])
    found = layer(x, group[:, None] == group)
    for g in range(3):
        torch.testing.assert_close(found[group == g], layer(x[group == g]), rtol=0, atol=1e-12)


def test_swapped_equals_attention_over_each_swapped_set():
    layer, x, other = build().attend, sets(4, DIM), sets(7, DIM, seed=1)
    at = torch.tensor([0, 3, 3, 1, 2, 0, 1])
    swapped = x.repeat(7, 1, 1)
    swapped[torch.arange(7), at] = other
    torch.testing.assert_close(layer.swapped(x, other, at), layer(swapped), rtol=0, atol=1e-12)


def test_attention_starts_as_published():
    torch.manual_seed(0)
    layer = SetAttention(640)
    assert (layer.dropout.p, layer.attention_dropout.p) == (0.5, 0.1)
    for linear in (layer.w_qs, layer.w_ks, layer.w_vs):
        assert linear.bias is None
        assert linear.weight.std().item() == pytest.approx(math.sqrt(2 / (2 * 640)), rel=0.02)
    assert layer.fc.weight.std().item() == pytest.approx(math.sqrt(2 / (640 + 640)), rel=0.02)
    assert set(layer.state_dict()) == {
        "w_qs.weight", "w_ks.weight", "w_vs.weight", "fc.weight", "fc.bias", "layer_norm.weight", "layer_norm.bias",
    }  # fmt: skip


def test_adapter_begins_as_nothing():
    x = torch.randn(3, 5)
    assert torch.equal(ResidualLinear(5)(x), x)
    plain, adapted = build(), build(adapter=True)
    adapted.load_state_dict(plain.state_dict() | {"adapter.weight": torch.zeros(DIM, DIM)})
    assert torch.equal(plain(double_task()).logits, adapted(double_task()).logits)


@pytest.mark.parametrize("shots", [(1, 1), (2, 1, 3), (1,)])
def test_logits_equal_their_loops(shots: tuple[int, ...]):
    method, t = build(temperature=7.0), double_task(shots=shots)
    expected = slow.logits(method, t.support, t.support_label, t.query)
    torch.testing.assert_close(method(t).logits, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_unknown", [0, 5])
def test_loss_equals_its_loops(n_unknown: int):
    method, t = build(contrast_weight=0.3, contrast_temperature=5.0), double_task(n_unknown=n_unknown)
    terms = method.loss(t)
    logits = slow.logits(method, t.support, t.support_label, t.query)
    contrast = slow.contrast(method, t.support, t.support_label, t.query, t.query_label)
    assert terms["closed"].item() == pytest.approx(slow.cross_entropy(logits, t.query_label), abs=1e-10)
    assert terms["contrast"].item() == pytest.approx(0.3 * contrast, abs=1e-10)

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from conformance.suite import DIM, double_task, toy_base, toy_task
from glocal.common.errors import RecipeError
from glocal.research.methods import peeler
from glocal.research.methods.peeler import Peeler, weighed_distance
from reference import peeler as slow

GAUSSIAN = {"variant": "gaussian", "sigma_channels": 4}
FULL = GAUSSIAN | {"early_channels": 2}  # 8 channels of final maps, 2 of the stage before packed into 8


def build(**settings) -> Peeler:
    """With weights and statistics that have left their start, where A = 1 and every norm is plain."""
    torch.manual_seed(0)
    method = Peeler(DIM, **settings).double().eval()
    method.set_base(toy_base())
    with torch.no_grad():
        for name, parameter in method.named_parameters():
            if "norm" in name or "sigma.1" in name or "shortcut.1" in name or "expand" in name:
                parameter.add_(0.5 * torch.randn_like(parameter))
        for name, buffer in method.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand_like(buffer) + (0.5 if "var" in name else -0.5))
    return method


@pytest.mark.parametrize("settings", [{"temperature": 9.0}, GAUSSIAN | {"temperature": 3.0}, FULL])
@pytest.mark.parametrize("shots", [(2, 1, 3), (1, 1), (1,)])
def test_logits_and_open_score_equal_their_loops(settings: dict, shots: tuple[int, ...]):
    method, t = build(**settings, open_score="peeler"), double_task(shots=shots, n_query=2)
    expected = slow.logits(method, t.support, t.support_label, t.query)
    out = method(t)
    torch.testing.assert_close(out.logits, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, slow.open_score(expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize("settings", [{"open_weight": 0.3}, GAUSSIAN | {"auxiliary_temperature": 5.0}, FULL])
@pytest.mark.parametrize("n_unknown", [0, 5])
def test_loss_equals_its_loops(settings: dict, n_unknown: int):
    method, t = build(**settings), double_task(n_unknown=n_unknown)
    t = replace(t, drawn=tuple(19 - b for b in t.drawn))  # neither the order of the labels nor that of the rows
    found, expected = method.loss(t), slow.terms(method, t)
    assert set(found) == {"closed", "open", "auxiliary"} == set(expected)
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(value, abs=1e-10), name
    assert (found["open"].item() < 0) == bool(n_unknown)


@pytest.mark.parametrize("training", [True, False])
def test_sigma_comes_from_the_early_maps_and_final_maps_stay(training: bool):
    method, t = build(**FULL).train(training), double_task()
    maps = torch.cat([t.support, t.query])
    sigma = torch.stack(slow.second_last_stage(method.sigma, slow.early(method, maps)))
    support, query = method.views(t)
    local = torch.cat([support.local, query.local])
    assert torch.equal(local[:, :8], maps[:, :8])
    torch.testing.assert_close(local[:, 8:], sigma, rtol=0, atol=1e-10)
    torch.testing.assert_close(support.vec, t.support[:, :8].mean(dim=(2, 3)), rtol=0, atol=1e-12)
    assert sigma.max() > 0.5


def test_full_model_remembers_and_adapts_final_maps_alone():
    plain, adapted = build(**FULL), build(**FULL, adapter=True)
    adapted.load_state_dict(plain.state_dict() | {"adapter.weight": torch.eye(8)})
    t = double_task()
    support, query = t.support.clone(), t.query.clone()
    support[:, :8] *= 2
    query[:, :8] *= 2
    twice = replace(t, support=support, query=query)
    torch.testing.assert_close(adapted(t).logits, plain(twice).logits, rtol=0, atol=1e-10)
    assert torch.equal(build(**FULL).base.rows, toy_base().centre[:, :8].double())


def test_without_an_early_stage_nothing_is_added_and_gaussian_starts_at_class_means():
    torch.manual_seed(0)
    plain = Peeler(DIM, **GAUSSIAN, auxiliary_weight=0)
    assert {name.split(".")[0] for name in plain.state_dict()} == {"precision"}
    assert plain.embed(double_task().support.float()).local.shape == (6, DIM, 2, 2)
    t, plain = double_task(), Peeler(DIM, variant="gaussian").double().eval()
    proto = torch.stack([t.support[t.support_label == n].mean(dim=(0, 2, 3)) for n in range(3)])
    torch.testing.assert_close(plain(t).logits, -torch.cdist(t.query.mean(dim=(2, 3)), proto), rtol=0, atol=1e-10)


def test_taking_turns_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    method, t = build(**GAUSSIAN), double_task()
    whole = method(t).logits
    monkeypatch.setattr(peeler, "WEIGHED_FLOATS", 4 * 3 * DIM)
    torch.testing.assert_close(method(t).logits, whole, rtol=0, atol=1e-12)


def test_distance_zero_has_a_gradient_of_zero():
    query = torch.randn(1, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    precision = torch.ones(2, 3, 2, 2, dtype=torch.float64)
    mean = torch.stack([query.detach().mean(dim=(2, 3))[0], torch.zeros(3, dtype=torch.float64)])
    distance = weighed_distance(query, mean, precision)
    distance[:, 0].sum().backward()
    assert distance[0, 0] == 0
    assert torch.equal(query.grad, torch.zeros_like(query))
    assert gradcheck(lambda a: weighed_distance(query, mean, a)[:, 1], (precision.requires_grad_(),))


def test_base_classes_are_needed_for_the_auxiliary_term_alone():
    without, with_it = Peeler(DIM, auxiliary_weight=0), Peeler(DIM)
    assert (without.needs_base, with_it.needs_base, Peeler.needs_base) == (False, True, False)
    without.set_base(toy_base())
    assert list(without.state_dict()) == []
    assert set(without.loss(toy_task(0))) == {"closed", "open"}
    assert set(with_it.loss(replace(toy_task(0), drawn=()))) == {"closed", "open"}
    with pytest.raises(RecipeError, match="has not met them"):
        with_it.loss(toy_task(0))
    with_it.set_base(toy_base())
    assert torch.equal(with_it.base.rows, toy_base().centre)
    assert with_it.base.rows.requires_grad

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from conformance.suite import DIM, double_task
from glocal.research.methods.frozen_gel import FrozenGEL
from glocal.research.methods.gel import GEL, VARIANTS
from glocal.research.methods.protonet import ProtoNet
from glocal.research.methods.snatcher import SnaTCHerF
from reference import gel as slow

TRAINED = {"baseline": None, "energy": "E_c", "energy-maps": "E_m", "pixel": "E_f", "delay": "E_f", "ahead": "E"}
SCORED = {"baseline": "snatcher", "energy": "E_c", "energy-maps": "E_m", "pixel": "E_f", "delay": "delay", "ahead": "E"}
small_task = partial(double_task, n_query=2)  # the loops over its pixels take long


def build(kind: Callable[..., GEL] = GEL, **settings) -> GEL:
    """In evaluation mode, with running statistics as if it had been trained for a while."""
    torch.manual_seed(0)
    method = kind(DIM, **settings).double()
    if method.calibrate is not None:
        norm = method.calibrate[1]
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return method.eval()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_unknown", [5, 0])
def test_every_variant_equals_its_equations(variant: str, n_unknown: int):
    method, t = build(variant=variant, top_k=2, temperature=9.0), small_task(n_unknown=n_unknown)
    out, terms = method(t), method.loss(t)
    expected, losses = slow.scores(method, t), slow.loss(method, t, TRAINED[variant])
    torch.testing.assert_close(out.logits, slow.class_similarity(method, t), rtol=0, atol=1e-10)
    assert out.open_score.tolist() == pytest.approx(expected[SCORED[variant]], abs=1e-10)
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(losses, abs=1e-10)


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        ({}, "snatcher E_c E_f delay E_f+snatcher E E+distance E+snatcher"),
        ({"top_k": 3}, "snatcher E_c E_f delay E_f+snatcher E E+distance E+snatcher"),
        ({"variant": "pixel", "top_k": 4}, "snatcher E_c E_f delay E_f+snatcher E E+distance E+snatcher"),
        ({"variant": "energy-maps"}, "snatcher E_c E_m E_m+distance E_m+snatcher"),
        ({"variant": "energy"}, "snatcher E_c"),
    ],
)
def test_every_named_score_equals_its_equation(settings: dict, own: str):
    """Among them the three that the authors' program prints: an energy, the distance or movement, and their sum."""
    method, t = build(**settings), small_task()
    support, query = method.views(t)
    found = method.scores(method.enroll(support, t.support_one_hot), query)
    expected = slow.scores(method, t)
    assert list(found) == [*own.split(), "entropy", "doubt", "distance", "energy", "margin"]
    assert set(expected) == set(own.split())
    for name, values in expected.items():
        assert found[name].tolist() == pytest.approx(values, abs=1e-10), name


@pytest.mark.parametrize("distance", ["sq-euclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("kind", [GEL, partial(FrozenGEL, local_scale="mean")])
def test_distances_and_scales_equal_their_equations(distance: str, kind: Callable[..., GEL]):
    method, t = build(kind, distance=distance, m_known=-2.5, m_unknown=0.5, energy_weight=0.7), small_task()
    assert method(t).open_score.tolist() == pytest.approx(slow.scores(method, t)["E"], abs=1e-10)
    losses = {name: term.item() for name, term in method.loss(t).items()}
    assert losses == pytest.approx(slow.loss(method, t, "E"), abs=1e-10)


def test_coefficients_weigh_the_energies_and_may_come_from_the_prototypes():
    method, t = build(coefficients="learnable"), small_task()
    with torch.no_grad():
        method.coefficient.value.copy_(torch.tensor([2.0, -0.5]))
    assert method(t).open_score.tolist() == pytest.approx(slow.scores(method, t, 2.0, -0.5)["E"], abs=1e-10)
    assert method.loss(t)["energy"].item() == pytest.approx(slow.loss(method, t, "E", 2.0, -0.5)["energy"], abs=1e-10)
    method, t = build(coefficients="task-adaptive"), small_task()
    torch.nn.init.normal_(method.coefficient.linear.weight)
    mean = slow.class_mean(slow.pooled(t.support), t.support_label).mean(0)
    a, b = (1 + method.coefficient.linear.weight @ mean).tolist()
    assert method(t).open_score.tolist() == pytest.approx(slow.scores(method, t, a, b)["E"], abs=1e-10)


def test_baseline_is_snatcher_with_the_cross_entropy_alone():
    method, t = build(variant="baseline"), small_task()
    twin = SnaTCHerF(DIM, contrast_weight=0).double().eval()
    twin.load_state_dict(method.state_dict())  # strict: there is no calibration to be left without a gradient
    assert torch.equal(method(t).open_score, twin(t).open_score)
    assert {k: v.item() for k, v in method.loss(t).items()} == {k: v.item() for k, v in twin.loss(t).items()}


def test_the_calibration_starts_as_the_authors_start_it():
    torch.manual_seed(0)
    conv, norm, prelu = GEL(128).calibrate
    assert conv.weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.05), "normal, by the channels that go out"
    assert (norm.weight.unique().item(), norm.bias.unique().item(), prelu.weight.item()) == (1, 0, 0.25)


def test_the_gentle_head_starts_at_cosine_prototypes_and_can_leave_them():
    gentle = {"distance": "cosine", "gentle_attention": True, "learn_temperature": True, "local_scale": "learned"}
    method, t = build(FrozenGEL, **gentle), small_task()
    plain = ProtoNet(DIM, distance="cosine")(t)
    torch.testing.assert_close(method(t).logits, plain.logits, rtol=0, atol=1e-10)
    with torch.no_grad():
        method.sharpness.fill_(0.5)
    torch.testing.assert_close(method(t).logits, plain.logits * 2.718281828459045**0.5, rtol=1e-10, atol=0)


def test_gains_are_factors_on_the_channels_of_every_map():
    gained, plain, t = build(FrozenGEL, channel_gains=True), build(FrozenGEL), small_task()
    plain.load_state_dict(gained.state_dict(), strict=False)
    gain = torch.linspace(0.5, 3, DIM).double()
    with torch.no_grad():
        gained.gains.log_gain.copy_(gain.log())
    maps = {part: getattr(t, part) * gain[:, None, None] for part in ("support", "query")}
    torch.testing.assert_close(gained(t).open_score, plain(replace(t, **maps)).open_score, rtol=0, atol=1e-10)


def test_a_learned_local_scale_is_a_factor_and_an_offset_on_the_mean():
    learned, mean, t = build(FrozenGEL, local_scale="learned"), build(FrozenGEL, local_scale="mean"), small_task()
    mean.load_state_dict(learned.state_dict(), strict=False)
    with torch.no_grad():
        learned.local_affine.factor.fill_(1.0)
        learned.local_affine.offset.fill_(-3.0)
    difference = learned(t).open_score - mean(t).open_score  # an offset on every s_f moves E by its opposite
    torch.testing.assert_close(difference, torch.full_like(difference, 3.0), rtol=0, atol=1e-10)


def test_without_its_own_settings_the_head_is_gel_from_the_same_seed():
    for settings in ({}, {"variant": "energy"}, {"coefficients": "task-adaptive"}):
        gel, head = build(**settings), build(FrozenGEL, **settings)
        assert torch.equal(gel.attend.fc.weight, head.attend.fc.weight)
        head.load_state_dict(gel.state_dict())  # the calibration starts elsewhere
        assert torch.equal(gel(small_task()).open_score, head(small_task()).open_score)

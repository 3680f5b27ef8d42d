"""Centring as a switch: what it computes, and that the method behind it is otherwise itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conformance.suite import DIM, double_task, toy_base
from glocal.research.methods import METHODS, Method, build_method
from glocal.research.methods.att import ATTG
from glocal.research.methods.blocks import Centred
from glocal.research.types import Episode
from reference.oslo import unit


def build(name: str, **settings) -> Method:
    torch.manual_seed(0)
    method = build_method(name, DIM, settings).double().eval()
    if method.needs_base:
        method.set_base(toy_base())
    return method


def slow_centring(maps: Tensor) -> Tensor:
    """One picture and one pixel at a time: (B, C, H, W) -> (B, C, H, W)."""
    mean, out = toy_base().mean.double(), maps.clone()
    _, _, height, width = maps.shape
    for picture in out:
        pooled = sum(picture[:, h, w] for h in range(height) for w in range(width)) / (height * width)
        length = (pooled - mean).square().sum().sqrt()
        for h in range(height):
            for w in range(width):
                picture[:, h, w] = (picture[:, h, w] - mean) / length
    return out


def centred_task(task: Episode) -> Episode:
    assert task.mirror_support is not None
    return replace(
        task,
        support=slow_centring(task.support),
        query=slow_centring(task.query),
        mirror_support=slow_centring(task.mirror_support),
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("protonet", {}),
        ("protonet", {"distance": "cosine", "open_score": "margin"}),
        ("gel", {"top_k": 2}),
        ("att", {}),
    ],
)
def test_it_is_the_method_on_maps_centred_one_by_one(name: str, settings: dict[str, object]):
    task, method, inner = double_task(), build(name, centre=True, **settings), build(name, **settings)
    out, truth = method(task), inner(centred_task(task))
    torch.testing.assert_close(out.logits, truth.logits, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, truth.open_score, rtol=0, atol=1e-10)
    terms, true_terms = method.loss(task), inner.loss(centred_task(task))
    assert terms.keys() == true_terms.keys()
    for term in terms:
        torch.testing.assert_close(terms[term], true_terms[term], rtol=0, atol=1e-10)
    assert not torch.allclose(truth.logits, inner(task).logits, atol=1e-3), "centring must matter here"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_the_switch_and_stays_what_it_is(name: str):
    short = {"epochs": 2} if name == "dnpg" else {}
    method, inner = build(name, centre=True, **short), build(name, **short)
    assert isinstance(method, Centred)
    assert method.needs_base
    for what in ("needs_mirror", "transductive", "min_way", "score_names", "score_name"):
        assert getattr(method, what) == getattr(inner, what), what
    assert method.State._fields == inner.State._fields
    assert [p.shape for p in method.parameters()] == [p.shape for p in inner.parameters()]
    out = method(double_task())
    assert out.logits.isfinite().all()
    assert build_method(name, DIM, {"centre": False}).state_dict().keys() == inner.state_dict().keys()


def test_base_classes_inside_lie_where_the_maps_do():
    method, base = build("att-g", centre=True), toy_base()
    assert isinstance(method, Centred)
    assert isinstance(method.inner, ATTG)
    seen = []
    method.inner.set_base = seen.append  # type: ignore[method-assign]
    method.set_base(base)
    for rows, original in ((seen[0].weight, base.weight), (seen[0].centre, base.centre)):
        truth = torch.stack([unit(row - base.mean.double()) for row in original.double()])
        torch.testing.assert_close(rows.double(), truth, rtol=0, atol=1e-6)
    assert seen[0].names == base.names
    assert torch.equal(seen[0].mean, torch.zeros(DIM))


def test_what_is_centred_already_does_not_change_and_the_mean_itself_stays_finite():
    task = double_task()
    out, truth = build("eol", centre=True)(task), build("eol")(task)
    torch.testing.assert_close(out.logits, truth.logits, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.open_score, truth.open_score, rtol=0, atol=1e-10)
    method = build("protonet", centre=True)
    vec = method.embed(toy_base().mean.double().view(1, DIM, 1, 1)).vec
    assert torch.equal(vec, torch.zeros(1, DIM, dtype=torch.float64))

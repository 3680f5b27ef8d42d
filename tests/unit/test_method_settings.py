"""What every method refuses, and that its weights and base classes come back from a state dict."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from cases import METHOD_CASES
from conformance.suite import DIM, toy_base, toy_task
from glocal.research.methods import METHODS, build_method
from refusal import refused

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("protonet", {"distance": "manhattan"}, "one of sq-euclidean, euclidean, cosine, got 'manhattan'"),
    ("protonet", {"temperature": 0}, "temperature must be positive, got 0"),
    ("peeler", {"variant": "full"}, "one of prototype, gaussian, got 'full'"),
    ("peeler", {"sigma_channels": 0}, "sigma_channels must be at least 1, got 0"),
    ("peeler", {"variant": "gaussian", "early_channels": 4}, "leave some of the 16 to the last map, got 4"),
    ("att", {"memory": "base"}, "one of cross, single, got 'base'"),
    ("att-g", {"rows": "columns"}, "one of classifier, means, got 'columns'"),
    ("gel", {"variant": "early"}, "one of baseline, energy, energy-maps, pixel, delay, ahead, got 'early'"),
    ("gel", {"variant": "pixel", "coefficients": "learnable"}, "needs variant 'ahead'"),
    ("gel", {"variant": "energy", "open_score": "E_f"}, "got 'E_f'"),
    ("gel", {"top_k": 0}, "top_k must be at least 1"),
    ("gel", {"m_known": 2.0}, "m_known must not exceed m_unknown, got 2.0 and 1.0"),
    ("frozen-gel", {"local_scale": "median"}, "one of sum, mean, learned, got 'median'"),
    ("frozen-gel", {"local_width": 0}, "local_width must be at least 1 channel, got 0"),
    ("frozen-gel", {"background": 0.3}, "needs distance 'cosine', got 'sq-euclidean'"),
    ("ascm", {"neighbours": 1}, "neighbours must be at least 2"),
    ("dnpg", {"negatives": 0}, "negatives and epochs must be at least 1, got 0 and 50"),
    ("knn", {"k": 0}, "k must be at least 1 (support images), got 0"),
    ("mahalanobis", {"shrinkage": 1.5}, "shrinkage must lie in 0..1, got 1.5"),
    ("oslo", {"steps": 0}, "steps must be at least 1"),
    ("eol", {"unknown_share": 1.0}, "unknown_share must lie between 0 and 1"),
    *((name, {"open_score": "nobody"}, "open_score must be one of") for name in METHODS),
]


@pytest.mark.parametrize(("name", "settings", "words"), REFUSED, ids=lambda part: str(part)[:40])
def test_settings_out_of_range_are_refused(name: str, settings: dict[str, Any], words: str):
    with refused("recipe", words):
        METHODS[name](DIM, **settings)


def numbers() -> list[tuple[str, str]]:
    """Every temperature, weight and rate of every method; margins may be negative, torch checks dropout."""
    free = ("m_known", "m_unknown", "dropout", "attention_dropout")
    of = {name: inspect.signature(method).parameters.values() for name, method in METHODS.items()}
    return [(name, p.name) for name in of for p in of[name] if "float" in str(p.annotation) and p.name not in free]


@pytest.mark.parametrize(("name", "setting"), numbers())
def test_numbers_below_zero_are_refused(name: str, setting: str):
    with refused("recipe", setting):
        METHODS[name](DIM, **{setting: -1.0})


@pytest.mark.parametrize("case", ["att-g", "rfdnet", "dnpg", "mahalanobis", "eol", "protonet/centred"])
def test_without_the_base_classes_it_says_so(case: str):
    with refused("recipe", "has not met them"):
        build_method(case.split("/")[0], DIM, METHOD_CASES[case]).eval()(toy_task(0))


@pytest.mark.parametrize("case", METHOD_CASES)
def test_weights_come_back_with_the_base_classes(case: str):
    name, settings = case.split("/")[0], METHOD_CASES[case]
    method, again = (build_method(name, DIM, settings).eval() for _ in range(2))
    task = toy_task(0)
    if method.needs_base:
        method.set_base(toy_base())
    again.load_state_dict(method.state_dict())
    assert torch.equal(again(task).logits, method(task).logits)
    assert torch.equal(again(task).open_score, method(task).open_score)

"""Every method that answers about pictures one by one becomes graphs, whatever the numbers of photos and queries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glocal.engine.checkpoint import Model
from glocal.export.graphs import trace
from glocal.methods import METHODS
from glocal.recognizer.torch_model import TorchHead
from glocal.types import BaseClasses
from glocal_runtime.onnx_model import OnnxModel
from glocal_runtime.views import Array
from tiny_models import tiny_model

SUPPORTS = ((3, 1, 2), (2, 2), (1,) * 8, (5,))
TOLERANCE = 1e-5


def ready(name: str) -> Model:
    model = tiny_model(name)
    model.backbone.eval(), model.method.eval()
    if model.method.needs_base:
        rows = torch.randn(6, model.backbone.channels)
        model.method.set_base(BaseClasses(tuple("abcdef"), rows, rows, rows.mean(dim=0)))
    return model


def inductive() -> list[str]:
    return [name for name, method in METHODS.items() if not method.transductive]


def assert_close(ours: Array, theirs: Array) -> None:
    assert ours.shape == theirs.shape
    assert (np.abs(ours - theirs) <= TOLERANCE * np.maximum(1, np.abs(ours))).all()


@pytest.mark.long
@pytest.mark.parametrize("name", inductive())
def test_its_graphs_say_what_it_says(name: str) -> None:
    model = ready(name)
    preprocess, min_way = model.backbone.preprocess, model.method.min_way
    exported = OnnxModel(name, name, model.method.open_score, min_way, preprocess, None, trace(model))
    head, rng = TorchHead(model.method), np.random.default_rng(0)

    def pictures(n: int) -> Array:
        return rng.integers(0, 256, (n, preprocess.size, preprocess.size, 3), dtype=np.uint8)

    for shots in SUPPORTS:
        if len(shots) < min_way:
            continue
        label = np.repeat(np.arange(len(shots)), shots)
        support = exported.embed(pictures(len(label)))
        for n in (1, 4, 9):
            query = exported.embed(pictures(n))
            ours = head.compare(head.enroll(support, label), query)
            theirs = exported.compare(exported.enroll(support, label), query)
            assert_close(ours.logits, theirs.logits)
            assert_close(ours.open_score, theirs.open_score)
            assert ours.parts.keys() == theirs.parts.keys()
            for part, value in ours.parts.items():
                assert_close(value, theirs.parts[part])

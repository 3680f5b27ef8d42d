"""Every method that judges pictures one by one becomes graphs, whatever the numbers of photos, classes and queries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glocal.engine.checkpoint import Model
from glocal.engine.head import Head
from glocal.export.graphs import trace
from glocal.methods import METHODS
from glocal.types import BaseClasses
from glocal_runtime.graphs import EMBED, ENROLL, SCORE, Graph, GraphEye, GraphHead
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
    graphs = {file: Graph(data, file) for file, data in trace(model).items()}
    eye, head = GraphEye(graphs[EMBED], model.backbone.preprocess), GraphHead(graphs[ENROLL], graphs[SCORE])
    method, rng = Head(model.method), np.random.default_rng(0)
    size = model.backbone.preprocess.size

    def pictures(n: int) -> list[Array]:
        return list(rng.integers(0, 256, (n, size, size, 3), dtype=np.uint8))

    for shots in SUPPORTS:
        if len(shots) < model.method.min_way:
            continue
        label = np.repeat(np.arange(len(shots)), shots)
        support = eye.embed(pictures(len(label)))
        for n in (1, 4, 9):
            query = eye.embed(pictures(n))
            ours = method.compare(method.enroll(support, label), query)
            theirs = head.compare(head.enroll(support, label), query)
            assert_close(ours.logits, theirs.logits)
            assert_close(ours.open_score, theirs.open_score)
            assert ours.parts.keys() == theirs.parts.keys()
            for part, value in ours.parts.items():
                assert_close(value, theirs.parts[part])

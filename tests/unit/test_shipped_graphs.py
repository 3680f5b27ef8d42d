"""The graphs that ship: whole, and with the answers of the networks that they were made of."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

import make_graphs
from glocal.hub.measuring import sketches
from glocal.recognizer import Recognizer
from glocal.recognizer.converted import ENROLL, SCORE
from glocal.recognizer.encoders.builtin import FILES, FOLDER
from glocal.recognizer.encoders.encoder import builtin_encoder
from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.features import unit
from glocal.recognizer.model import build_model
from glocal.research.engine.checkpoint import load_model
from glocal.research.types import Views, normalize
from photos import some
from refusal import refused

SOURCES = {"fast": "photos-fast", "gel": "photos-gel"}


def of_modules(source: str, images: np.ndarray) -> Views:
    model = load_model(source).eval()
    with torch.inference_mode():
        there = torch.from_numpy(images).permute(0, 3, 1, 2)
        return model.method.embed(model.backbone(normalize(there, model.backbone.preprocess)))


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (unit(a, axis=1) * unit(b, axis=1)).sum(axis=1)


def test_the_files_are_those_that_recognizers_name() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(FILES.values())
    for sha256, name in FILES.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == sha256, name


@pytest.mark.parametrize("kind", SOURCES)
def test_half_precision_hardly_turns_a_vector(kind: str) -> None:
    model = build_model(head="gel" if kind == "gel" else "ridge")
    images = sketches(4, model.preprocess.size)
    expected, features = of_modules(SOURCES[kind], images), model.encoder(images)
    assert cosines(features.vec, expected.vec.numpy()).min() > 0.9999
    assert expected.local is not None
    assert cosines(features.local[0], expected.local.numpy()).min() > 0.999


def test_better_has_two_members_that_count_alike() -> None:
    fast, better = builtin_encoder("fast"), builtin_encoder("better")
    images = sketches(3, 260)
    features = better(images)
    assert features.shape[1:] == ((432, 4, 4), (472, 4, 4))
    lite0, lite2 = np.split(features.vec, [fast(sketches(1, 224)).vec.shape[1]], axis=1)
    for part in (lite0, lite2):
        np.testing.assert_allclose(np.square(part).sum(axis=1), 0.5, rtol=1e-4)


def test_gel_answers_on_fast_and_on_no_other_encoder(tmp_path: Path) -> None:
    photos = {word: some(word, 0, 5) for word in ("zero", "one", "two")}
    who = Recognizer.enroll(photos, head="gel")
    assert [each.nearest for each in who.predict(some("zero", 20, 24))].count("zero") >= 3
    who.save(tmp_path / "a.glocal")
    assert (tmp_path / "a.glocal").stat().st_size < 2_000_000, "graphs that ship are not stored"
    again = Recognizer.load(tmp_path / "a.glocal")
    assert again.predict(some("two", 20, 24)) == who.predict(some("two", 20, 24))
    with refused("other-encoder", "gel fits the encoder fast alone, got 'better'"):
        Recognizer.enroll(photos, encoder="better", head="gel")


@pytest.mark.long
def test_in_single_precision_they_answer_as_the_networks_do(tmp_path: Path) -> None:
    """Vectors within 1e-5; the graphs of the head gel are checked by ``convert``."""
    made = dict(make_graphs.graphs())
    assert {ENROLL, SCORE} <= {name.removeprefix("gel-") for name in made}
    for name, source, size in (("lite0.onnx", "photos-fast", 224), ("lite2.onnx", "photos-better", 260)):
        images = sketches(4, size)
        vec, local = Graph(made[name], name)({"images": images}, ["vec", "local"])
        expected = of_modules(source, images)
        np.testing.assert_allclose(vec, expected.vec.numpy(), atol=1e-5)
        np.testing.assert_allclose(local, expected.local.numpy(), atol=1e-5)  # type: ignore[union-attr]

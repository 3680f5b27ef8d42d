"""Evaluation: rows equal to those computed by hand, and nothing but the asked split is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from glocal.backbones import build_backbone
from glocal.data import EpisodeSampler, EpisodeSpec, open_dataset
from glocal.engine import evaluate as engine
from glocal.engine.checkpoint import Model
from glocal.engine.evaluate import build_bank, evaluate, evaluate_model
from glocal.methods import METHODS
from glocal.metrics import task_metrics
from glocal_runtime.errors import DataError
from tiny_runs import make_dataset

SPEC = EpisodeSpec(2, 1, 3, 2, 3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("evaluate") / "data")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))


def small_model(method: str = "protonet") -> Model:
    torch.manual_seed(0)
    backbone = build_backbone("conv4", width=4, image_size=16)
    return Model(backbone, METHODS[method](backbone.channels))


def test_rows_are_those_of_every_task_alone(dataset: Path) -> None:
    model = small_model("gel")
    data = open_dataset(dataset, "test")
    tasks = EpisodeSampler(data, SPEC, seed=3).take(4)
    bank = build_bank(model, data, tasks, workers=1)
    found = evaluate(model.method, tasks, bank)
    assert not model.method.training
    for i, draw in enumerate(tasks):
        with torch.inference_mode():
            out = model.method(draw.episode(bank))
        for name, value in task_metrics(out.logits, out.open_score, draw.query_label).items():
            assert found.rows[name][i] == value, (name, i)
    assert found.tasks == tasks.fingerprint()
    assert found.summary()["acc"].mean == np.mean(found.rows["acc"])
    assert [answer.logits.shape for answer in found.answers] == [(12, 2)] * 4


def test_progress_counts_the_tasks(dataset: Path) -> None:
    model, data = small_model(), open_dataset(dataset, "test")
    tasks = EpisodeSampler(data, SPEC).take(3)
    seen: list[tuple[int, int]] = []
    evaluate(model.method, tasks, build_bank(model, data, tasks), progress=lambda i, n: seen.append((i, n)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_tasks_of_several_sizes_keep_their_place(dataset: Path) -> None:
    """A list may mix ways; each row must land at its own task."""
    model, data = small_model(), open_dataset(dataset, "test")
    two, three = (EpisodeSampler(data, EpisodeSpec(way, 1, 3, 1, 3), seed=1).take(2) for way in (2, 3))
    mixed = type(two)((two[0], three[0], two[1], three[1]), two.spec, 1, two.manifest)
    bank = build_bank(model, data, mixed)
    rows, small, large = (evaluate(model.method, tasks, bank).rows for tasks in (mixed, two, three))
    for name in rows:
        assert rows[name].tolist() == [small[name][0], large[name][0], small[name][1], large[name][1]]


def test_without_unknown_classes_only_accuracy_is_measured(dataset: Path) -> None:
    found = evaluate_model(small_model(), str(dataset), spec=EpisodeSpec(2, 1, 3, 0, 0), tasks=3)
    assert list(found.summary()) == ["acc"]


def test_only_the_split_asked_for_is_opened(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(engine, "open_dataset", lambda name, split: opened.append(split) or open_dataset(name, split))
    evaluate_model(small_model(), str(dataset), split="val", spec=SPEC, tasks=2)
    assert opened == ["val"]


def test_the_seed_chooses_the_tasks(dataset: Path) -> None:
    first, again, other = (
        evaluate_model(small_model(), str(dataset), spec=SPEC, tasks=5, seed=seed) for seed in (0, 0, 1)
    )
    assert first.tasks == again.tasks != other.tasks
    assert all((first.rows[name] == again.rows[name]).all() for name in first.rows)


def test_a_model_that_diverged_is_refused(dataset: Path) -> None:
    model = small_model("gel")
    with torch.no_grad():
        next(iter(model.method.parameters())).fill_(float("nan"))
    with pytest.raises(DataError, match="must not hold NaN"):
        evaluate_model(model, str(dataset), spec=SPEC, tasks=2)

"""The tables of a comparison: what stands where, what may stand beside the paper's numbers, and those numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glocal.research.backbones import Backbone, build_backbone
from glocal.research.data.episodes import EpisodeSpec
from glocal.research.data.splits import published_split
from glocal.research.engine.checkpoint import TrainedModel
from glocal.research.engine.compare import Conditions
from glocal.research.engine.named_models import NamedModel
from glocal.research.methods import build_method
from glocal.research.metrics import METRICS, mean_ranks, paired_difference
from glocal.research.report.comparison import COMPARED, results
from glocal.research.report.published import CAPTION, published, published_beside

CIFAR = Conditions("data/cifar-fs", "test", published_split("cifar-fs")["test"], EpisodeSpec())
Rows = dict[str, dict[str, np.ndarray]]  # by model and metric


def taught(**train: Any) -> dict[str, Any]:
    """The recipe of a stage in which a method learned."""
    return {"stage": "train", "train": {"backbone": "fine-tuned", "shot": 1, "tasks": 60_000} | train}


TRAIN = taught()


@pytest.fixture(scope="module")
def full() -> Backbone:
    return build_backbone("resnet12", {"image_size": 32})


@pytest.fixture(scope="module")
def narrow() -> Backbone:
    return build_backbone("resnet12", {"width": (4, 4, 8, 8), "image_size": 32})


def made(
    backbone: Backbone,
    method: str = "protonet",
    name: str = "",
    *,
    settings: Mapping[str, Any] | None = None,
    recipe: Mapping[str, Any] = TRAIN,
    trained_on: str = "cifar-fs",
    encoder: str = "resnet12",
) -> NamedModel:
    record = {
        "backbone": {"name": encoder, "settings": {}},
        "method": {"name": method, "settings": dict(settings or {})},
        "recipe": {"method": {"name": method}, **recipe},
        "data": {"dataset": trained_on, "classes": ["apple", "baby"]},
    }
    head = build_method(method, backbone.channels, settings or {})
    return NamedModel(name or method, TrainedModel(backbone, head, record), head.score_name, "identity", "encoder")


class TestBesideThePaper:
    def test_the_published_number_of_the_same_method_data_shot_and_backbone(self, full: Backbone) -> None:
        one, five = (
            published_beside(made(full, "snatcher-f"), replace(CIFAR, spec=EpisodeSpec(shot=shot))) for shot in (1, 5)
        )
        assert one is not None
        assert five is not None
        assert (one.table, one.method, one.shot, five.shot) == ("table-1", "snatcher-f", 1, 5)
        assert five.values["acc"].mean > one.values["acc"].mean

    @pytest.mark.parametrize(
        ("settings", "score", "row"),
        [
            ({}, "E", "gel"),
            ({"variant": "energy-maps"}, "E_m", "gel/energy-maps"),
            ({"coefficients": "learnable"}, "E", "gel/learnable"),
            ({"variant": "pixel"}, "E_f", "gel/pixel"),
            ({"variant": "pixel"}, "delay", "gel/delay"),
        ],
    )
    def test_variants_of_gel_have_rows_of_their_own(
        self, full: Backbone, settings: dict[str, Any], score: str, row: str
    ) -> None:
        found = published_beside(replace(made(full, "gel", settings=settings), score=score), CIFAR)
        assert found is not None
        assert found.method == row

    def test_our_form_of_gel_has_no_published_number(self, full: Backbone) -> None:
        assert published_beside(made(full, "frozen-gel"), CIFAR) is None

    @pytest.mark.parametrize(
        "change",
        [
            {"split": "val"},
            {"spec": EpisodeSpec(way=20)},
            {"spec": EpisodeSpec(query=27, unknown_query=3)},
            {"support_views": 2},
            {"dataset": "tiered-64"},
        ],
    )
    def test_other_tasks_have_none(self, full: Backbone, change: dict[str, Any]) -> None:
        assert published_beside(made(full, "snatcher-f"), replace(CIFAR, **change)) is None
        assert published_beside(made(full, "snatcher-f", encoder="conv4"), CIFAR) is None


def rows(quality: float, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {metric: np.clip(quality + rng.normal(0, 0.1, 50), 0, 1) for metric in METRICS}


@pytest.fixture
def measured() -> Rows:
    return {"protonet": rows(0.6, 0), "gel": rows(0.7, 1), "oslo": rows(0.75, 2)}


def test_tables(full: Backbone, measured: Rows) -> None:
    models = [made(full), made(full, "gel"), made(full, "oslo")]
    inductive, transductive = results(models, measured, CIFAR, reference="protonet", seed=3, fingerprint="f" * 64)
    assert (inductive.transductive, transductive.transductive) == (False, True)
    assert [row.name for row in inductive.table.rows] == ["protonet", "gel"]
    assert [row.name for row in transductive.table.rows] == ["protonet", "oslo"], "the reference is a guest there"
    assert "not transductive, for reference" in transductive.table.rows[0].note
    proto, gel = inductive.table.rows
    assert proto.difference == {}
    assert set(gel.difference) == set(COMPARED)
    assert gel.difference["auroc"] == paired_difference(measured["gel"]["auroc"], measured["protonet"]["auroc"])
    ranks = mean_ranks([measured["protonet"]["acc"], measured["gel"]["acc"]])
    assert [proto.rank["acc"], gel.rank["acc"]] == ranks.tolist()
    assert gel.rank["acc"] < proto.rank["acc"]
    assert (proto.open_score, gel.open_score) == (models[0].score, "E")
    assert gel.published["auroc"].mean == pytest.approx(0.7867)
    assert transductive.table.rows[1].published == {}
    plain = inductive.to_json()
    assert (plain["tasks"], plain["seed"], plain["unknown_share"]) == (50, 3, 0.5)
    assert plain["rows"][1]["difference"]["acc"]["p_value"] == gel.difference["acc"].p_value


def test_the_caption_says_what_the_published_numbers_are(full: Backbone, narrow: Backbone, measured: Rows) -> None:
    frozen = taught(backbone="frozen", tasks=600)
    models = [made(full), made(narrow, "gel", recipe=frozen)]
    (found,) = results(models, measured, CIFAR, reference="gel", seed=0, fingerprint="f" * 64)
    assert found.table.caption.endswith(CAPTION)
    assert "4-4-8-8 channels, frozen backbone, 600 tasks" in found.table.rows[1].note
    assert found.table.rows[1].published["auroc"].mean == pytest.approx(0.7867)
    assert found.table.reference == "gel"
    assert found.table.rows[0].difference["acc"].mean < 0
    (found,) = results(models, measured, replace(CIFAR, dataset="mine"), reference="gel", seed=0, fingerprint="f" * 64)
    assert CAPTION not in found.table.caption


def test_a_model_that_knows_the_test_classes_and_tasks_without_unknown(full: Backbone, measured: dict[str, Any]):
    each = made(full, trained_on="data/cifar-fs")
    (found,) = results([each], measured, CIFAR, reference="protonet", seed=0, fingerprint="f" * 64)
    assert "was trained on 1 of these 20 classes" in found.table.rows[0].note
    assert found.table.rows[0].rank == {}, "alone there is nothing to rank"
    only = {name: {"acc": rows(0.6, i)["acc"]} for i, name in enumerate(("protonet", "gel"))}
    on = replace(CIFAR, spec=EpisodeSpec(5, 1, 15, 0, 0))
    (found,) = results([made(full), made(full, "gel")], only, on, reference="protonet", seed=0, fingerprint="f" * 64)
    assert list(found.table.metrics) == ["acc"]
    assert set(found.table.rows[1].difference) == {"acc"}


def value(*wanted: str | int, metric: str, backbone: str = "resnet12") -> float:
    """Of the row with this table, data set, method, shot and backbone."""
    found = {(row.table, row.dataset, row.method, row.shot, row.backbone): row for row in published()}
    return found[(*wanted, backbone)[:5]].values[metric].mean


@pytest.mark.parametrize(
    ("method", "numbers"),
    [
        ("protonet", (64.01, 51.81, 80.09, 60.39)),
        ("feat", (67.02, 57.01, 82.02, 63.18)),
        ("peeler", (65.86, 60.57, 80.61, 67.35)),
        ("snatcher-f", (67.02, 68.27, 82.02, 77.42)),
        ("snatcher-t", (66.60, 70.17, 81.77, 76.66)),
        ("snatcher-l", (67.60, 69.40, 82.36, 76.15)),
        ("att", (67.64, 71.35, 82.31, 79.85)),
        ("att-g", (68.11, 72.41, 83.12, 79.85)),
        ("rfdnet", (66.23, 71.37, 82.44, 80.31)),
        ("gel", (68.26, 73.70, 83.05, 82.29)),
    ],
)
def test_mini_imagenet_of_table_one(method, numbers):
    found = [
        value("table-1", "mini-imagenet", method, shot, metric=metric) for shot in (1, 5) for metric in ("acc", "auroc")
    ]
    assert found == pytest.approx([n / 100 for n in numbers])


def test_every_row_is_there_with_its_interval():
    tables = [row.table for row in published()]
    assert {t: tables.count(t) for t in set(tables)} == {
        "table-1": 56, "ablation": 24, "combine": 12, "coefficients": 18, "resnet-18": 12,
    }  # fmt: skip
    assert all(0 < i.half < 0.03 and 0.3 < i.mean < 1 for row in published() for i in row.values.values())

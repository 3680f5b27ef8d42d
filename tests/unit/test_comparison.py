"""The tables of a comparison: what stands where, what may stand beside the paper's numbers, and those numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glocal.research.backbones import Backbone, build_backbone
from glocal.research.data.episodes import EpisodeSpec, with_unknown_share
from glocal.research.data.splits import published_split
from glocal.research.engine.checkpoint import Model
from glocal.research.engine.named_models import NamedModel
from glocal.research.methods import build_method
from glocal.research.metrics import METRICS, mean_ranks, paired_difference
from glocal.research.report.comparable import Conditions, about, published, published_beside, why_not
from glocal.research.report.comparison import COMPARED, results, to_text
from glocal.research.report.training import published_tasks
from glocal.research.reproduce.plans import TABLES
from glocal.research.reproduce.scales import SCALES

CIFAR = Conditions("data/cifar-fs", "test", published_split("cifar-fs")["test"], EpisodeSpec())
Rows = dict[str, dict[str, np.ndarray]]  # by model and metric


def taught(**train: Any) -> dict[str, Any]:
    """The recipe of a stage in which a method learned."""
    return {"stage": "train", "train": {"backbone": "fine-tuned", "shot": 1, "tasks": 60_000} | train}


TRAIN = taught()
PRETRAINED = {"stage": "pretrain", "pretrain": {"epochs": 500}}
FEAT = taught(tasks=20_000) | {"method": {"name": "feat"}}


@pytest.fixture(scope="module")
def full() -> Backbone:
    return build_backbone("resnet12", image_size=32)


@pytest.fixture(scope="module")
def narrow() -> Backbone:
    return build_backbone("resnet12", width=(4, 4, 8, 8), image_size=32)


def made(
    backbone: Backbone,
    method: str = "protonet",
    name: str = "",
    *,
    settings: Mapping[str, Any] | None = None,
    recipe: Mapping[str, Any] = TRAIN,
    trained_on: str = "cifar-fs",
    encoder: str = "resnet12",
    chain: Sequence[Mapping[str, Any]] = (PRETRAINED, FEAT),
) -> NamedModel:
    record = {
        "backbone": {"name": encoder, "settings": {}},
        "method": {"name": method, "settings": dict(settings or {})},
        "recipe": {"method": {"name": method}, **recipe},
        "chain": list(chain),
        "data": {"dataset": trained_on, "classes": ["apple", "baby"]},
    }
    head = build_method(method, backbone.channels, settings or {})
    return NamedModel(name or method, Model(backbone, head, record), head.open_score, "identity", "encoder")


class TestBesideThePaper:
    def test_the_published_number(self, full: Backbone) -> None:
        found = published_beside(made(full, "snatcher-f"), CIFAR)
        assert found is not None
        assert (found.table, found.method, found.shot) == ("table-1", "snatcher-f", 1)
        five = published_beside(
            made(full, "snatcher-f", recipe=taught(shot=5)),
            replace(CIFAR, spec=EpisodeSpec(shot=5)),
        )
        assert five is not None
        assert five.shot == 5
        assert five.values["acc"].mean > found.values["acc"].mean

    def test_variants_of_gel_have_rows_of_their_own(self, full: Backbone) -> None:
        for settings, name in (({}, "gel"), ({"variant": "energy-maps"}, "gel/energy-maps")):
            found = published_beside(made(full, "gel", settings=settings), CIFAR)
            assert found is not None
            assert found.method == name
        learnable = published_beside(made(full, "gel", settings={"coefficients": "learnable"}), CIFAR)
        assert learnable is not None
        assert learnable.values["auroc"].mean == pytest.approx(0.7862)

    def test_imported_weights_are_the_papers(self, full: Backbone) -> None:
        each = made(full, "snatcher-f", recipe={"stage": "import", "dataset": "cifar-fs"})
        each.model.record.pop("data")
        assert why_not(each, CIFAR) == []
        each.model.record["recipe"] = {"stage": "import", "dataset": "mini-imagenet"}
        assert why_not(each, CIFAR) == ["trained on mini-imagenet"]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"recipe": taught(backbone="frozen")}, "frozen backbone (there fine-tuned)"),
            ({"method": "rfdnet"}, "fine-tuned backbone (there frozen)"),
            ({"recipe": taught(shot=5)}, "trained on 5-shot tasks"),
            ({"method": "gel", "recipe": taught(tasks=10)}, "trained on 10 tasks instead of 60,000"),
            ({"method": "att-g", "recipe": taught(tasks=10)}, "trained on 10 tasks instead of 39,000"),
            ({"recipe": taught(tasks=10), "chain": [PRETRAINED]}, "trained on 10 tasks instead of 20,000"),
            ({"recipe": taught(tasks=0), "chain": [PRETRAINED]}, "not meta-trained"),
            (
                {"chain": [PRETRAINED, {"stage": "pretrain", "pretrain": {"epochs": 1, "teacher_weight": 0.5}}]},
                "pre-trained with itself as teacher",
            ),
            ({"method": "gel", "chain": [PRETRAINED]}, "without the FEAT stage"),
            (
                {"method": "gel", "chain": [PRETRAINED, taught(tasks=9) | {"method": {"name": "feat"}}]},
                "FEAT learned from 9 tasks instead of 20,000",
            ),
            ({"method": "gel", "chain": [FEAT]}, "not pre-trained on cifar-fs"),
            (
                {"method": "peeler", "settings": {"variant": "gaussian"}},
                "variant gaussian was published on",
            ),
            ({"recipe": {"stage": "pretrain"}}, "not meta-trained"),
            ({"trained_on": "somewhere/embedded"}, "trained on embedded"),
            ({"settings": {"centre": True}}, "centred features"),
            ({"settings": {"open_score": "margin"}}, "open score margin instead of"),
            ({"encoder": "conv4"}, "conv4 backbone instead of resnet12"),
            ({"method": "oslo"}, "it has no oslo on cifar-fs"),
            ({"settings": {"adapter": True}}, "not the published form: adapter = True instead of False"),
            ({"method": "gel", "settings": {"m_known": -5.0}}, "not the published form: m_known = -5.0 instead of -1"),
            ({"method": "gel", "settings": {"top_k": 3}}, "not the published form: top_k = 3 instead of 1"),
            (
                {"method": "gel", "settings": {"distance": "cosine", "temperature": 0.1}},
                "not the published form: distance = cosine instead of sq-euclidean, temperature = 0.1 instead of 64.0",
            ),
            (
                {"method": "gel", "settings": {"distance": "cosine"}},
                "not the published form: distance = cosine instead of",
            ),
            ({"method": "frozen-gel", "settings": {"gentle_attention": True}}, "not the published form: gentle_att"),
            ({"method": "gel", "settings": {"reduce": True}}, "not the published form: reduce = True instead of False"),
            (
                {"chain": [{"stage": "pretrain", "pretrain": {"epochs": 13, "widen": "narrow"}}]},
                "pre-trained for 13 epochs, from narrow instead of 500",
            ),
            (
                {"chain": [{"stage": "pretrain", "pretrain": {"epochs": n, "widen": None}} for n in (13, 6)]},
                "pre-trained for 19 epochs instead of 500",
            ),
            (
                {"chain": [{"stage": "pretrain", "pretrain": {"epochs": 500}, "data": {"holdout": 0.1}}]},
                "pre-trained without 10 % of the base pictures",
            ),
            ({"method": "att-g", "settings": {"rows": "means"}}, "not the published form: rows = means instead of"),
        ],
    )
    def test_reasons_that_lie_in_the_model(self, full: Backbone, change: dict[str, Any], reason: str) -> None:
        each = made(full, **({"method": "snatcher-f"} | change))
        (found,) = why_not(each, CIFAR)
        assert found.startswith(reason)
        assert published_beside(each, CIFAR) is None

    def test_published_settings_and_the_frozen_backbone_of_rfdnet_speak_not_against_it(self, full: Backbone) -> None:
        regularised = {"temperature": 64.0, "contrast_weight": 0.01, "contrast_temperature": 64.0}
        for method, settings in (
            ("feat", regularised),
            ("gel", {"temperature": 64.0, "top_k": 1}),
            ("gel", {"variant": "energy-maps", "top_k": 7}),  # of pixels, which it does not compare
            ("frozen-gel", {"adapter": False}),
            ("att-g", {"negative": "mlp"}),
        ):
            assert why_not(made(full, method, settings=settings), CIFAR) == [], method
        frozen = taught(backbone="frozen")
        assert why_not(made(full, "rfdnet", recipe=frozen), CIFAR) == []
        assert why_not(made(full, "att-g", recipe=frozen), CIFAR) == ["frozen backbone (there fine-tuned)"]

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"split": "val"}, "other classes than the published test split"),
            ({"classes": ("a", "b")}, "other classes than the published test split"),
            ({"spec": EpisodeSpec(way=20)}, "5 + 5 classes with 15 queries of each and 1 or 5 shots"),
            ({"spec": EpisodeSpec(query=27, unknown_query=3)}, "5 + 5 classes"),
            ({"support_views": 2}, "it shows each support picture once"),
        ],
    )
    def test_reasons_that_lie_in_the_tasks(self, full: Backbone, change: dict[str, Any], reason: str) -> None:
        (found,) = why_not(made(full, "snatcher-f"), replace(CIFAR, **change))
        assert reason in found

    def test_what_one_score_has_learned_is_the_others_and_stages_alike_add_up(self, full: Backbone) -> None:
        assert why_not(made(full, "snatcher-f", recipe=taught(tasks=0)), CIFAR) == []
        assert why_not(made(full, "att-g", recipe=taught(tasks=0)), CIFAR) == ["not meta-trained"]
        halves = [
            taught(tasks=30_000, backbone=kind) | {"method": {"name": "gel"}} for kind in ("fine-tuned", "frozen")
        ]
        for half, reasons in zip(halves, ([], ["trained on 30,000 tasks instead of 60,000"]), strict=True):
            again = made(full, "gel", recipe=halves[0], chain=[PRETRAINED, FEAT, half])
            assert why_not(again, CIFAR) == reasons

    def test_of_a_start_that_was_imported_nothing_is_known(self, full: Backbone) -> None:
        imported = [{"stage": "import", "dataset": "cifar-fs"}]
        assert why_not(made(full, "gel", chain=imported), CIFAR) == []
        assert why_not(made(full, "snatcher-f", recipe=taught(tasks=0), chain=imported), CIFAR) == []
        frozen = made(full, "gel", recipe=taught(backbone="frozen"), chain=imported)
        assert why_not(frozen, CIFAR) == ["frozen backbone (there fine-tuned)"]

    def test_a_temperature_that_follows_from_the_distance_is_not_named(self, full: Backbone) -> None:
        (found,) = why_not(made(full, "gel", settings={"distance": "cosine"}), CIFAR)
        assert "temperature" not in found

    def test_delay_combine_is_the_model_of_the_pixel_branch_under_another_score(self, full: Backbone) -> None:
        each = replace(made(full, "gel", settings={"variant": "pixel"}), score="delay")
        assert why_not(each, CIFAR) == []
        found = published_beside(each, CIFAR)
        assert found is not None
        assert (found.table, found.method) == ("combine", "gel/delay")

    def test_each_peeler_was_published_on_one_backbone(self, full: Backbone) -> None:
        mini = replace(CIFAR, dataset="mini-imagenet", classes=published_split("mini-imagenet")["test"])
        for variant, encoder, said in (("prototype", "resnet18", True), ("gaussian", "resnet18", False)):
            each = made(full, "peeler", settings={"variant": variant}, encoder=encoder, trained_on="mini-imagenet")
            assert any("published on resnet12 alone" in reason for reason in why_not(each, mini)) == said

    def test_the_paper_scale_trains_for_as_long_as_was_published(self) -> None:
        scale = SCALES["paper"]
        for dataset in scale.datasets:
            for line in TABLES["table-1"].lines(scale, dataset, 1):
                stages = [step.resolved(start="?") for step in line.run.chain()]
                recipe = [stage for stage in stages if stage.stage == "train" and stage.train.tasks][-1]
                full = recipe.method.settings.get("variant") == "gaussian"
                usual = published_tasks("peeler-full" if full else recipe.method.name, dataset)
                assert recipe.train.tasks == usual, (dataset, line.label)

    def test_a_narrow_backbone_and_other_data(self, narrow: Backbone) -> None:
        widths = "narrow backbone (4-4-8-8 channels instead of 64-160-320-640)"
        assert why_not(made(narrow, "snatcher-f"), CIFAR) == [widths]
        on = replace(CIFAR, dataset="tiered-64.zip", classes=())
        assert why_not(made(narrow, "snatcher-f"), on) == ["it has no results on tiered-64"]


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
    assert "not comparable with the paper: it has no oslo on cifar-fs" in transductive.table.rows[1].note
    plain = inductive.to_json()
    assert (plain["tasks"], plain["seed"], plain["unknown_share"]) == (50, 3, 0.5)
    assert plain["rows"][1]["difference"]["acc"]["p_value"] == gel.difference["acc"].p_value


def test_shares_of_unknown_queries_have_titles_of_their_own(narrow: Backbone, measured: Rows) -> None:
    rows = {"protonet": measured["protonet"]}
    titles = []
    for share in (0.1, 0.5, 0.9):
        on = replace(CIFAR, spec=with_unknown_share(EpisodeSpec(), share))
        (found,) = results([made(narrow)], rows, on, reference="protonet", seed=0, fingerprint="f" * 64)
        titles.append(found.table.title)
    assert titles[0].endswith("5 unknown classes, 10 % of the queries unknown")
    assert titles[1].endswith("5 unknown classes")
    assert titles[2].endswith("90 % of the queries unknown")


def test_what_all_rows_share_stands_under_the_table(narrow: Backbone, measured: Rows) -> None:
    frozen = taught(backbone="frozen")
    models = [made(narrow), made(narrow, "gel", recipe=frozen)]
    (found,) = results(models, measured, CIFAR, reference="gel", seed=0, fingerprint="f" * 64)
    assert "Not comparable with the paper: narrow backbone" in found.table.caption
    assert found.table.rows[1].note.count("narrow") == 0
    assert "frozen backbone (there fine-tuned)" in found.table.rows[1].note
    assert found.table.reference == "gel"
    assert found.table.rows[0].difference["acc"].mean < 0


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


def test_formats(full: Backbone, measured: Rows) -> None:
    models = [made(full), made(full, "gel", "my_gel"), made(full, "oslo")]
    measured["my_gel"] = measured.pop("gel")
    found = results(models, measured, CIFAR, reference="protonet", seed=0, fingerprint="f" * 64)
    table = list(csv.DictReader(io.StringIO(to_text("csv", found))))
    assert [(line["transductive"], line["name"]) for line in table] == [
        ("0", "protonet"), ("0", "my_gel"), ("1", "protonet"), ("1", "oslo"),
    ]  # fmt: skip
    assert float(table[1]["auroc"]) == measured["my_gel"]["auroc"].mean()
    assert float(table[1]["auroc_diff_p"]) == found[0].table.rows[1].difference["auroc"].p_value
    assert float(table[1]["auroc_published"]) == pytest.approx(0.7867)
    assert table[3]["auroc_published"] == ""
    assert "transductive: queries see each other" in to_text("markdown", found)


def test_what_is_said_about_a_model(full: Backbone) -> None:
    assert about(made(full)) == "fine-tuned backbone"
    assert about(made(full, "gel", "run-7", settings={"centre": True})) == "gel, centred features, fine-tuned backbone"
    assert about(made(full, recipe={"stage": "pretrain"})) == "pre-trained backbone, no meta-training"
    assert about(made(full, recipe={"stage": "none"})) == ""
    assert about(made(full, "snatcher-l", recipe={"stage": "none"})) == "reconstruction"
    assert about(made(full, "peeler", settings={"variant": "gaussian"}, recipe={"stage": "none"})) == ""


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


@pytest.mark.parametrize(
    ("row", "metric", "number"),
    [
        (("table-1", "cifar-fs", "gel/energy-maps", 1), "auroc", 0.7943),
        (("ablation", "tiered-imagenet", "gel/baseline", 5), "fpr95", 0.6891),
        (("combine", "cifar-fs", "gel/delay", 5), "auroc", 0.8601),
        (("coefficients", "cifar-fs", "gel/learnable", 5), "auroc", 0.8729),
        (("table-1", "mini-imagenet", "peeler", 5, "resnet18"), "acc", 0.7508),
        (("resnet-18", "tiered-imagenet", "rfdnet", 5, "resnet18"), "auroc", 0.8219),
    ],
)
def test_other_tables(row, metric, number):
    assert value(*row, metric=metric) == pytest.approx(number)


def test_every_row_is_there_with_its_interval():
    tables = [row.table for row in published()]
    assert {t: tables.count(t) for t in set(tables)} == {
        "table-1": 56, "ablation": 24, "combine": 12, "coefficients": 18, "resnet-18": 12,
    }  # fmt: skip
    assert all(0 < i.half < 0.03 and 0.3 < i.mean < 1 for row in published() for i in row.values.values())

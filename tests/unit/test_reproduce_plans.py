"""The plan of a reproduction: every run parses, no number of the paper is left out, findings follow from intervals."""

from __future__ import annotations

from functools import cache

import pytest

from glocal.research.engine.recipe import Recipe, load_recipe
from glocal.research.methods import build_method
from glocal.research.report.published import published
from glocal.research.reproduce.measurement import published_row
from glocal.research.reproduce.plans import ALL, SHOTS, SWEEPS, TABLES
from glocal.research.reproduce.reproduction import asked_for, runs_of
from glocal.research.reproduce.runs import Run
from glocal.research.reproduce.scales import SCALES
from refusal import refused


@cache
def every_recipe(scale: str) -> list[Recipe]:
    """Of every run and what it starts from, each once."""
    chosen = SCALES[scale]
    steps = {step for run in runs_of(asked_for(["all"], chosen), chosen, chosen.datasets) for step in run.chain()}
    return [step.resolved(start="somewhere" if isinstance(step.init, Run) else None) for step in steps]


@pytest.mark.parametrize("scale", SCALES)
def test_every_run_has_a_recipe_that_parses(scale: str) -> None:
    assert every_recipe(scale)
    for recipe in every_recipe(scale):
        assert recipe.data.dataset in SCALES[scale].datasets
        if recipe.stage == "train":
            assert recipe.train.shot == recipe.validation.shot


def test_every_published_row_stands_in_a_table_of_the_paper_scale() -> None:
    scale = SCALES["paper"]
    shown = {
        id(published_row(plan, line, dataset, shot))
        for plan in TABLES.values()
        for dataset in scale.datasets
        for shot in SHOTS
        for line in plan.lines(scale, dataset, shot)
    }
    assert [row for row in published() if id(row) not in shown] == []


def test_the_paper_scale_has_three_stages_before_gel_and_its_published_settings() -> None:
    run = SCALES["paper"].gel("mini-imagenet", 1)
    assert [step.recipe for step in run.chain()] == [
        "mini-imagenet-pretrain",
        "mini-imagenet-feat-1shot",
        "mini-imagenet-gel-paper-1shot",
    ]
    assert SWEEPS["figure-topk"].own(SCALES["paper"], "mini-imagenet") == 10
    wide = SCALES["paper"].on_resnet18("gel", "mini-imagenet", 1).chain()[0].resolved()
    assert wide.backbone is not None
    assert wide.backbone.settings == {"image_size": 84, "resize": 92}
    halved = {name: SCALES["paper"].on_resnet18("gel", name, 1).overrides for name in ("mini-imagenet", "cifar-fs")}
    assert halved == {"mini-imagenet": ("method.reduce=true",), "cifar-fs": ()}


def test_the_settings_of_the_authors_program() -> None:
    paper, authors = SCALES["paper"], SCALES["paper"].set_as("authors")
    pretrained, feat, gel = (step.resolved(start="?") for step in authors.gel("cifar-fs", 1).chain())
    assert pretrained.augment.crop_padding == 4
    assert (feat.method.name, feat.augment.crop_padding, feat.augment.flip) == ("feat", 0, False)
    # 40,000 encodings, of which an epoch of 100 steps has 100 and its validation 600.
    assert feat.train.dropblock_ramp == round(40_000 / 700 * 100)
    assert (gel.optimizer.gamma, gel.train.unknown_support) == (0.5, True)
    assert paper.gel("cifar-fs", 1).chain()[1].resolved(start="?").augment.flip
    directly = paper.gel_without_feat("cifar-fs", 1)
    assert directly is not None
    assert [step.recipe for step in directly.chain()] == ["cifar-fs-pretrain", "cifar-fs-gel-paper-1shot"]
    with refused("recipe", "--settings authors", "cpu"):
        SCALES["cpu"].set_as("authors")


def test_peeler_as_first_published_stands_beside_its_row_of_miniimagenet() -> None:
    scale, plan = SCALES["paper"], TABLES["table-1"]
    for shot, acc, auroc in ((1, 58.31, 61.66), (5, 75.08, 69.85)):
        (line,) = [each for each in plan.lines(scale, "mini-imagenet", shot) if each.label == "PEELER"]
        recipe, row = line.run.resolved(), published_row(plan, line, "mini-imagenet", shot)
        assert recipe.backbone is not None
        assert (recipe.backbone.name, recipe.backbone.settings["image_size"]) == ("resnet18", 84)
        assert (recipe.method.settings["variant"], recipe.train.shot) == ("gaussian", shot)
        assert row is not None
        assert [round(100 * row.values[metric].mean, 2) for metric in ("acc", "auroc")] == [acc, auroc]
    assert not [each for each in plan.lines(scale, "cifar-fs", 1) if each.label == "PEELER"]


def test_overrides_reach_every_recipe_or_those_of_one_stage() -> None:
    scale = SCALES["paper"].set_as(
        "paper", ["speed.precision=bfloat16", "pretrain:pretrain.epochs=3", "data.workers=8"]
    )
    pretrained, feat, gel = (step.resolved(start="?") for step in scale.gel("cifar-fs", 1).chain())
    for recipe in (pretrained, feat, gel):
        assert (recipe.speed.precision, recipe.data.workers) == ("bfloat16", 8)
    assert (pretrained.pretrain.epochs, gel.pretrain.epochs) == (3, 500)
    assert SCALES["paper"].gel("cifar-fs", 1).resolved(start="?").speed.precision == "float32"


@pytest.mark.parametrize("shot", SHOTS)
def test_the_cpu_scale_has_gel_to_the_letter_too(shot: int) -> None:
    """After a FEAT stage without an adapter, on maps as they are; the data and length are those of the other rows."""
    scale, letter = SCALES["cpu"], load_recipe(f"cifar-fs-gel-paper-{shot}shot", ["init=?"]).method
    published = TABLES["ablation"].lines(scale, "cifar-fs", shot)[-1].run
    maps = scale.gel("cifar-fs", shot, "energy-maps")
    for run, variant in ((published, "ahead"), (maps, "energy-maps")):
        recipe, feat = run.resolved(start="?"), run.init
        assert recipe.method.name == letter.name
        head, own = (build_method("gel", 640, dict(each.settings)) for each in (recipe.method, letter))
        told = [(e.map_temperature, e.margins, e.energy_weight, e.top_k) for e in (head, own)]
        assert told[0] == told[1]
        assert head.temperature == 32.0  # of 192 channels
        assert recipe.method.settings["variant"] == variant
        assert recipe.train == scale.gel("cifar-fs", shot).resolved(start="?").train
        assert isinstance(feat, Run)
        assert feat.resolved().method.settings["adapter"] is False
        assert feat.resolved().init == "cifar-fs-cpu/backbone"


def test_sweeps_hold_the_setting_of_the_tables_once() -> None:
    for name, scale in SCALES.items():
        for dataset in scale.datasets:
            for figure, sweep in SWEEPS.items():
                points = sweep.lines(scale, dataset)
                own = [x for x, line in points if line.run == scale.gel(dataset, 1)]
                assert own == [sweep.own(scale, dataset)], (name, dataset, figure)
                assert [x for x, _ in points] == sorted({x for x, _ in points})


def test_what_a_scale_does_not_have_is_refused_with_the_way_out() -> None:
    assert "resnet-18" not in asked_for(["all"], SCALES["cpu"])
    assert asked_for(["all"], SCALES["embedded"]) == list(ALL)
    with refused("recipe", "resnet-18 is not part of the scale cpu", "--scale paper"):
        asked_for(["resnet-18"], SCALES["cpu"])
    with refused("no-such-table", "'tabel-1'"):
        asked_for(["tabel-1"], SCALES["cpu"])
    with refused("recipe", "tiered-64, cifar-fs, got 'mini-imagenet'"):
        SCALES["cpu"].check("mini-imagenet")


def test_the_three_scores_of_each_run_are_read_off_runs_that_the_ablation_has() -> None:
    scale = SCALES["cpu"]
    lines = {shot: TABLES["scores"].lines(scale, "cifar-fs", shot) for shot in (1, 5)}
    for shot, rows in lines.items():
        assert [line.score for line in rows] == [
            *("E_m", "distance", "E_m+distance"),
            *("E_f", "distance", "delay"),
            *("E", "distance", "E+distance"),
        ]
        assert TABLES["scores"].reference in {line.label for line in rows}
        assert {line.run for line in rows} <= {line.run for line in TABLES["ablation"].lines(scale, "cifar-fs", shot)}
        for line in rows:
            method = line.run.resolved(start="?").method
            assert line.score in build_method(method.name, 64, method.settings).score_names
    by_score = {line.score: line.published for line in lines[1] if line.published}
    assert by_score == {"E_m": "gel/energy-maps", "E_f": "gel/pixel", "delay": "gel/delay", "E": "gel/ahead"}

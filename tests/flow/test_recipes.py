"""The shipped recipes: every one parses; those of the paper say what was published, and their chains run."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from typer.testing import CliRunner

from glocal.cli.main import app
from glocal.research.backbones import build_backbone
from glocal.research.engine.checkpoint import LAST, load_model, read_checkpoint
from glocal.research.engine.recipe import Recipe, load_recipe
from glocal.research.engine.run_folder import METRICS
from glocal.research.methods import METHODS
from tiny_runs import make_dataset

SHOTS = (1, 5)


class Pictures(NamedTuple):
    size: int
    resize: int | None
    block: int  # side of a dropped block, which is the side of the last map


# Typed from gel-spec (sections 2 and 4) and peer-methods (FEAT), not from the recipes.
PICTURES = {
    "mini-imagenet": Pictures(84, 92, 5),
    "tiered-imagenet": Pictures(84, None, 5),
    "cifar-fs": Pictures(32, 40, 2),
}
# FEAT's contrast weight, temperature and contrast temperature, and GEL's top-k.
PUBLISHED = {
    ("mini-imagenet", 1): ((0.01, 64, 64), 10),
    ("mini-imagenet", 5): ((0.1, 64, 32), 1),
    ("tiered-imagenet", 1): ((0.1, 64, 64), 2),
    ("tiered-imagenet", 5): ((0.1, 32, 64), 5),
    ("cifar-fs", 1): ((0.01, 64, 64), 1),  # FEAT's are not published, mini's
    ("cifar-fs", 5): ((0.1, 64, 32), 1),
}

PAPER = sorted(
    [f"{dataset}-pretrain" for dataset in PICTURES]
    + [f"{dataset}-feat-{shot}shot" for dataset, shot in PUBLISHED]
    + [
        f"{dataset}-gel-{kind}-{shot}shot"
        for dataset, shot in PUBLISHED
        for kind in ("paper", "authors", "without-pixels")
    ]
)
CPU = [
    f"{dataset}-cpu-{kind}{shot}shot"
    for dataset in ("cifar-fs", "tiered-64")
    for kind in ("feat-", "")
    for shot in SHOTS
]
WIDTH = (4, 4, 8, 8)


def parsed(name: str) -> Recipe:
    """As ``--init earlier`` reads it."""
    return load_recipe(name, ["init=earlier"])


@pytest.mark.parametrize(
    ("recipe", "model"),
    [
        ("cifar-fs-cpu-pretrain", "cifar-fs-cpu/backbone"),
        ("tiered-64-cpu-pretrain", "tiered-64-cpu/backbone"),
        ("demo-protonet", "embedded-protonet"),
    ],
)
def test_a_shipped_model_and_its_recipe_prepare_pictures_alike(recipe: str, model: str):
    """To the last digit, whatever the defaults of the backbone are today: training it again gives it again."""
    component = load_recipe(recipe).backbone
    assert component is not None
    assert build_backbone(component.name, component.settings).preprocess == load_model(model).backbone.preprocess


@pytest.mark.parametrize(("dataset", "shot"), PUBLISHED)
def test_methods_are_set_as_published(dataset: str, shot: int) -> None:
    """What a recipe says itself stands in tests/reference/recipes.json; here are the defaults of its method too."""
    of_feat, top_k = PUBLISHED[dataset, shot]
    feat = METHODS["feat"](640, **parsed(f"{dataset}-feat-{shot}shot").method.settings)
    assert (feat.contrast_weight, feat.temperature, feat.contrast_temperature) == of_feat
    for kind in ("paper", "authors"):
        gel = METHODS["gel"](640, **parsed(f"{dataset}-gel-{kind}-{shot}shot").method.settings)
        assert (gel.score_name, gel.variant.trained, gel.coefficient.kind, gel.top_k) == ("E", "E", "fixed", top_k)
        assert (gel.distance, gel.temperature, gel.energy_weight, gel.margins) == ("sq-euclidean", 64, 0.1, (-1, 1))
        assert (gel.attend.dropout.p, gel.attend.attention_dropout.p) == (0.5, 0.1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small stand-in for every dataset.  Its test split does not exist: training has no need of it."""
    home = tmp_path_factory.mktemp("recipes")
    for dataset, size in {"tiered-64": 64, **{name: pictures.size for name, pictures in PICTURES.items()}}.items():
        make_dataset(home / dataset, size=size, per_class=8, splits={"train": 10, "val": 10})
    return home


@pytest.fixture(autouse=True)
def own_data(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_DATA", str(home))


def before(name: str) -> str | None:
    """The recipe whose run a recipe starts from."""
    if on_a_cpu := re.fullmatch(r"(.+-cpu)-(feat-)?(\dshot)", name):
        family, feat, shot = on_a_cpu.groups()
        return f"{family}-pretrain" if feat or family == "cifar-fs-cpu" else f"{family}-feat-{shot}"
    dataset, _, stage = name.partition("-gel-")
    if stage:
        return f"{dataset}-feat-{stage.rpartition('-')[2]}"
    dataset, _, stage = name.partition("-feat-")
    return f"{dataset}-pretrain" if stage else None


def run(home: Path, name: str) -> Path:
    """The run of two steps of a recipe, and of what it starts from, unless they ran already.

    Only what costs time is changed: the width, and how many steps, queries and validation tasks there are.
    """
    out, init = home / "runs" / name, before(name)
    if out.exists():
        return out
    cheap = ["validation.tasks=2", "validation.query=3", "data.part=all"]
    if init is None:
        start, cheap = [], [*cheap, f"backbone.width={list(WIDTH)}", "pretrain.epochs=1", "pretrain.batch_size=40"]
        cheap += ["validation.way=5", "validation.unknown_way=5"]  # the stand-ins have ten classes
    else:
        start, cheap = ["--init", str(run(home, init))], [*cheap, "train.tasks=2", "train.query=3"]
    options = [part for override in cheap for part in ("--set", override)]
    stage = "pretrain" if init is None else "train"
    said = CliRunner().invoke(app, [stage, name, "--out", str(out), "--device", "cpu", *start, *options])
    assert said.exit_code == 0, f"{said.output}\n{said.exception!r}"
    return out


@pytest.mark.parametrize(
    "name", [name if name.startswith("cifar") else pytest.param(name, marks=pytest.mark.long) for name in PAPER]
)
def test_a_recipe_of_the_paper_runs(home: Path, name: str):
    out, init = run(home, name), before(name)
    dataset, stage = re.fullmatch(r"(.+)-(pretrain|feat|gel).*", name).groups()
    model, pictures = load_model(out), PICTURES[dataset]
    side = pictures.size // 16
    assert model.backbone.stage_channels == WIDTH
    assert (model.backbone.preprocess.size, model.backbone.preprocess.resize) == (pictures.size, pictures.resize)
    assert [model.backbone.layer3.drop.block_size, model.backbone.layer4.drop.block_size] == [pictures.block] * 2
    assert model.backbone(torch.zeros(1, 3, pictures.size, pictures.size)).shape == (1, WIDTH[-1], side, side)

    tensors, record = read_checkpoint(out / LAST)
    assert record["step"] == 2
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    (line,) = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
    assert line["step"] == 2
    assert all(math.isfinite(line[f"val_{metric}"]) for metric in ("acc", "auroc", "f1", "fpr95", "aupr"))
    methods = [earlier["method"]["name"] for earlier in record["chain"]]
    assert methods == {"pretrain": [], "feat": ["protonet"], "gel": ["protonet", "feat"]}[stage]
    if init is not None:
        taken_over, _ = read_checkpoint(home / "runs" / init / LAST)
        shared = [key for key in tensors if key in taken_over and key.endswith("weight") and "momentum" not in key]
        assert "backbone.layer1.conv1.weight" in shared
        assert ("method.attend.fc.weight" in shared) == (stage == "gel")
        shared.remove("extra.base.weight")  # the base classifier is carried along and no longer learns
        assert torch.equal(tensors["extra.base.weight"], taken_over["extra.base.weight"])
        for key in shared:  # two steps at a small rate: moved, and not far
            moved = (tensors[key] - taken_over[key]).norm() / taken_over[key].norm()
            assert 0 < moved < 0.1, key


@pytest.mark.parametrize("name", CPU)
def test_a_recipe_for_a_cpu_runs(home: Path, name: str):
    earlier = before(name)
    shipped = {"pretrain": "backbone", "feat-1shot": "snatcher-f-1shot", "feat-5shot": "snatcher-f-5shot"}
    assert load_recipe(name).init == f"{earlier.partition('-cpu-')[0]}-cpu/{shipped[earlier.partition('-cpu-')[2]]}"
    recipe, model = parsed(name), load_model(run(home, name))
    assert (recipe.data.part, recipe.train.backbone) == ("held-out", "frozen")
    assert [recipe.train.shot, recipe.validation.shot] == [int(name[-5])] * 2
    assert model.backbone.preprocess.size == {"cifar-fs": 32, "tiered-64": 64}[recipe.data.dataset]
    start = load_model(run(home, earlier))
    assert model.backbone.fingerprint() == start.backbone.fingerprint()
    chain = [one["method"]["name"] for one in model.record["chain"]]
    assert chain == (["protonet"] if earlier.endswith("pretrain") else ["protonet", "snatcher-f"])

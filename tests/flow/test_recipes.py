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
    crop_padding: int
    block: int  # side of a dropped block, which is the side of the last map


class Pretraining(NamedTuple):
    epochs: int
    decays: tuple[int, ...]  # epochs


class Feat(NamedTuple):
    contrast_weight: float
    temperature: float
    contrast_temperature: float
    decay_epochs: int  # of 100 tasks


# Typed from gel-spec (sections 2 and 4) and peer-methods (FEAT), not from the recipes.
PICTURES = {
    "mini-imagenet": Pictures(84, 92, 8, 5),
    "tiered-imagenet": Pictures(84, None, 8, 5),
    "cifar-fs": Pictures(32, 40, 4, 2),
}
NORMALISATION = {
    "mean": [value / 255 for value in (120.39586422, 115.59361427, 104.54012653)],
    "std": [value / 255 for value in (70.68188272, 68.27635443, 72.54505529)],
}
PRETRAINING = {
    "mini-imagenet": Pretraining(500, (350, 400, 440, 460, 480)),
    "tiered-imagenet": Pretraining(600, (400, 500, 550, 580)),
    "cifar-fs": Pretraining(500, (350, 400, 440, 460, 480)),  # not published, mini's
}
FEAT = {
    ("mini-imagenet", 1): Feat(0.01, 64, 64, 40),
    ("mini-imagenet", 5): Feat(0.1, 64, 32, 40),
    ("tiered-imagenet", 1): Feat(0.1, 64, 64, 20),
    ("tiered-imagenet", 5): Feat(0.1, 32, 64, 40),
    ("cifar-fs", 1): Feat(0.01, 64, 64, 40),  # not published, mini's
    ("cifar-fs", 5): Feat(0.1, 64, 32, 40),
}
TOP_K = {
    ("mini-imagenet", 1): 10,
    ("mini-imagenet", 5): 1,
    ("tiered-imagenet", 1): 2,
    ("tiered-imagenet", 5): 5,
    ("cifar-fs", 1): 1,
    ("cifar-fs", 5): 1,
}
AUTHORS_TASKS = {"mini-imagenet": 60_000, "tiered-imagenet": 120_000, "cifar-fs": 60_000}
AUTHORS_LR = {"mini-imagenet": 1e-3, "tiered-imagenet": 2e-3, "cifar-fs": 1e-3}  # the backbone's is a tenth

PAPER = sorted(
    [f"{dataset}-pretrain" for dataset in PICTURES]
    + [f"{dataset}-feat-{shot}shot" for dataset, shot in FEAT]
    + [f"{dataset}-gel-{kind}-{shot}shot" for dataset, shot in TOP_K for kind in ("paper", "authors", "without-pixels")]
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


def decays(recipe: Recipe, length: int) -> list[float]:
    """Where the rate falls, in tasks or epochs of a run of ``length``."""
    assert recipe.optimizer.schedule == "steps"
    return [milestone * length for milestone in recipe.optimizer.milestones]


def check_common(recipe: Recipe, dataset: str, lr: float, lr_backbone: float | None, gamma: float) -> None:
    """SGD nesterov 0.9, weight decay 5e-4, in every stage of every dataset."""
    optimizer = recipe.optimizer
    assert recipe.data.model_dump() == {
        "dataset": dataset,
        "workers": 2,
        "skip_bad": False,
        "holdout": 0.0,
        "part": "all",
    }
    assert (optimizer.lr, optimizer.lr_backbone, optimizer.gamma) == (lr, lr_backbone, gamma)
    assert (optimizer.momentum, optimizer.weight_decay, optimizer.clip) == (0.9, 5e-4, None)


def check_tasks(recipe: Recipe, shot: int, unknown_way: int = 5) -> None:
    """One 5-way task per step, 15 queries per class; validation looks at tasks like these with 5 unknown classes."""
    train, validation = recipe.train, recipe.validation
    assert (recipe.stage, train.backbone, train.tasks_per_step) == ("train", "fine-tuned", 1)
    assert (train.way, train.shot, train.query, train.unknown_way) == (5, shot, 15, unknown_way)
    assert (validation.way, validation.shot, validation.query, validation.unknown_way) == (5, shot, 15, 5)


def check_augmentation(
    recipe: Recipe, crop_padding: int, *, flip: bool, jitter: float = 0, rotate: str = "none"
) -> None:
    found = recipe.augment.model_dump()
    assert found == {"crop_padding": crop_padding, "crop_size": None, "flip": flip, "jitter": jitter, "rotate": rotate}


@pytest.mark.parametrize("dataset", PICTURES)
def test_pretraining_is_set_as_published(dataset: str):
    recipe, pictures, published = parsed(f"{dataset}-pretrain"), PICTURES[dataset], PRETRAINING[dataset]
    check_common(recipe, dataset, lr=0.1, lr_backbone=None, gamma=0.1)
    check_augmentation(recipe, pictures.crop_padding, flip=True, jitter=0.4, rotate="four")
    assert recipe.stage == "pretrain"
    assert (recipe.pretrain.epochs, recipe.pretrain.batch_size) == (published.epochs, 128)
    assert decays(recipe, published.epochs) == pytest.approx(published.decays, abs=1e-3)
    settings = {"image_size": pictures.size, "resize": pictures.resize, **NORMALISATION}
    assert recipe.backbone is not None
    assert recipe.backbone.name == "resnet12"
    assert recipe.backbone.settings == {key: value for key, value in settings.items() if value is not None}
    validation = recipe.validation
    assert (validation.choose, validation.way, validation.unknown_way, validation.tasks) == ("acc", 16, 0, 600)


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


@pytest.mark.parametrize(("dataset", "shot"), FEAT)
def test_feat_is_set_as_published(dataset: str, shot: int):
    recipe, published = parsed(f"{dataset}-feat-{shot}shot"), FEAT[dataset, shot]
    check_common(recipe, dataset, lr=2e-3, lr_backbone=2e-4, gamma=0.5)
    check_augmentation(recipe, PICTURES[dataset].crop_padding, flip=True)  # not published; as in GEL's paper recipe
    check_tasks(recipe, shot, unknown_way=0)
    assert recipe.train.tasks == 200 * 100
    step = 100 * published.decay_epochs
    assert decays(recipe, recipe.train.tasks) == pytest.approx(range(step, 20_000, step))
    method = METHODS[recipe.method.name](640, **recipe.method.settings)
    assert (recipe.method.name, method.score_name) == ("feat", "entropy")
    found = (method.contrast_weight, method.temperature, method.contrast_temperature)
    assert found == published[:3]


@pytest.mark.parametrize("kind", ["paper", "authors"])
@pytest.mark.parametrize(("dataset", "shot"), TOP_K)
def test_gel_is_set_as_published(dataset: str, shot: int, kind: str):
    recipe = parsed(f"{dataset}-gel-{kind}-{shot}shot")
    if kind == "paper":
        tasks = 60_000
        check_common(recipe, dataset, lr=1e-3, lr_backbone=1e-4, gamma=0.1)
        check_augmentation(recipe, PICTURES[dataset].crop_padding, flip=True)
    else:
        tasks, lr = AUTHORS_TASKS[dataset], AUTHORS_LR[dataset]
        check_common(recipe, dataset, lr=lr, lr_backbone=pytest.approx(lr / 10), gamma=0.5)
        check_augmentation(recipe, 0, flip=False)
    check_tasks(recipe, shot)
    assert recipe.train.tasks == tasks
    assert decays(recipe, tasks) == pytest.approx(range(12_000, tasks, 12_000))
    assert (recipe.validation.choose, recipe.validation.tasks) == ("auroc", 600)
    beside = (recipe.train.dropblock_ramp, recipe.train.unknown_support, recipe.train.norm_momentum)
    assert beside == ((None, False, None) if kind == "paper" else (10_000, True, 0.19))
    method = METHODS[recipe.method.name](640, **recipe.method.settings)
    assert (recipe.method.name, method.score_name, method.top_k) == ("gel", "E", TOP_K[dataset, shot])
    assert (method.variant.trained, method.coefficient.kind) == ("E", "fixed")
    assert (method.distance, method.temperature) == ("sq-euclidean", 64)
    assert (method.energy_weight, method.margins) == (0.1, (-1, 1))
    assert (method.attend.dropout.p, method.attend.attention_dropout.p) == (0.5, 0.1)


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

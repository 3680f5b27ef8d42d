"""Every method goes through the engine: frozen on cached maps and with the backbone fine-tuned, saved and evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from glocal.engine.checkpoint import LAST, load_model, read_checkpoint
from glocal.engine.evaluate import evaluate
from glocal.engine.pretrain import pretrain
from glocal.engine.recipe import parse_recipe
from glocal.engine.train import train
from glocal.methods import METHODS
from tiny_runs import fields, make_dataset

SETTINGS: dict[str, dict[str, Any]] = {"peeler": {"adapter": True}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("every-method")


@pytest.fixture(autouse=True)
def own_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", str(home / "cache"))


@pytest.fixture(scope="module")
def dataset(home: Path) -> Path:
    return make_dataset(home / "data", splits={"train": 6, "val": 4})


@pytest.fixture(scope="module")
def pretrained(home: Path, dataset: Path) -> Path:
    recipe = fields(dataset, "pretrain", pretrain={"epochs": 1})
    recipe["backbone"] = {"name": "conv4", "width": 4, "image_size": 16}
    pretrain(parse_recipe(recipe), home / "pretrained")
    return home / "pretrained"


@pytest.mark.parametrize("backbone", ["frozen", "fine-tuned"])
@pytest.mark.parametrize("name", METHODS)
def test_it_trains_and_is_evaluated(dataset: Path, pretrained: Path, tmp_path: Path, name: str, backbone: str) -> None:
    learns = bool(METHODS[name].card.learns)
    steps = 2 if learns or backbone == "fine-tuned" else 0
    recipe = fields(
        dataset,
        "train",
        init=str(pretrained),
        backbone=None,
        method={"name": name, **SETTINGS.get(name, {})},
        train={"backbone": backbone, "tasks": steps, "way": 2, "query": 2, "unknown_way": 2},
    )
    train(parse_recipe(recipe), tmp_path / "run")
    tensors, record = read_checkpoint(tmp_path / "run" / LAST)
    assert record["step"] == steps
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    before, after = load_model(pretrained), load_model(tmp_path / "run")
    moved = before.backbone.fingerprint() != after.backbone.fingerprint()
    assert moved == (backbone == "fine-tuned")
    rows = evaluate(after, dataset, split="val", way=2, query=2, tasks=3, device="cpu").rows
    assert all(torch.from_numpy(values).isfinite().all() for values in rows.values())

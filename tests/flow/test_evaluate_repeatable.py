"""``glocal evaluate`` prints the same numbers, to the last digit, whoever runs it however often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glocal.research.backbones import build_backbone
from glocal.research.engine.checkpoint import TrainedModel, save_model
from glocal.research.methods import METHODS
from tiny_runs import make_dataset, start_cli

SMALL = ["--way", "2", "--query", "3", "--unknown-way", "2"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("repeatable")
    make_dataset(home / "data", size=20)  # not the size of the network: pictures are resized on the way
    torch.manual_seed(0)
    settings = {"width": [4, 4, 8, 8], "image_size": 32}
    backbone = build_backbone("resnet12", settings)
    record = {"backbone": {"name": "resnet12", "settings": settings}, "method": {"name": "gel", "settings": {}}}
    save_model(home / "m.safetensors", TrainedModel(backbone, METHODS["gel"](backbone.channels), record))
    return home


def evaluate(home: Path, name: str, dataset: str, *more: str, model: str = "") -> dict[str, Any]:
    """In a process of its own, with a cache of its own."""
    output = home / f"{name}.json"
    arguments = [model or str(home / "m.safetensors"), "--dataset", dataset, "--device", "cpu", "--json", *more]
    process = start_cli("evaluate", *arguments, output=output, cache=home / f"cache-{name}")
    process.join(120)
    assert process.exitcode == 0, output.read_text()
    result: dict[str, Any] = json.loads(output.read_text())  # stdout and stderr together: nothing but JSON
    return result


def test_twice_with_one_or_two_workers_and_from_a_warm_cache(home: Path) -> None:
    """Each run decodes, encodes and evaluates anew; from a warm cache come maps encoded among other pictures."""
    data, shape = str(home / "data"), ["--tasks", "30", *SMALL]
    first, again, alone = (
        evaluate(home, f"folder-{name}", data, *shape, "--workers", workers)
        for name, workers in (("first", "2"), ("again", "2"), ("alone", "1"))
    )
    evaluate(home, "warm", data, "--tasks", "2", *SMALL, "--seed", "5")
    (home / "warm.json").unlink()
    assert first == again == alone == evaluate(home, "warm", data, *shape)
    check(first)


def check(found: dict[str, Any]) -> None:
    assert set(found["metrics"]) == {"acc", "auroc", "aupr", "fpr95", "f1", "oscr"}
    assert 0 < found["metrics"]["auroc"]["mean"] < 1
    assert found["metrics"]["auroc"]["ci95"] > 0

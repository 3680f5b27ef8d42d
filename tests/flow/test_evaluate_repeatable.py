"""``glocal evaluate`` prints the same numbers, to the last digit, whoever runs it however often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glocal.backbones import build_backbone
from glocal.engine.checkpoint import Model, save_model
from glocal.methods import METHODS
from tiny_runs import make_dataset, start_cli

SMALL = ["--way", "2", "--query", "3", "--unknown-way", "2"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("repeatable")
    make_dataset(home / "data", size=20)  # not the size of the network: pictures are resized on the way
    torch.manual_seed(0)
    settings = {"width": [4, 4, 8, 8], "image_size": 32}
    backbone = build_backbone("resnet12", **settings)
    record = {"backbone": {"name": "resnet12", "settings": settings}, "method": {"name": "gel", "settings": {}}}
    save_model(home / "m.safetensors", Model(backbone, METHODS["gel"](backbone.channels), record))
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


@pytest.mark.parametrize("dataset", ["folder", "embedded"])
def test_twice_and_with_one_or_two_workers(home: Path, dataset: str) -> None:
    """Each run decodes, encodes and evaluates anew; none of it depends on the number of workers."""
    where, model = (str(home / "data"), "") if dataset == "folder" else ("embedded", "embedded-protonet")
    shape = ["--tasks", "30", *SMALL] if dataset == "folder" else ["--tasks", "40"]
    first, again, alone = (
        evaluate(home, f"{dataset}-{name}", where, *shape, "--workers", workers, model=model)
        for name, workers in (("first", "2"), ("again", "2"), ("alone", "1"))
    )
    assert first == again == alone
    assert set(first["metrics"]) == {"acc", "auroc", "aupr", "fpr95", "f1", "oscr"}
    assert 0 < first["metrics"]["auroc"]["mean"] < 1
    assert first["metrics"]["auroc"]["ci95"] > 0
    assert dataset == "folder" or first["metrics"]["acc"]["mean"] > 0.8


def test_a_warm_cache_and_other_tasks_before_it_change_nothing(home: Path) -> None:
    """Maps come from the cache, encoded among other pictures than in the cold run."""
    data = str(home / "data")
    evaluate(home, "warm", data, "--tasks", "2", *SMALL, "--seed", "5")
    (home / "warm.json").unlink()
    warm = evaluate(home, "warm", data, "--tasks", "30", *SMALL)
    assert warm == evaluate(home, "cold", data, "--tasks", "30", *SMALL)

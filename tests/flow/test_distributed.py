"""Two processes under torchrun against one: the same rows, the same weights."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from apart import start
from glocal.research.engine.checkpoint import BEST, LAST, load_model, read_checkpoint, save_model
from glocal.research.engine.loop import Validator
from glocal.research.engine.pretrain import pretrain
from glocal.research.engine.recipe import parse_recipe
from refusal import refused
from tiny_models import tiny_model
from tiny_runs import PATIENCE, fields

GEL = {"name": "gel", "temperature": 4.0}


def torchrun(*arguments: object) -> str:
    """Standard output of ``glocal ARGUMENTS`` by two processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "glocal"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command += map(str, arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=10 * PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def two_ranks(home: Path, *arguments: object) -> str:
    """What the first of two says, without torchrun, which takes longer to start: they have the environment it gives."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    where |= {"GLOCAL_CACHE": str(home / "cache")}
    ranks = [
        start(*arguments, out=home / f"out-{i}", err=home / f"err-{i}", RANK=f"{i}", LOCAL_RANK=f"{i}", **where)
        for i in range(2)
    ]
    for i, rank in enumerate(ranks):
        rank.join(PATIENCE)
        assert rank.exitcode == 0, (home / f"err-{i}").read_text()
    return (home / "out-0").read_text()


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        if value.is_floating_point() and "running_" not in name:
            torch.testing.assert_close(value, b[name], rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("backbone", ["fine-tuned", pytest.param("frozen", marks=pytest.mark.long)])
def test_two_ranks_train_like_one_process_with_two_tasks_per_step(
    tmp_path: Path, dataset: Path, glocal: Any, backbone: str
) -> None:
    settings = {"tasks": 10, "backbone": backbone, "way": 2, "shot": 1, "query": 3, "unknown_way": 2}
    recipe = fields(dataset, "train", method=GEL, train=settings, validation={"every": 3}, optimizer={"lr": 0.01})
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(recipe))
    said = torchrun("train", file, "--out", tmp_path / "two", "--json")
    assert json.loads(said)["run"] == str(tmp_path / "two")  # printed once, by the first rank
    code, _, err = glocal("train", file, "--out", tmp_path / "one", "--set", "train.tasks_per_step=2")
    assert code == 0, err
    (two, record), (one, alone_record) = (read_checkpoint(tmp_path / run / LAST) for run in ("two", "one"))
    assert record["recipe"] == alone_record["recipe"]
    assert record["step"] == 5
    close(two, one)
    assert (tmp_path / "two" / BEST).exists()
    logs = [(tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("two", "one")]
    assert [json.loads(line)["step"] for line in logs[0]] == [json.loads(line)["step"] for line in logs[1]] == [3, 5]


@pytest.fixture(scope="module")
def shared_pretraining(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By two processes, with an average of the weights."""
    home = tmp_path_factory.mktemp("pretrained")
    settings: dict[str, Any] = {"optimizer": {"lr": 0.05, "average": 0.9}, "validation": {"every": 2, "tasks": 8}}
    (home / "recipe.json").write_text(json.dumps(fields(dataset, "pretrain", pretrain={"epochs": 2}, **settings)))
    two_ranks(home, "pretrain", home / "recipe.json", "--out", home / "run")
    return home / "run"


def test_all_ranks_validate_the_model_that_the_first_one_writes(shared_pretraining: Path) -> None:
    """Each has seen other pictures, so the averages of its batch norm are its own."""
    record = read_checkpoint(shared_pretraining / BEST)[1]
    again = Validator(parse_recipe(record["recipe"]), torch.device("cpu"))(load_model(shared_pretraining))
    assert again == pytest.approx(record["validation"], abs=1e-6)


def test_pre_training_goes_on_with_as_many_processes_as_it_began_with(shared_pretraining: Path) -> None:
    recipe = parse_recipe(read_checkpoint(shared_pretraining / LAST)[1]["recipe"])
    with refused("other-processes", "was started by 2 processes"):
        pretrain(recipe, shared_pretraining, resume=True)


def test_evaluation_rows_are_identical_for_one_and_two_ranks(tmp_path: Path, dataset: Path, glocal: Any) -> None:
    save_model(tmp_path / "model.safetensors", tiny_model())
    command = ["evaluate", tmp_path / "model.safetensors", "--dataset", dataset, "--tasks", "7"]
    command += ["--way", "2", "--query", "3", "--json"]
    both = json.loads(two_ranks(tmp_path, *command))
    assert json.loads(glocal(*command)[1]) == both
    assert both["tasks"] == 7


@pytest.mark.long
def test_a_reproduction_over_two_ranks_makes_each_run_once(tmp_path: Path) -> None:
    small = ["pretrain:pretrain.epochs=1", "pretrain:pretrain.batch_size=512", "pretrain:backbone.width=[4, 4, 8, 8]"]
    small += ["pretrain:backbone.image_size=32", "train:train.tasks=4", "validation.tasks=3"]
    options = [word for override in small for word in ("--set", override)]
    command = ["reproduce", "combine", "--scale", "embedded", "--tasks", "6", "--out", str(tmp_path / "out")]
    torchrun(*command, *options, "--device", "cpu", "--json")
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    heads = [about for about in found["runs"].values() if about["recipe"]["stage"] == "train"]
    assert {about["recipe"]["train"]["tasks_per_step"] for about in heads} == {2}
    assert [piece["what"] for piece in found["pieces"]] == ["combine"]
    torchrun(*command, *options, "--device", "cpu", "--json")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["pieces"] == found["pieces"]

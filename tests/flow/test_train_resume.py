"""Killed at random moments and resumed, a run ends with the same bytes as one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from glocal.engine.checkpoint import BEST, LAST, read_checkpoint
from glocal.engine.runs import METRICS
from tiny_runs import fields, make_dataset, start_cli

KILLS = 4
PATIENCE = 120.0  # seconds after which a process that should have ended counts as hanging


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def pretrained(home: Path) -> Path:
    """A finished pre-training run."""
    make_dataset(home / "data")
    return alone(home, "pretrain")


def write_recipe(home: Path, kind: str) -> Path:
    dataset, stage = home / "data", kind.partition("-")[0]
    if kind == "pretrain":
        augment = {"crop_padding": 2, "flip": True, "rotate": "one", "jitter": 0.2}
        recipe = fields(dataset, stage, augment=augment, pretrain={"epochs": 6})
    elif kind == "train-frozen":
        recipe = fields(
            dataset,
            stage,
            init=str(home / "pretrain"),
            backbone=None,
            method={"name": "feat"},
            train={"tasks": 40, "backbone": "frozen", "views": 3},
        )
    else:
        recipe = fields(
            dataset,
            stage,
            init=str(home / "pretrain"),
            backbone=None,
            method={"name": "gel"},
            optimizer={"lr_backbone": 0.01, "clip": 5.0, "schedule": "one-cycle"},
            train={"tasks_per_step": 2, "tasks": 50},
            augment={"flip": True},
        )
    path = home / f"{kind}.json"
    path.write_text(json.dumps(recipe))
    return path


def command(home: Path, kind: str, out: Path, *more: str) -> list[str]:
    return [kind.partition("-")[0], str(write_recipe(home, kind)), "--out", str(out), "--device", "cpu", *more]


def alone(home: Path, kind: str) -> Path:
    out, log = home / kind, home / f"{kind}.log"
    process = start_cli(*command(home, kind, out), output=log, cache=home / "cache")
    process.join(PATIENCE)
    assert process.exitcode == 0, log.read_text()
    return out


def wait_for_lines(metrics: Path, n: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < n:
        assert time.monotonic() < deadline, f"{metrics} never got {n} lines"
        time.sleep(0.002)


@pytest.mark.parametrize("kind", ["pretrain", "train-frozen", "train-fine-tuned"])
def test_killed_and_resumed_is_bit_identical(home: Path, pretrained: Path, kind: str) -> None:
    whole = pretrained if kind == "pretrain" else alone(home, kind)
    out, log, metrics = home / f"{kind}-killed", home / f"{kind}-killed.log", home / f"{kind}-killed" / METRICS
    lines, chance, reached = (whole / METRICS).read_bytes().count(b"\n"), random.Random(), [0]
    for kill in range(KILLS):
        resume = ["--resume"] if kill else []
        process = start_cli(*command(home, kind, out, *resume), output=log, cache=home / f"cache-{kind}")
        wait_for_lines(metrics, chance.randint(1 + kill * lines // (KILLS + 2), (kill + 1) * lines // (KILLS + 2)))
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode in (-signal.SIGKILL, 0), log.read_text()  # 0: on a busy machine it may be done by now
        _, record = read_checkpoint(out / LAST)  # never half a file
        assert reached[-1] <= record["step"], f"a resumed run went back: {reached}"
        reached.append(record["step"])
    with open(metrics, "a") as file:
        file.write('{"step": 3, "ba')  # what a kill in the middle of a line leaves
    process = start_cli(*command(home, kind, out, "--resume"), output=log, cache=home / f"cache-{kind}")
    process.join(PATIENCE)
    assert process.exitcode == 0, log.read_text()
    steps = read_checkpoint(whole / LAST)[1]["step"]
    assert any(0 < step < steps for step in reached), f"never killed in the middle of {steps} steps: {reached}"
    for name in (LAST, BEST, METRICS):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), f"{name} differs after kills at {reached}"


def test_the_log_has_every_step_once(pretrained: Path) -> None:
    lines = [json.loads(line) for line in (pretrained / METRICS).read_text().splitlines()]
    assert [line["step"] for line in lines if "base" in line] == list(range(1, 31))
    assert [line["step"] for line in lines if "val_auroc" in line] == [4, 8, 12, 16, 20, 24, 28, 30]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_resume(home: Path, pretrained: Path, number: int) -> None:
    """Steps without number, so that the signal always comes in between; the command it names then works."""
    name = signal.Signals(number).name
    out, log = home / name, home / f"{name}.log"
    arguments = command(home, "pretrain", out, "--set", "pretrain.epochs=100000")
    process = start_cli(*arguments, output=log, cache=home / "cache", save_seconds=1e9)
    metrics = out / METRICS
    wait_for_lines(metrics, 1)
    os.kill(process.pid, number)
    process.join(PATIENCE)
    said = log.read_text()
    assert process.exitcode == 128 + number, said
    assert "Traceback" not in said
    _, record = read_checkpoint(out / LAST)
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert record["step"] == max(steps) > 0, "everything that was computed is saved"
    last_line = said.splitlines()[-1]
    assert f"stopped after step {record['step']} of 500000" in last_line
    assert last_line.endswith(f"glocal pretrain {out}/recipe.json --out {out} --resume")

"""Killed at random moments and resumed, a run ends with the same bytes as one that was left alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from glocal.research.engine.checkpoint import BEST, LAST, read_checkpoint
from glocal.research.engine.pretrain import pretrain
from glocal.research.engine.recipe import parse_recipe
from glocal.research.engine.run_folder import METRICS, RECIPE, alone_in
from refusal import refused
from tiny_runs import PATIENCE, fields, make_dataset, run_alone, start_cli, wait_for_lines


@pytest.fixture(scope="module")
def pretrained(home: Path) -> Path:
    """A finished pre-training run."""
    make_dataset(home / "data")
    return run_alone(command(home, "pretrain"), home / "pretrain", cache=home / "cache")


def write_recipe(home: Path, kind: str) -> Path:
    sections: dict[str, Any] = {"init": str(home / "pretrain"), "backbone": None}
    if kind == "pretrain":
        augment = {"crop_padding": 2, "flip": True, "rotate": "one", "jitter": 0.2}
        sections = {"augment": augment, "pretrain": {"epochs": 6}}
    elif kind == "train-frozen":
        sections |= {"method": {"name": "feat"}, "train": {"tasks": 40, "backbone": "frozen", "views": 3}}
    else:
        sections |= {"method": {"name": "gel"}, "train": {"tasks_per_step": 2, "tasks": 50}, "augment": {"flip": True}}
        sections |= {"optimizer": {"lr_backbone": 0.01, "clip": 5.0, "schedule": "one-cycle"}}
    path = home / f"{kind}.json"
    path.write_text(json.dumps(fields(home / "data", kind.partition("-")[0], **sections)))
    return path


def command(home: Path, kind: str) -> list[str]:
    return [kind.partition("-")[0], str(write_recipe(home, kind))]


def assert_kills_do_no_harm(command: Sequence[str], whole: Path, *, kills: int, cache: Path) -> list[int]:
    """Kill the run ``whole`` was made by at ``kills`` random moments, resume each time: the same bytes in the end.

    Returns the step that was saved at each kill.
    """
    out = whole.with_name(f"{whole.name}-killed-{kills}")
    log, metrics = out.with_suffix(".log"), out / METRICS
    lines, chance, reached = (whole / METRICS).read_bytes().count(b"\n"), random.Random(), [0]
    arguments = [*command, "--out", str(out), "--device", "cpu"]
    for kill in range(kills):
        process = start_cli(*arguments, *(["--resume"] if kill else []), output=log, cache=cache)
        wait_for_lines(metrics, chance.randint(1 + kill * lines // (kills + 2), (kill + 1) * lines // (kills + 2)))
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode in (-signal.SIGKILL, 0), log.read_text()  # 0: on a busy machine it may be done by now
        _, record = read_checkpoint(out / LAST)  # never half a file
        assert reached[-1] <= record["step"], f"a resumed run went back: {reached}"
        reached.append(record["step"])
    with open(metrics, "a") as file:
        file.write('{"step": 3, "ba')  # what a kill in the middle of a line leaves
    process = start_cli(*arguments, "--resume", output=log, cache=cache)
    process.join(PATIENCE)
    assert process.exitcode == 0, log.read_text()
    for name in (LAST, BEST, METRICS):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), f"{name} differs after kills at {reached}"
    return reached[1:]


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["pretrain", "train-frozen", "train-fine-tuned"])
def test_killed_and_resumed_is_bit_identical(home: Path, pretrained: Path, kind: str, kills: int) -> None:
    """Every part that has a state or draws numbers takes part: augmentation, DropBlock's ramp, batch norm, momentum."""
    asked = command(home, kind)
    whole = pretrained if kind == "pretrain" else run_alone(asked, home / f"{kind}-{kills}", cache=home / "cache")
    reached = assert_kills_do_no_harm(asked, whole, kills=kills, cache=home / f"cache-{kind}")
    assert len(reached) == kills
    steps = read_checkpoint(whole / LAST)[1]["step"]
    assert any(0 < step < steps for step in reached), f"never killed in the middle of {steps} steps: {reached}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_resume(home: Path, pretrained: Path, number: int) -> None:
    """Steps without number, so that the signal always comes in between; the command it names then works."""
    name = signal.Signals(number).name
    out, log = home / name, home / f"{name}.log"
    endless = [*command(home, "pretrain"), "--out", str(out), "--set", "pretrain.epochs=100000"]
    process = start_cli(*endless, output=log, cache=home / "cache", save_seconds=1e9)
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


def test_two_in_one_folder(home: Path, pretrained: Path) -> None:
    """The second is told so, whether it is to begin or to go on, and changes nothing."""
    whole = shutil.copytree(pretrained, home / "shared")
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    recipe = parse_recipe(json.loads((whole / RECIPE).read_text()))
    for folder, resume in ((whole, True), (home / "new", False)):
        with alone_in(folder), refused("busy", str(folder)):
            pretrain(recipe, folder, resume=resume)
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == before
    assert not (home / "new").exists()

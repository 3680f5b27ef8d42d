"""SIGKILL at a random step, ten times over, on the embedded pictures: nothing of it is left in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from glocal.engine.checkpoint import LAST, read_checkpoint
from tiny_runs import assert_kills_do_no_harm, run_alone

pytestmark = pytest.mark.long

KILLS = 10
VALIDATION = ["validation.every=25", "validation.tasks=4"]
# Every part that has a state or draws random numbers: augmentation, DropBlock's ramp, dropout, batch norm, momentum.
PRETRAIN = ["backbone.width=[4, 4, 8, 8]", "backbone.drop_rate=0.1", "augment.jitter=0.2", "pretrain.epochs=1"]
FINE_TUNED = ["train.backbone=fine-tuned", "train.views=1", "train.tasks=140", "train.shot=1", "train.query=5"]
RATES = ["optimizer.lr_backbone=1e-3", "optimizer.clip=5.0", "augment.crop_padding=3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ten-kills")


def command(stage: str, recipe: str, *overrides: str) -> list[str]:
    return [stage, recipe, *(part for override in (*overrides, *VALIDATION) for part in ("--set", override))]


@pytest.fixture(scope="module")
def pretrained(home: Path) -> Path:
    return run_alone(command("pretrain", "demo-protonet", *PRETRAIN), home / "pretrain", cache=home / "cache")


def check(asked: list[str], whole: Path, cache: Path) -> None:
    reached = assert_kills_do_no_harm(asked, whole, kills=KILLS, cache=cache)
    steps = read_checkpoint(whole / LAST)[1]["step"]
    assert len(reached) == KILLS
    assert max(reached) < steps, f"some kill came after the last of {steps} steps: {reached}"
    assert len(set(reached)) > KILLS // 2, f"killed at the same steps again and again: {reached}"


def test_pretraining_killed_ten_times_is_bit_identical(home: Path, pretrained: Path) -> None:
    check(command("pretrain", "demo-protonet", *PRETRAIN), pretrained, home / "cache")


def test_fine_tuning_gel_killed_ten_times_is_bit_identical(home: Path, pretrained: Path) -> None:
    asked = [*command("train", "demo-gel", *FINE_TUNED, *RATES), "--init", str(pretrained)]
    check(asked, run_alone(asked, home / "gel", cache=home / "cache"), home / "cache")

"""What training cuts its windows from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from glocal.research.engine.pretrain import PretrainStage
from glocal.research.engine.recipe import parse_recipe
from glocal.research.engine.train import TrainStage
from tiny_runs import fields

CPU = torch.device("cpu")
STAGES = {"pretrain": PretrainStage, "train": TrainStage}


@pytest.fixture(scope="module")
def framed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 16 pixels, dark within a white frame of one."""
    root = tmp_path_factory.mktemp("framed")
    for split in ("train", "val"):
        for c in range(5):
            folder = root / split / f"{split}{c}"
            folder.mkdir(parents=True)
            for i in range(8):
                picture = np.full((16, 16, 3), 255, np.uint8)
                picture[1:-1, 1:-1] = 10 * c + i
                Image.fromarray(picture).save(folder / f"{i}.png")
    return root


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("crop", [{"crop_padding": 2}, {"crop_size": 12}])
def test_border_pixels_reach_training_that_crops(framed: Path, stage: str, crop: dict[str, int]) -> None:
    backbone = {"image_size": 16, "resize": 20}  # evaluation loses two pixels of twenty on every side
    recipe = parse_recipe(fields(framed, stage, backbone=backbone, augment=crop))
    built = STAGES[stage](recipe, CPU)
    pictures = built.images[torch.arange(4)]
    assert (pictures[:, :, 0] == 255).all()
    assert (pictures[:, :, 1:-1, 1:-1] < 255).all(), "the stored pixels themselves, not resized ones"
    assert built.model.backbone.preprocess.resize == 20, "evaluation keeps its own preparation"


@pytest.mark.parametrize("stage", STAGES)
def test_training_that_does_not_crop_sees_what_evaluation_sees(framed: Path, stage: str) -> None:
    recipe = parse_recipe(fields(framed, stage, backbone={"image_size": 16, "resize": 20}, augment={"flip": True}))
    assert (STAGES[stage](recipe, CPU).images[torch.arange(4)] < 255).all()

"""``glocal convert``: graphs of a trained model, compared with its modules, and what cannot become graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conformance.suite import Tiles
from glocal.common.errors import RecipeError, WeightsError
from glocal.recognizer.converted import EMBED, ConvertedModel
from glocal.research.backbones import build_backbone
from glocal.research.convert import convert
from glocal.research.engine.checkpoint import TrainedModel, save_model
from glocal.research.methods import METHODS, build_method
from glocal.research.methods.base import Comparison
from glocal.research.methods.feat import FEAT
from glocal.research.types import Views


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "tiny.safetensors"
    torch.manual_seed(0)
    settings = {"width": 32, "image_size": 16}
    backbone, score = build_backbone("conv4", settings), {"open_score": "distance"}
    record = {"backbone": {"name": "conv4", "settings": settings}, "method": {"name": "protonet", "settings": score}}
    save_model(path, TrainedModel(backbone, build_method("protonet", backbone.channels, score), record))
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for i in range(40):
        patches = Image.fromarray(rng.integers(0, 256, (3, 3, 3), dtype=np.uint8))
        patches.resize((16, 16)).save(folder / f"{i}.png")
    return folder


def test_a_checkpoint_becomes_one_file_that_gives_its_answers(run: Path, tmp_path: Path, glocal: Any) -> None:
    out = tmp_path / "tiny.model"
    code, said, err = glocal("convert", run, "-o", out, "--json")
    assert code == 0, err
    result, converted = json.loads(said), ConvertedModel.read(out)
    assert max(result["differences"].values()) < 1e-4
    assert result["same_class"] == result["queries"] == 20
    assert converted.score_names == tuple(result["scores"]) == METHODS["protonet"](4).score_names
    assert (converted.method, converted.open_score, converted.precision) == ("protonet", "distance", "float32")
    assert b".py" not in out.read_bytes(), "no lines of the program that made it"
    code, _, err = glocal("convert", run, "-o", out)
    assert code == 2
    assert "--force" in err


def test_smaller_graphs_say_what_they_cost(run: Path, photos: Path, tmp_path: Path, glocal: Any) -> None:
    full = convert(str(run))
    sizes = {}
    for name, options in (("half", ["--half"]), ("int8", ["--int8", photos])):
        code, out, err = glocal("convert", run, "-o", tmp_path / name, "--json", *options)
        assert code == 0, err
        result, converted = json.loads(out), ConvertedModel.read(tmp_path / name)
        assert converted.precision == result["precision"] == name
        assert 0 < max(result["differences"].values()) < 0.2
        assert result["same_class"] >= 0.8 * result["queries"] > 0
        sizes[name] = len(converted.graphs[EMBED])
    assert sizes["half"] < 0.75 * len(full.graphs[EMBED])


def test_both_precisions_or_too_few_photos_are_refused(run: Path, photos: Path, tmp_path: Path, glocal: Any) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for name in ("0.png", "1.png"):
        (few / name).write_bytes((photos / name).read_bytes())
    for options, words in (
        (["--half", "--int8", photos], "exclude each other"),
        (["--int8", few], "at least 32 photos"),
    ):
        code, _, err = glocal("convert", run, "-o", tmp_path / "none", *options)
        assert code == 2
        assert words in err
        assert not (tmp_path / "none").exists()


class Branching(FEAT):
    def compare(self, state: Any, query: Views) -> Comparison:
        if state.proto.sum() > 0:
            return super().compare(state, query)
        return Comparison(query.vec @ state.proto.mT)


def test_a_method_that_branches_on_numbers_is_refused_with_the_line_that_does() -> None:
    with pytest.raises(RecipeError, match=r"test_convert\.py:\d+ `if state\.proto\.sum\(\) > 0:`.*add-a-method\.md"):
        convert(TrainedModel(Tiles(), Branching(16)))


class Counting(FEAT):
    """Whether there are many queries becomes a constant of the graph."""

    def compare(self, state: Any, query: Views) -> Comparison:
        logits = super().compare(state, query).logits
        return Comparison(logits + 1 if query.vec.shape[0] > 10 else logits)


def test_graphs_that_answer_otherwise_are_refused() -> None:
    with pytest.raises(WeightsError, match="not converted: its graphs differ from the model"):
        convert(TrainedModel(Tiles(), Counting(16)))

"""How models are named for a comparison, and what makes two of them the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glocal.common.errors import WeightsError
from glocal.research.engine.checkpoint import BEST, save_model
from glocal.research.engine.named_models import load_models, name_model
from glocal.research.engine.records import parse_name
from refusal import refused
from tiny_models import tiny_model


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_model(tmp_path / "runs" / "first" / BEST, tiny_model())
    save_model(tmp_path / "plain.safetensors", tiny_model("gel"))
    save_model(tmp_path / "a=b:c.safetensors", tiny_model())
    return tmp_path


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("embedded-gel", ("embedded-gel", "embedded-gel", ())),
        ("embedded-gel:E_c", ("embedded-gel", "embedded-gel", ("E_c",))),
        ("GEL=embedded-gel:E_c,entropy", ("GEL", "embedded-gel", ("E_c", "entropy"))),
        ("runs/first", ("first", "runs/first", ())),
        ("runs/first/", ("first", "runs/first/", ())),
        ("runs/first/best.safetensors", ("first", "runs/first/best.safetensors", ())),
        ("plain.safetensors:all", ("plain", "plain.safetensors", ("all",))),
        ("a=b:c.safetensors", ("a=b:c", "a=b:c.safetensors", ())),
        ("x=a=b:c.safetensors:margin", ("x", "a=b:c.safetensors", ("margin",))),
        ("nobody", ("nobody", "nobody", ())),
    ],
)
def test_names(home: Path, text: str, parsed: tuple[str, str, tuple[str, ...]]) -> None:
    assert parse_name(text) == parsed


@pytest.mark.parametrize("text", ["", "x=", ":E", "embedded-gel:", "embedded-gel:,"])
def test_half_names_are_refused(home: Path, text: str) -> None:
    with refused("model-name", "LABEL=RUN:SCORE"):
        parse_name(text)


def test_scores_of_one_model_and_equal_backbones_are_held_once(home: Path) -> None:
    found = load_models(["proto=runs/first", "plain.safetensors:E,entropy"])
    assert [(each.name, each.score) for each in found] == [
        ("proto", found[0].model.method.score_name),
        ("plain:E", "E"),
        ("plain:entropy", "entropy"),
    ]
    assert found[1].model.method is found[2].model.method  # one comparison per task serves both
    assert [each.method for each in found] == ["protonet", "gel", "gel"]
    every = load_models(["plain.safetensors:all"])
    assert [each.score for each in every] == list(found[1].model.method.score_names)
    save_model(home / "other.safetensors", tiny_model(seed=1))
    proto, gel, other = load_models(["runs/first", "plain.safetensors", "other.safetensors"])
    assert proto.model.backbone is gel.model.backbone
    assert proto.encoder == gel.encoder != other.encoder
    assert proto.model.backbone is not other.model.backbone


def test_identity_is_weights_and_settings() -> None:
    one = name_model("a", tiny_model("feat"))
    assert name_model("b", tiny_model("feat")).identity == one.identity
    assert name_model("a", tiny_model("feat", temperature=3.0)).identity != one.identity
    assert name_model("a", tiny_model("feat", seed=1)).identity != one.identity
    moved = tiny_model("feat")
    with torch.no_grad():
        next(moved.method.parameters()).add_(1e-3)
    assert name_model("a", moved).identity != one.identity


def test_refused(home: Path) -> None:
    with refused("open-score", "runs/first (protonet) has the open scores", "entropy, ", "got 'mood'"):
        load_models(["runs/first:mood"])
    with refused("same-name", "two rows would be called 'first:entropy'; give them different labels"):
        load_models(["runs/first", "first=plain.safetensors:entropy", "first=plain.safetensors:entropy"])
    with pytest.raises(WeightsError, match="'nobody'"):  # the code tells whether glocal-models is installed
        load_models(["nobody"])

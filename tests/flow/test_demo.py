"""The demo as a newcomer runs it, made short; and what it promises, checked on the models it shipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from glocal.backbones import build_backbone
from glocal.cli.main import app
from glocal.data import EpisodeSampler, EpisodeSpec, open_dataset, registry
from glocal.data.benchmarks.embedded import embedded
from glocal.engine.checkpoint import Model, load_model
from glocal.engine.evaluate import evaluate
from glocal.methods import METHODS
from glocal.metrics import paired_difference
from glocal.reproduce import demo


@pytest.mark.parametrize("shot", [1, 5])
def test_shipped_models_beat_raw_pixels_with_an_interval_above_zero(shot: int):
    digits = open_dataset("embedded", "test")
    tasks = EpisodeSampler(digits, EpisodeSpec(shot=shot), seed=3).take(100)

    def rows(model: Model):
        return evaluate(model, digits, tasks=tasks, device="cpu").rows

    pixels = build_backbone("pixels", image_size=32)
    raw = rows(Model(pixels, METHODS["protonet"](pixels.channels, distance="cosine", open_score="distance")))
    for name in ("embedded-protonet", "embedded-gel"):
        trained = rows(load_model(name))
        for metric in ("acc", "auroc"):
            assert paired_difference(trained[metric], raw[metric]).low > 0, (name, metric)


def test_the_demo_trains_evaluates_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        registry.DATASETS, "embedded", lambda split: embedded(split, per_class=20 if split == "train" else 60)
    )
    load = demo.load_recipe
    short = ["pretrain.epochs=1", "pretrain.batch_size=512", "train.tasks=6"]
    short += ["validation.every=100", "validation.tasks=2"]
    monkeypatch.setattr(demo, "load_recipe", lambda name, start=(): load(name, [*start, *short, *views(name)]))

    def views(name: str) -> list[str]:
        return [] if name == "demo-protonet" else ["train.views=1"]

    out = tmp_path / "out"
    first = CliRunner().invoke(app, ["demo", "--out", str(out), "--tasks", "3", "--device", "cpu"])
    assert first.exit_code == 0, first.output
    page = (out / "demo-report.html").read_text()
    for words in ("raw pixels", "ProtoNet", "SnaTCHer-F", "GEL", "5-way 1-shot", "5-way 5-shot", "What it was shown"):
        assert words in page, words
    assert page.count("<img") > 20
    assert "glocal evaluate photos-protonet" in first.output
    weights = (out / "gel" / "best.safetensors").stat().st_mtime_ns
    again = CliRunner().invoke(app, ["demo", "--out", str(out), "--tasks", "3", "--device", "cpu", "--json"])
    assert again.exit_code == 0, again.output
    assert '"raw pixels"' in again.output
    assert (out / "gel" / "best.safetensors").stat().st_mtime_ns == weights  # reused, not trained again
    monkeypatch.setattr(
        demo, "load_recipe", lambda name, start=(): load(name, [*start, *short, *views(name), "seed=1"])
    )
    other = CliRunner().invoke(app, ["demo", "--out", str(out), "--tasks", "3", "--device", "cpu"])
    assert other.exit_code != 0
    assert "delete" in str(other.exception)

"""The demo as a newcomer runs it, made short; and what it promises, checked on the models it shipped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from typer.testing import CliRunner

from converted import model_file
from glocal.cli.main import app
from glocal.recognizer import Recognizer
from glocal.research.backbones import build_backbone
from glocal.research.data import open_dataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec
from glocal.research.engine.checkpoint import TrainedModel, load_model
from glocal.research.engine.evaluate import evaluate
from glocal.research.methods import METHODS
from glocal.research.metrics import paired_difference
from glocal.samples import demo
from photos import write, write_classes


def test_shipped_models_beat_raw_pixels_with_an_interval_above_zero() -> None:
    digits = open_dataset("embedded", "test")
    drawn = [EpisodeSampler(digits, EpisodeSpec(shot=shot), seed=3).take(100) for shot in (1, 5)]
    pixels = build_backbone("pixels", {"image_size": 32})
    method = METHODS["protonet"](pixels.channels, distance="cosine", open_score="distance")
    models = [TrainedModel(pixels, method), load_model("embedded-protonet"), load_model("embedded-gel")]
    for tasks in drawn:
        raw, *trained = (evaluate(model, digits, tasks=tasks, device="cpu").rows for model in models)
        for rows in trained:
            for metric in ("acc", "auroc"):
                assert paired_difference(rows[metric], raw[metric]).low > 0, (tasks.spec, metric)


def test_the_demo_teaches_asks_and_reports(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = CliRunner().invoke(app, ["demo", "--out", str(out), "--device", "cpu"])
    assert first.exit_code == 0, first.output
    page = (out / "demo-report.html").read_text()
    assert page.count("<img") > 20
    for words in (
        "What to expect",
        "What came of it",
        "Answers and reasons",
        "glocal enroll photos",
        "glocal[research]",
    ):
        assert words in page, words
    for words in ("glocal enroll photos -o mine.glocal", "unknown digits caught", "known pictures were called unknown"):
        assert words in " ".join(first.output.split()), words
    taught = Recognizer.load(out / "digits.glocal", device="cpu")
    assert taught.classes == demo.KNOWN
    taught.rename_class("two", "deux")
    taught.save(out / "digits.glocal")
    again = CliRunner().invoke(app, ["demo", "--out", str(out), "--device", "cpu", "--json"])
    assert again.exit_code == 0, again.output
    result = json.loads(again.stdout)
    asked = result["outcome"]
    assert (asked["accuracy"]["n"], asked["caught"]["n"]) == (5 * demo.ASKED, 5 * demo.ASKED)
    assert result["recognizer"] == str(out / "digits-2.glocal"), "a file that learned more stays"


def test_the_same_report_of_ones_own_photos(tmp_path: Path) -> None:
    photos = write_classes(tmp_path / "my photos", ("zero", "one", "two"), 0, 6)
    write(photos / "unknown", "six", 0, 5)
    (photos / "one" / "bad.png").write_bytes(b"no picture")
    command = ["demo", "--photos", str(photos), "--out", str(tmp_path / "out"), "--model", model_file("embedded-gel")]
    done = CliRunner().invoke(app, [*command, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "named right:" in done.output
    assert f"Next: glocal enroll '{photos}' -o mine.glocal" in done.output
    page = (tmp_path / "out" / "photos-report.html").read_text()
    for words in ("What to expect", "What became of each", "Promise and outcome", "Answers", "Why", "bad.png"):
        assert words in page, words
    assert page.count("<img") > 8
    assert "http" not in page.replace("http-equiv", ""), "one file, nothing from elsewhere"
    again = CliRunner().invoke(app, [*command, "--device", "cpu"])
    assert "--force" in str(again.exception)
    for word in ("zero", "one", "two"):
        for path in sorted((photos / word).iterdir())[2:]:
            path.unlink()
    shutil.rmtree(photos / "unknown")
    few = CliRunner().invoke(app, [*command, "--force", "--device", "cpu", "--json"])
    assert few.exit_code == 0, few.output
    assert json.loads(few.stdout)["outcome"] is None

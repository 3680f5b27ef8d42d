"""A reproduction killed at random moments, and the paper scale with everything but its sizes."""

from __future__ import annotations

import json
import random
import signal
import time
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from glocal.research.engine.checkpoint import load_model
from glocal.research.reproduce.reproduction import reproduce
from glocal.research.reproduce.runs import RunSettings, ensure_run
from glocal.research.reproduce.scales import PAPER
from tiny_reproduction import make_data, start
from tiny_runs import PATIENCE, make_dataset

pytestmark = pytest.mark.long
KILLS = 5
ASKED = ["ablation", "combine", "coefficients", "figure-topk", "figure-density", "figure-pixels"]


def test_five_kills_change_no_number(tmp_path: Path) -> None:
    home = make_data(tmp_path / "data")
    chance = random.Random()

    def begin(out: Path) -> ForkServerProcess:
        words = [*ASKED, "--out", str(out), "--device", "cpu"]
        return start(home, *words, output=out.with_suffix(".log"), cache=out.with_suffix(".cache"))

    began = time.monotonic()
    whole = begin(tmp_path / "whole")
    whole.join(10 * PATIENCE)
    assert whole.exitcode == 0, (tmp_path / "whole.log").read_text()
    length = time.monotonic() - began
    killed, reached = tmp_path / "killed", []
    for _ in range(KILLS):
        process = begin(killed)
        process.join(chance.uniform(0.1, 0.35) * length)
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode in (-signal.SIGKILL, 0)
        reached.append(len(list((killed / "runs").glob("*/done.json"))))
    last = begin(killed)
    last.join(10 * PATIENCE)
    assert last.exitcode == 0, (tmp_path / "killed.log").read_text()
    assert reached[0] < reached[-1], f"the kills came too early to interrupt anything: {reached}"
    first, again = (json.loads((tmp_path / name / "report.json").read_text()) for name in ("whole", "killed"))
    assert again["pieces"] == first["pieces"], f"numbers differ after kills at {reached} finished runs"
    assert again["found"] == first["found"]
    assert {name: run["validation"] for name, run in again["runs"].items()} == {
        name: run["validation"] for name, run in first["runs"].items()
    }


SHORT = ("validation.tasks=2", "validation.query=2", "validation.every=2", "data.workers=1")
PRETRAIN = (*SHORT, "pretrain.epochs=1", "pretrain.batch_size=32")
TRAIN = (*SHORT, "train.tasks=2", "train.query=3")
NARROW = ("backbone.width=[4, 4, 8, 8]",)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_dataset(tmp_path / "cifar-fs", size=32, per_class=21, splits={"train": 12, "val": 16, "test": 10})
    monkeypatch.setenv("GLOCAL_DATA", str(tmp_path))
    return tmp_path


def test_every_stage_and_method_runs_to_the_report(home: Path) -> None:
    scale = replace(PAPER, more={"pretrain": (*PRETRAIN, *NARROW), "train": TRAIN})
    names = ["table-1", "ablation", "combine", "coefficients"]
    reproduce(names, scale, ["cifar-fs"], RunSettings(home / "out", tasks=3, workers=1), "glocal reproduce")
    found = json.loads((home / "out" / "report.json").read_text())
    table = next(piece for piece in found["pieces"] if piece["what"] == "table-1")["tables"][0]
    assert [row["name"] for row in table["rows"]][-2:] == ["GEL", "GEL without pixels"]
    assert "frozen" not in table["caption"], "all but RFDNet are fine-tuned"
    stages = {about["recipe"]["stage"] for about in found["runs"].values()}
    assert stages == {"pretrain", "train"}


@pytest.mark.parametrize("method", ["gel", "rfdnet"])
def test_resnet_18_is_trained(home: Path, method: str) -> None:
    scale = replace(PAPER, more={"pretrain": (*PRETRAIN, "augment.rotate=none"), "train": TRAIN})
    folder = ensure_run(scale.on_resnet18(method, "cifar-fs", 1), RunSettings(home))
    assert folder is not None
    model = load_model(folder)
    assert model.record["backbone"]["name"] == "resnet18"
    assert len(model.record["chain"]) == (2 if method == "gel" else 1)

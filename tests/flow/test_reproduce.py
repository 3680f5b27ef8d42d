"""``glocal reproduce`` from nothing to the report, in small: complete, reused, and shared by two processes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glocal.cli.main import app
from glocal.common.cache import bank_sizes
from glocal.research.reproduce.plans import ALL
from glocal.research.reproduce.reproduction import reproduce
from glocal.research.reproduce.runs import RunSettings
from refusal import refused
from tiny_reproduction import NAME, make_data, start, tiny_scale
from tiny_runs import PATIENCE

SOME = ["ablation", "combine", "figure-topk", "figure-density", "figure-pixels"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("reproduce"))


def run(home: Path, *arguments: str, out: Path) -> str:
    process = start(home, *arguments, "--out", str(out), "--device", "cpu", output=out.with_suffix(".log"), cache=home)
    process.join(5 * PATIENCE)
    said = out.with_suffix(".log").read_text()
    assert process.exitcode == 0, said
    return said


@pytest.fixture(scope="module")
def out(home: Path) -> Path:
    run(home, *SOME, out=home / "out")
    return home / "out"


def numbers(out: Path) -> Any:
    return json.loads((out / "report.json").read_text("utf-8"))


def test_every_piece_is_in_the_folder(out: Path) -> None:
    found = numbers(out)
    assert [piece["what"] for piece in found["pieces"]] == SOME
    page, text = (out / "report.html").read_text("utf-8"), (out / "report.md").read_text("utf-8")
    for name in SOME:
        assert f'<h2 id="{name}-on-{NAME}-title">' in page
        assert f"## {name} on {NAME}" in text
    for kind in ("ablation", "combine"):
        for shot in (1, 5):
            assert r"\toprule" in (out / "tables" / f"{kind}-{NAME}-{shot}shot.tex").read_text("utf-8")
    linked = re.findall(r"\]\((figures/.*?\.png)\)", text)
    assert len(linked) >= 6  # the sweep, four densities, pixels
    for link in linked:
        assert (out / link).read_bytes()[:4] == b"\x89PNG"
        assert (out / link).with_suffix(".svg").read_text("utf-8").startswith("<?xml")
    assert "http-equiv" in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page), "the page must work offline"


def test_numbers_come_with_recipe_seed_commit_and_data(out: Path) -> None:
    found = numbers(out)
    assert len(found["data"][NAME]) == 64
    for piece in found["pieces"]:
        named = re.findall(r'"((?:frozen-gel|gel|snatcher-f)-[0-9a-f]{16})"', json.dumps(piece))
        assert named
        assert set(named) <= set(found["runs"])
    for about in found["runs"].values():
        assert about["seed"] == 0
        assert len(about["data"]["manifest"]) == 64
        assert about["recipe"]["method"]["name"]
        assert "commit" in about["environment"]
    assert str(out.parent) not in json.dumps(found), "paths of this machine belong to nobody else"


def test_tables_have_published_numbers_differences_and_reasons(out: Path) -> None:
    ablation = next(piece for piece in numbers(out)["pieces"] if piece["what"] == "ablation")
    one, five = ablation["tables"]
    assert [row["name"] for row in one["rows"]] == [
        "Baseline",
        "Control: no energy loss",
        "+ Energy loss",
        "+ Energy loss on maps",
        "+ Pixel-wise",
        "+ Combine",
    ]
    assert one["metrics"] == ["acc", "auroc", "f1", "fpr95", "aupr"]
    assert one["rows"][5]["published"]["auroc"]["mean"] == pytest.approx(0.7867)
    assert five["rows"][5]["published"]["fpr95"]["mean"] == pytest.approx(0.5533)
    assert not one["rows"][1].get("published"), "the control is ours"
    assert not one["rows"][2].get("published"), "the paper's number is that of the maps"
    assert one["rows"][3]["published"]["auroc"]["mean"] == pytest.approx(0.7943)
    assert set(one["rows"][5]["difference"]) == {"acc", "auroc"}
    assert "the GEL paper on cifar-fs" in one["caption"]
    assert "frozen backbone" in one["rows"][5]["note"]


def test_the_second_time_nothing_is_made_again(home: Path, out: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}
    first, rows = numbers(out), sorted((out / "rows").iterdir())
    said = run(home, *SOME, out=out)
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()} == before
    assert sorted((out / "rows").iterdir()) == rows
    assert numbers(out)["pieces"] == first["pieces"]
    assert numbers(out)["runs"] == first["runs"]
    assert "Report: " in said


def test_runs_of_ones_own_get_the_same_report(home: Path) -> None:
    words = ["report", "proto=embedded-protonet", "embedded-gel", "embedded-gel:E_c", "--dataset", str(home / NAME)]
    words += ["--shots", "1", "--tasks", "3", "--reference", "proto", "--out", str(home / "own"), "--device", "cpu"]
    said = CliRunner().invoke(app, words, catch_exceptions=False)
    assert said.exit_code == 0, said.output
    found = numbers(home / "own")
    table, figures = found["pieces"]
    assert [row["name"] for row in table["tables"][0]["rows"]] == ["proto", "embedded-gel:E", "embedded-gel:E_c"]
    assert len(figures["panels"]) == 3
    assert re.match(r"5-way 1-shot: \S+ leads with AUROC \d\d\.\d\d", found["found"][0])
    assert found["models"]["proto"]["data"]["dataset"] == "embedded"
    assert sorted(path.name for path in (home / "own" / "figures").glob("*.png")) == [
        "density-1.png",
        "density-2.png",
        "density-3.png",
        "roc.png",
    ]
    assert "http-equiv" in (home / "own" / "report.html").read_text("utf-8")


def test_maps_of_fine_tuned_models_do_not_stay(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one has a backbone of its own: at the size of tieredImageNet that is 5 GB for each."""
    monkeypatch.setenv("GLOCAL_DATA", str(home))
    tuned = tiny_scale().set_as("paper", ["train:train.backbone=fine-tuned"])
    how = RunSettings(tmp_path / "out", tasks=3, workers=1)
    reproduce(["combine", "figure-pixels"], tuned, [NAME], how, "glocal reproduce")
    assert numbers(tmp_path / "out")["pieces"]
    assert bank_sizes() == {}


def test_ray_under_torchrun_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused("ray-or-torchrun"):
        words = ["reproduce", "ablation", "--engine", "ray", "--out", str(tmp_path / "out")]
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_all_of_it(home: Path) -> None:
    run(home, "all", out=home / "all")
    assert [piece["what"] for piece in numbers(home / "all")["pieces"]] == list(ALL)

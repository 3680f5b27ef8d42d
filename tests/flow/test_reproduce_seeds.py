"""``reproduce --seeds``: every row from several trainings, and a verdict that needs tasks and seeds to agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glocal.research.metrics import PairedDifference, Spread, spread
from glocal.research.reproduce.plans import Line
from glocal.research.reproduce.report_folder import NUMBERS
from glocal.research.reproduce.reproduction import findings, reproduce
from glocal.research.reproduce.runs import RunSettings
from glocal.research.reproduce.scales import SCALES
from refusal import refused
from tiny_reproduction import NAME, make_data, tiny_scale

Bounds = tuple[float, float]


def test_the_spread_over_seeds_is_students() -> None:
    found = spread([0.70, 0.74, 0.72])
    assert (found.mean, found.std, found.n) == (pytest.approx(0.72), pytest.approx(0.02), 3)
    assert (found.low, found.high) == (pytest.approx(0.6703, abs=1e-4), pytest.approx(0.7697, abs=1e-4))
    with refused("data", "got 1"):
        spread([0.7])


def gap(low: float, high: float) -> PairedDifference:
    return PairedDifference((low + high) / 2, low, high, 0.5, 3, 2, 5)


class Measured:
    """One difference over tasks and, from several trainings, one over seeds; the same for every pair of rows."""

    def __init__(self, tasks: Bounds, seeds: Bounds | None = None):
        self.tasks, self.over, self.seeds = tasks, seeds, 3 if seeds else 1

    def difference(self, line: Line, other: Line) -> PairedDifference:
        return gap(*self.tasks)

    def over_seeds(self, line: Line, metric: str, other: Line) -> Spread | None:
        return Spread(sum(self.over) / 2, 0.01, *self.over, 3) if self.over else None


def verdict(one: Measured, five: Measured) -> str:
    """Of the last question, combining ahead, at 1 and 5 shots."""
    measured: Any = {("embedded", 1): one, ("embedded", 5): five}
    return findings(SCALES["embedded"], ["combine"], ["embedded"], measured)[-1]


@pytest.mark.parametrize(
    ("one", "five", "words"),
    [
        ((0.1, 0.2), (0.01, 0.3), "helps"),
        ((-0.2, -0.1), (-0.3, -0.1), "hurts"),
        ((-0.1, 0.2), (-0.3, 0.1), "makes no significant difference"),
        ((0.1, 0.2), (-0.1, 0.1), "helps, but not in every setting"),
        ((-0.2, -0.1), (-0.1, 0.1), "hurts, but not in every setting"),
        ((0.1, 0.2), (-0.2, -0.1), "helps in some settings and hurts in others"),
        ((0.0, 0.2), (0.0, 0.2), "makes no significant difference"),  # 0 is not left out
    ],
)
def test_the_verdict_is_what_the_intervals_over_tasks_allow(one: Bounds, five: Bounds, words: str) -> None:
    said = verdict(Measured(one), Measured(five))
    assert said.startswith(f"Combining ahead {words} (over tasks alone")
    assert "over seeds [" not in said


@pytest.mark.parametrize(
    ("tasks", "seeds", "words"),
    [
        ((0.01, 0.03), (0.005, 0.05), "helps"),
        ((-0.03, -0.01), (-0.04, -0.01), "hurts"),
        ((0.01, 0.03), (-0.02, 0.06), "makes no significant difference"),
        ((-0.01, 0.03), (0.01, 0.02), "makes no significant difference"),
        ((0.01, 0.03), (-0.05, -0.01), "makes no significant difference"),
    ],
)
def test_a_verdict_over_seeds_needs_both(tasks: Bounds, seeds: Bounds, words: str) -> None:
    said = verdict(Measured(tasks, seeds), Measured(tasks, seeds))
    assert said.startswith(f"Combining ahead {words}: against ")
    assert "over seeds [" in said


def test_a_misspelt_setting_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    scale = SCALES["embedded"].set_as("paper", ["train:train.taks=1"])
    with refused("recipe", "taks"):
        reproduce(["combine"], scale, ["embedded"], RunSettings(tmp_path / "out", tasks=6), "glocal reproduce")
    assert not (tmp_path / "out").exists()


def test_seeds_count_from_the_one_that_is_set() -> None:
    scale = tiny_scale().set_as("paper", ["seed=1"])
    runs = [scale.gel(NAME, 1).seeded(k) for k in range(3)]
    assert [[step.resolved(start="?").seed for step in run.chain()] for run in runs] == [[1, 1], [2, 2], [3, 3]]
    heads = tiny_scale().set_as("paper", ["train:seed=5"]).gel(NAME, 1).seeded(1)
    assert [step.resolved(start="?").seed for step in heads.chain()] == [1, 6]


def test_tables_state_the_spread_over_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_DATA", str(make_data(tmp_path / "data")))
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    settings = RunSettings(tmp_path / "out", tasks=6, workers=1, seeds=2)
    reproduce(["combine"], tiny_scale(), [NAME], settings, "glocal reproduce")
    found = json.loads((settings.out / NUMBERS).read_text("utf-8"))
    assert found["training_seeds"] == 2
    assert sorted({about["seed"] for about in found["runs"].values()}) == [0, 1]
    made = [about["environment"] for about in [found, *found["runs"].values()]]
    assert {each["torch"] for each in made} == {str(torch.__version__)}
    assert {each["threads"] for each in made} == {1}, "as the recipes say"
    (combine,) = found["pieces"]
    for table in combine["tables"]:
        for row in table["rows"]:
            assert row["seeds"]["auroc"]["n"] == 2
            assert row["seeds"]["auroc"]["mean"] == pytest.approx(row["values"]["auroc"]["mean"])
        ahead = table["rows"][1]
        assert ahead["difference_seeds"]["auroc"]["mean"] == pytest.approx(ahead["difference"]["auroc"]["mean"])
        assert "those of the heads" not in table["caption"], "backbones are trained too"
    page = (settings.out / "report.md").read_text("utf-8")
    assert "mean of 2 trainings" in page
    assert "over seeds [" in page

"""``reproduce --seeds``: every row from several trainings, and a verdict that needs tasks and seeds to agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from glocal.research.metrics import PairedDifference, Spread, spread
from glocal.research.reproduce.machine import differences, machine
from glocal.research.reproduce.measurement import _whose_seeds
from glocal.research.reproduce.plans import TABLES, Line
from glocal.research.reproduce.report_folder import NUMBERS
from glocal.research.reproduce.reproduction import NOTES, _both, _made_elsewhere, _verdict, findings, reproduce
from glocal.research.reproduce.runs import Run, Settings
from glocal.research.reproduce.scales import SCALES
from glocal.research.same_sums import ORDER
from refusal import refused
from tiny_reproduction import NAME, gap, make_data, tiny_scale


def test_the_spread_over_seeds_is_students() -> None:
    found = spread([0.70, 0.74, 0.72])
    assert (found.mean, found.std, found.n) == (pytest.approx(0.72), pytest.approx(0.02), 3)
    assert (found.low, found.high) == (pytest.approx(0.6703, abs=1e-4), pytest.approx(0.7697, abs=1e-4))
    with refused("data", "got 1"):
        spread([0.7])


def over(low: float, high: float) -> Spread:
    return Spread((low + high) / 2, 0.01, low, high, 3)


@pytest.mark.parametrize(
    ("tasks", "seeds", "words"),
    [
        ((0.01, 0.03), (0.005, 0.05), "helps"),
        ((-0.03, -0.01), (-0.04, -0.01), "hurts"),
        ((0.01, 0.03), (-0.02, 0.06), "makes no settled difference"),
        ((-0.01, 0.03), (0.01, 0.02), "makes no settled difference"),
        ((0.01, 0.03), (-0.05, -0.01), "makes no settled difference"),
    ],
)
def test_a_verdict_needs_both(tasks: tuple[float, float], seeds: tuple[float, float], words: str) -> None:
    assert _verdict([_both(gap(*tasks), over(*seeds))]) == words
    assert _both(gap(*tasks), None) == gap(*tasks), "with one seed there is nothing else to go by"


class Gained:
    """Stands in for what was measured: every difference is the same."""

    def __init__(self, seeds: int):
        self.seeds = seeds

    def difference(self, line: Line, other: Line) -> PairedDifference:
        return gap(0.01, 0.03)

    def over_seeds(self, line: Line, metric: str, other: Line) -> Spread | None:
        return over(0.005, 0.05) if self.seeds > 1 else None


@pytest.mark.parametrize("seeds", [1, 3])
def test_one_seed_settles_nothing(seeds: int) -> None:
    found: Any = {("embedded", shot): Gained(seeds) for shot in (1, 5)}
    *_, said = findings(SCALES["embedded"], ["combine"], ["embedded"], found)
    verdict, _, numbers = said.partition(": against ")
    alone = " (over tasks alone: one training seed settles nothing)" if seeds == 1 else ""
    assert verdict == f"Combining ahead helps{alone}"
    assert ("over seeds [" in numbers) == (seeds > 1)


def test_another_seed_reaches_all_a_run_starts_from() -> None:
    run = Run("demo-gel", ("train.tasks=2",), Run("demo-protonet", init="shipped"))
    assert run.seeded(0) == run
    first, second = run.seeded(2).chain()
    assert (first.overrides, first.init, second.overrides) == (("seed=2",), "shipped", ("train.tasks=2", "seed=2"))


def test_a_misspelt_setting_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    scale = SCALES["embedded"].set_as("paper", ["train:train.taks=1"])
    with refused("recipe", "taks"):
        reproduce(["combine"], scale, ["embedded"], Settings(tmp_path / "out", tasks=6), "glocal reproduce")
    assert not (tmp_path / "out").exists()


def test_seeds_count_from_the_one_that_is_set() -> None:
    scale = tiny_scale().set_as("paper", ["seed=1"])
    runs = [scale.gel(NAME, 1).seeded(k) for k in range(3)]
    assert [[step.resolved(start="?").seed for step in run.chain()] for run in runs] == [[1, 1], [2, 2], [3, 3]]
    heads = tiny_scale().set_as("paper", ["train:seed=5"]).gel(NAME, 1).seeded(1)
    assert [step.resolved(start="?").seed for step in heads.chain()] == [1, 6]


@pytest.mark.parametrize("scale", SCALES)
def test_seeds_of_heads_on_one_backbone_are_not_called_more_than_that(scale: str) -> None:
    heads = scale in ("cpu", "wide", "full")
    lines = TABLES["combine"].lines(SCALES[scale], SCALES[scale].datasets[-1], 1)
    assert ("those of the heads" in _whose_seeds(lines, 2)) == heads
    assert ("Another training seed is one of the head" in NOTES[scale]) == heads
    assert _whose_seeds(lines, 1) == ""


def test_other_conditions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine()
    assert set(here) == {"threads", "processes", "processor", "cpu", "sums", "torch", "compiled", "device"}
    assert differences(here, here) == differences({}, here) == []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert differences(here, machine()) == [f"threads {here['threads']} instead of 7"]


def test_another_processor_is_no_other_build_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    here, config = machine(), torch.__config__.show()
    features = torch.backends.cpu.get_cpu_capability()
    assert f"CPU capability usage: {features}" in config, "the line that torch writes by the processor it runs on"
    elsewhere = config.replace(f"usage: {features}", "usage: OTHER")
    monkeypatch.setattr(torch.__config__, "show", lambda: elsewhere)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "OTHER")
    assert differences(here, machine()) == [f"CPU features {features} instead of OTHER"]
    monkeypatch.setattr(torch.__config__, "show", lambda: config.replace("GCC", "another compiler"))
    assert any("build of torch" in each for each in differences(here, machine()))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": "of another maker"}, raising=False)
    assert f"processor {here['processor']} instead of of another maker" in differences(here, machine())
    for name, value in ORDER.items():
        monkeypatch.setenv(name, value)
    assert differences(machine() | {"processor": "a third"}, machine()) == [], "all sum alike"


def test_threads_that_the_recipe_names_are_no_other_conditions() -> None:
    here = machine()
    about = {"machine": {**here, "threads": 1}, "recipe": {"speed": {"threads": 1}}}
    assert _made_elsewhere({"run": about}, {**here, "threads": 7}) == []
    about["recipe"] = {"speed": {}}
    assert "run (threads 1 instead of 7)" in _made_elsewhere({"run": about}, {**here, "threads": 7})[0]
    assert machine(threads=5) == {**here, "threads": 5}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("seeds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_DATA", str(make_data(home / "data")))
        patch.setenv("GLOCAL_CACHE", str(home / "cache"))
        how = Settings(home / "out", tasks=6, workers=1, seeds=2)
        reproduce(["combine"], tiny_scale(), [NAME], how, "glocal reproduce")
        record = json.loads((how.out / NUMBERS).read_text("utf-8"))
        record["machine"]["threads"] = 99
        (how.out / NUMBERS).write_text(json.dumps(record))
        reproduce(["combine"], tiny_scale(), [NAME], how, "glocal reproduce")
    return how.out


def test_tables_state_the_spread_over_seeds(out: Path) -> None:
    found = json.loads((out / NUMBERS).read_text("utf-8"))
    assert found["training_seeds"] == 2
    assert sorted({about["seed"] for about in found["runs"].values()}) == [0, 1]
    assert {about["machine"]["torch"] for about in found["runs"].values()} == {str(torch.__version__)}
    assert {about["machine"]["threads"] for about in [found, *found["runs"].values()]} == {1}, "as the recipes say"
    (combine,) = found["pieces"]
    for table in combine["tables"]:
        for row in table["rows"]:
            assert row["seeds"]["auroc"]["n"] == 2
            assert row["seeds"]["auroc"]["mean"] == pytest.approx(row["values"]["auroc"]["mean"])
        ahead = table["rows"][1]
        assert ahead["difference_seeds"]["auroc"]["mean"] == pytest.approx(ahead["difference"]["auroc"]["mean"])
    page = (out / "report.md").read_text("utf-8")
    assert "mean of 2 trainings" in page
    assert "over seeds [" in page
    assert "threads 99 instead of" in page, "the report that was there was made otherwise"

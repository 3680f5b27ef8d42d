"""A table that is made again: what moved beyond its spread, and what was otherwise."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glocal.cli.main import app
from glocal.research.engine.recipe import load_recipe
from glocal.research.reproduce.machine import ALIKE
from glocal.research.reproduce.repeated import changes, read_report, repeated
from glocal.research.same_sums import as_words
from refusal import refused

MACHINE = {"threads": 2, "cpu": "AVX2", "torch": "2.13.0", "compiled": "aaaa", "device": "cpu"}


def row(name: str, auroc: float, half: float | None = None) -> dict[str, Any]:
    over = {} if half is None else {"seeds": {"auroc": {"low": auroc - half, "high": auroc + half}}}
    return {"name": name, "values": {"auroc": {"mean": auroc}}, **over}


def report(*rows: dict[str, Any], seeds: int = 3) -> dict[str, Any]:
    table = {"title": "5-shot", "spec": {"shot": 5}, "tasks_fingerprint": "t", "rows": list(rows)}
    piece = {"what": "ablation", "runs": {"5-shot": {each["name"]: f"run-{each['name']}" for each in rows}}}
    return {"machine": dict(MACHINE), "training_seeds": seeds, "pieces": [{**piece, "tables": [table]}]}


BEFORE = report(row("Baseline", 0.946, 0.02), row("GEL", 0.916, 0.03), row("gone", 0.5, 0.1))


def test_a_move_is_held_against_the_spread_over_seeds() -> None:
    now = report(row("Baseline", 0.883, 0.02), row("GEL", 0.93, 0.03), row("new", 0.7, 0.1))
    now["machine"]["threads"] = 1
    assert [(each.row, each.beyond) for each in changes(BEFORE, now)] == [("Baseline", True), ("GEL", False)]
    (said,) = repeated(BEFORE, now, "docs")
    assert "2 rows that are in both moves by up to 6.30 points (Baseline, 5-shot: 94.60 to 88.30)" in said
    assert "but for 1: Baseline, 5-shot." in said
    assert said.endswith("It was made with threads 2 instead of 1.")


@pytest.mark.parametrize(("moved", "beyond"), [(0.024, False), (0.026, True)])
def test_both_means_have_a_spread(moved: float, beyond: bool) -> None:
    before, now = report(row("GEL", 0.9, 0.02)), report(row("GEL", 0.9 + moved, 0.015))  # together 0.025
    (change,) = changes(before, now)
    assert change.half == pytest.approx(0.025)
    assert change.beyond == beyond


@pytest.mark.parametrize("halves", [(0.01, None), (None, 0.01)])
def test_with_one_seed_there_is_no_spread_to_hold_it_against(halves: tuple[float | None, float | None]) -> None:
    before, now = (report(row("GEL", auroc, half)) for auroc, half in zip((0.9, 0.99), halves, strict=True))
    (change,) = changes(before, now)
    assert (change.half, change.beyond) == (None, False)
    assert "one of the two was made from one seed and states no spread" in repeated(before, now, "docs")[0]


def test_equal_ones_are_said_to_be_equal_when_asked() -> None:
    again = copy.deepcopy(BEFORE)
    (said,) = repeated(BEFORE, again, "docs")
    assert said == (
        "Beside docs, all 3 rows that are in both are equal to the last digit. Nothing that is recorded was otherwise."
    )
    assert repeated(BEFORE, again) == [], "of the report that is replaced there is nothing to say"
    assert repeated(report(row("other", 0.5)), again) == []
    assert repeated(report(row("other", 0.5)), again, "docs") == ["Beside docs: no row is in both."]


def test_other_recipes_tasks_and_seeds_are_named() -> None:
    before, now = report(row("GEL", 0.91), seeds=1), report(row("GEL", 0.92, 0.01))
    del before["machine"]
    now["pieces"][0]["runs"]["5-shot"]["GEL"] = "another"
    now["pieces"][0]["tables"][0]["tasks_fingerprint"] = "others"
    (said,) = repeated(before, now)
    assert "made from one seed and states no spread" in said
    for reason in (
        "a machine that it does not record",
        "other recipes, pictures or starts in 1 of 1 rows",
        "other test tasks in 1",
        "training seeds 1 instead of 3",
    ):
        assert reason in said


def test_settings_that_differ_are_named() -> None:
    before, now = report(row("GEL", 0.91, 0.01)), report(row("GEL", 0.92, 0.01))
    recipe = {"init": "start-1", "optimizer": {"lr": 0.1, "clip": None}, "method": {"name": "gel"}}
    before["runs"] = {"run-GEL": {"recipe": recipe, "data": {"manifest": "a" * 64}}}
    other = {
        "init": "start-2",
        "optimizer": {"lr": 0.2, "clip": None},
        "speed": {"threads": 1},
        "method": {"name": "gel"},
    }
    now["pieces"][0]["runs"]["5-shot"]["GEL"] = "another"
    now["runs"] = {"another": {"recipe": other, "data": {"manifest": "a" * 64}}}
    told = "other recipes, pictures or starts in 1 of 1 rows (optimizer.lr 0.1 instead of 0.2; speed.threads not set "
    assert f"{told}instead of 1)." in repeated(before, now, "docs")[0]
    now["runs"]["another"] = {"recipe": recipe, "data": {"manifest": "b" * 64}}
    assert "(pictures aaaaaaaaaaaa instead of bbbbbbbbbbbb)." in repeated(before, now, "docs")[0]
    now["runs"]["another"] = {"recipe": recipe | {"init": "start-2"}, "data": {"manifest": "a" * 64}}
    assert "starts in 1 of 1 rows." in repeated(before, now, "docs")[0], "of the start alone there is no more to say"
    now["runs"]["another"]["recipe"] = recipe | {f"key{n}": n for n in range(9)}
    assert "; 3 more)" in repeated(before, now, "docs")[0]
    del now["runs"]["another"]
    assert "starts in 1 of 1 rows." in repeated(before, now, "docs")[0], "a report may not tell about its runs"


def test_a_table_that_sums_alike_tells_how_to_do_so() -> None:
    before, now = report(row("GEL", 0.91, 0.01)), report(row("GEL", 0.92, 0.01))
    before["machine"]["sums"], now["machine"]["sums"] = ALIKE, "of the processor"
    assert as_words() in repeated(before, now, "docs")[0]
    for then, today in ((now, before), (before, before), (now, now)):
        assert as_words() not in repeated(then, today, "docs")[0]


def test_keys_that_are_new_since_and_at_their_default_are_no_difference() -> None:
    before, now = report(row("GEL", 0.91, 0.01)), report(row("GEL", 0.92, 0.01))
    whole = load_recipe("demo-gel", ["init=a start"]).model_dump(mode="json")
    whole["method"]["temperature"] = 64
    older = copy.deepcopy(whole) | {"init": "another start"}
    older["method"]["temperature"] = 64.0
    del older["pretrain"]["turn_weight"], older["speed"]
    older["speed"] = {"threads": 2}
    before["runs"] = {"run-GEL": {"recipe": older, "data": {"manifest": "a" * 64}}}
    now["runs"] = {"another": {"recipe": whole, "data": {"manifest": "a" * 64}}}
    now["pieces"][0]["runs"]["5-shot"]["GEL"] = "another"
    assert "in 1 of 1 rows (speed.threads 2 instead of 1)." in repeated(before, now, "docs")[0]


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_what_is_no_report_is_refused_before_anything_is_made(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    with refused("no-report", str(tmp_path)):
        read_report(tmp_path)
    out = tmp_path / "out"
    said = CliRunner().invoke(app, ["reproduce", "combine", "--beside", str(tmp_path), "--out", str(out)])
    assert said.exit_code != 0
    assert not out.exists()


def test_the_committed_reports_can_be_compared_with() -> None:
    for folder in sorted((Path(__file__).parents[2] / "docs" / "results").glob("reproduce-*")):
        found = read_report(folder)
        again = json.loads(json.dumps(found))
        assert changes(found, again), folder.name
        assert not any(each.size for each in changes(found, again))

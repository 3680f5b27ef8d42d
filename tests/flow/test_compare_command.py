"""``glocal compare`` on embedded data with the shipped models: tables, files, a second call that runs nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import glocal as library
from glocal.research.report.comparison import tables_of
from refusal import one_sentence

ONE_CACHE = True
MODELS = ["proto=embedded-protonet", "embedded-gel:E,entropy"]
SMALL = ["--dataset", "embedded", "--tasks", "4", "--query", "5", "--device", "cpu"]


def kept_rows(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (out / "rows").iterdir()}


def test_a_comparison_and_the_same_again(home: Path, glocal: Any) -> None:
    out = home / "kept"
    code, shown, err = glocal("compare", *MODELS, *SMALL, "--shots", "1,2", "--out", out, "--json")
    assert (code, err) == (0, ""), err
    found = json.loads(shown)
    assert set(found) == {"version", "runs", "dataset", "split", "manifest", "reference", "models", "tables"}
    assert found["reference"] == "proto"
    assert [table["spec"]["shot"] for table in found["tables"]] == [1, 2]
    first = found["tables"][0]
    assert [row["name"] for row in first["rows"]] == ["proto", "embedded-gel:E", "embedded-gel:entropy"]
    assert [row["open_score"] for row in first["rows"]] == ["distance", "E", "entropy"]
    assert first["rows"][0]["values"]["acc"]["mean"] > 0.6
    gel, entropy = first["rows"][1:]
    assert gel["values"]["acc"] == entropy["values"]["acc"]
    assert gel["values"]["auroc"] != entropy["values"]["auroc"]
    difference = gel["values"]["auroc"]["mean"] - first["rows"][0]["values"]["auroc"]["mean"]
    assert gel["difference"]["auroc"]["mean"] == pytest.approx(difference)
    assert sum(row["rank"]["auroc"] for row in first["rows"]) == pytest.approx(6)
    assert "Published" not in first["caption"], "the paper has no results on embedded data"

    assert json.loads((out / "compare.json").read_text()) == found
    assert "| embedded-gel:E " in (out / "compare.md").read_text()
    assert r"\begin{tabular}" in (out / "compare.tex").read_text()
    assert len(list(csv.DictReader((out / "compare.csv").read_text().splitlines()))) == 6
    before = kept_rows(out)
    assert len(before) == 6

    _, again, _ = glocal("compare", *MODELS, *SMALL, "--shots", "1,2", "--out", out, "--json")
    assert json.loads(again) == found
    assert kept_rows(out) == before, "a finished model is not run again"
    _, more, _ = glocal("compare", *MODELS, "embedded-gel:margin", *SMALL, "--shots", "1", "--out", out, "--json")
    after = kept_rows(out)
    assert (len(after), before.items() <= after.items()) == (7, True)
    assert json.loads(more)["tables"][0]["rows"][:3] != first["rows"], "ranks count the new row"
    assert json.loads(more)["tables"][0]["rows"][1]["values"] == gel["values"]


@pytest.mark.parametrize("name", ["compare.csv", "compare.json"])
def test_files_of_somebody_else_stay(home: Path, glocal: Any, name: str) -> None:
    mine = home / f"mine-{name}" / name
    mine.parent.mkdir()
    mine.write_text("my own")
    said = glocal("compare", *MODELS, *SMALL, "--shots", "1", "--out", mine.parent)
    one_sentence(said, "not from an earlier run")
    assert [each.name for each in mine.parent.iterdir()] == [name]
    assert mine.read_text() == "my own"


def test_the_numbers_are_those_of_evaluate_and_of_the_library(glocal: Any) -> None:
    shape = ["--support-views", "2", "--seed", "3", *SMALL, "--json"]
    table = json.loads(glocal("compare", *MODELS, "--shots", "2", *shape)[1])["tables"][0]
    evaluated = json.loads(glocal("evaluate", "embedded-gel", "--shot", "2", *shape)[1])
    models = {"gel": library.load_model("embedded-gel")}
    digits = library.open_dataset("embedded", "test")
    how: dict[str, Any] = {"support_views": 2, "seed": 3, "tasks": 4, "query": 5, "device": "cpu"}
    found = library.compare(models, digits, shots=[2], **how)
    (table_of_it,) = tables_of(found)
    alone = library.evaluate(models["gel"], digits, shot=2, **how)
    assert evaluated["support_views"] == table["support_views"] == 2
    assert {evaluated["tasks_fingerprint"], table["tasks_fingerprint"]} == {alone.tasks}
    assert found.evaluations[0]["gel"].tasks == alone.tasks
    for metric, value in evaluated["metrics"].items():
        assert table["rows"][1]["values"][metric]["mean"] == value["mean"] == alone.rows[metric].mean(), metric
        assert table_of_it.table.rows[0].values[metric].mean == value["mean"]


def test_shares_of_unknown_queries_and_a_terminal(glocal: Any) -> None:
    shares = ["--shots", "1", "--unknown-share", "0.1,0.9", "--reference", "proto"]
    code, shown, err = glocal("compare", *MODELS, *SMALL, *shares)
    assert code == 0, err
    assert "45 known + 5 unknown queries per task (10.0 % unknown)" in " ".join(shown.split())
    assert "5 known + 45 unknown queries per task (90.0 % unknown)" in " ".join(shown.split())
    assert "Open score" in shown
    assert shown.count("Rank") >= 4


@pytest.mark.parametrize(("kind", "part"), [("markdown", "| Method "), ("latex", r"\toprule"), ("csv", "way,shot,")])
def test_formats(glocal: Any, kind: str, part: str) -> None:
    code, shown, _ = glocal("compare", "embedded-gel", *SMALL, "--tasks", "2", "--shots", "1", "--format", kind)
    assert code == 0
    assert part in shown


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["embedded-gel:mood"], "got 'mood'"),
        (["embedded-gel", "--reference", "proto"], "the reference must be one of the rows embedded-gel, got 'proto'"),
        (["embedded-gel", "--shots", "1,x"], "--shots must be numbers such as 1,5, got '1,x'"),
        (["embedded-gel", "--shots", "0"], "--shots must be different whole numbers from 1, such as 1,5, got '0'"),
        (["embedded-gel", "--unknown-share", "half"], "--unknown-share must be numbers such as 0.1,0.5, got 'half'"),
    ],
)
def test_what_the_user_can_mend(glocal: Any, arguments: list[str], part: str) -> None:
    one_sentence(glocal("compare", *SMALL, *arguments), part)

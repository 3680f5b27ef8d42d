"""The committed result tables come from the shipped models: measured again on the real pictures, they are the same."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from glocal.cli.main import app
from glocal.research.engine.records import parse_name, shipped_models

ONE_CACHE = True  # tables share backbones: every picture goes through each of them once
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results/data"
COMPARISONS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))}
# Heads on the 1,280 channels of EfficientNet-Lite0 have up to 53 MB each and do not ship; docs/results says how they
# were trained.
LARGE = "caltech-photos"
TABLES = {name: found for name, found in COMPARISONS.items() if "tables" in found and found["dataset"] != LARGE}


@pytest.mark.parametrize("name", TABLES)
def test_the_rows_that_ship_are_there(name: str) -> None:
    pytest.importorskip("glocal_models", reason="the research heads are not installed: pip install ./models")
    rows = [parse_name(run)[0] for run in shipped(TABLES[name])]
    assert TABLES[name]["reference"].split(":")[0] in rows
    assert len(rows) >= (13 if "methods" in name else 2)


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_tables_repeat(name: str) -> None:
    pytest.importorskip("glocal_models", reason="the research heads are not installed: pip install ./models")
    table = TABLES[name]
    home = os.environ.get("GLOCAL_DATA")
    if not home or not (Path(home) / table["dataset"]).is_dir():
        pytest.skip(f"the pictures of {table['dataset']} are not below GLOCAL_DATA ({home or 'not set'})")
    before = rows(table)
    result = CliRunner().invoke(app, ["compare", *shipped(table), *flags(table), "--json"])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    again = rows(json.loads(result.stdout))
    assert again.keys() <= before.keys()
    for row, values in again.items():
        for metric, interval in values.items():
            assert interval["mean"] == pytest.approx(before[row][metric]["mean"], abs=2e-4), (row, metric)


def shipped(table: dict[str, Any]) -> list[str]:
    """Models of the table whose weights are in the packages; the others are numbers alone."""
    there = shipped_models()
    return [run for run in table["runs"] if parse_name(run)[1] in there]


def flags(table: dict[str, Any]) -> list[str]:
    """The options that a comparison was made with."""
    first = table["tables"][0]
    shares = list(dict.fromkeys(str(each["unknown_share"]) for each in table["tables"]))
    options = {
        "dataset": table["dataset"],
        "split": table["split"],
        "shots": ",".join(dict.fromkeys(str(each["spec"]["shot"]) for each in table["tables"])),
        "way": first["spec"]["way"],
        "unknown-way": first["spec"]["unknown_way"],
        "tasks": first["tasks"],
        "seed": first["seed"],
        "support-views": first["support_views"],
        "reference": table["reference"],
    }
    if shares != ["0.5"]:
        options["unknown-share"] = ",".join(shares)
    return [part for key, value in options.items() for part in (f"--{key}", str(value))]


def rows(found: dict[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """By title and name of the row: metric -> interval."""
    return {f"{t['title']}: {row['name']}": row["values"] for t in found["tables"] for row in t["rows"]}


PUBLISHED = ROOT.parent / "shared/data/published"
CHECKPOINTS = list(csv.DictReader((RESULTS / "published-checkpoints.csv").read_text("utf-8").splitlines()))


@pytest.mark.long
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published files are not in ../shared/data/published")
@pytest.mark.parametrize("line", CHECKPOINTS, ids=lambda line: f"{line['dataset']}-{line['shot']}shot")
def test_published_checkpoints_repeat(line: dict[str, str], tmp_path: Path) -> None:
    home, model = os.environ.get("GLOCAL_DATA"), str(tmp_path / "model.safetensors")
    if not home or not (Path(home) / line["dataset"]).is_dir():
        pytest.skip(f"the pictures of {line['dataset']} are not below GLOCAL_DATA ({home or 'not set'})")
    shape = ["--dataset", line["dataset"], "--shot", line["shot"], "--tasks", line["tasks"]]
    shape += ["--query", "8" if line["dataset"] == LARGE else "15"]
    for command in (["import", str(PUBLISHED / line["file"]), "-o", model], ["evaluate", model, *shape, "--json"]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    metrics = json.loads(result.stdout)["metrics"]
    for metric in ("acc", "auroc"):
        assert 100 * metrics[metric]["mean"] == pytest.approx(float(line[metric]), abs=0.02)

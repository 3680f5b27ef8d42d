"""Wherever a page gives the numbers of our form of GEL it names it, and gives those of GEL as published beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glocal.research.engine.recipe import load_recipe, shipped_recipes
from glocal.research.engine.records import read_record, shipped_models
from glocal.research.plugins import recipe_file

ROOT = Path(__file__).parents[2]
TABLES = json.loads((ROOT / "docs/results/data/reproduce-cifar-fs-full.json").read_text("utf-8"))["pieces"][0]["tables"]
OURS, PUBLISHED = "+ Combine", "+ Combine, as published"


def pair(table: dict, name: str, digits: int) -> str:
    """ACC / AUROC as pages write them."""
    (row,) = [row for row in table["rows"] if row["name"] == name]
    return " / ".join(f"{100 * row['values'][metric]['mean']:.{digits}f}" for metric in ("acc", "auroc"))


def pages() -> dict[str, str]:
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "models").rglob("*.md")]
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in found}


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table['spec']['shot']}-shot")
def test_our_form_is_named_and_the_published_form_stands_beside_it(table: dict, digits: int):
    ours, published = pair(table, OURS, digits), pair(table, PUBLISHED, digits)
    telling = {name: page for name, page in pages().items() if ours in page}
    assert {"README.md", "docs/results/reproduction.md"} <= telling.keys() or digits == 1
    for name, page in telling.items():
        for line in [line for line in page.splitlines() if ours in line]:
            assert "frozen-gel" in line, f"{name}: {line}"
        assert published in page, f"{name} tells of our form alone: {ours}"


def test_the_page_on_reproduction_begins_with_the_method_as_published():
    lines = (ROOT / "docs/results/reproduction.md").read_text("utf-8").splitlines()
    first = lines[next(i for i, line in enumerate(lines) if line.startswith("|---")) + 1]
    assert first.startswith("| GEL as published |")
    assert all(pair(table, PUBLISHED, 2) in first for table in TABLES)


def test_cards_and_recipes_that_speak_of_gel_name_our_form_where_it_is_ours():
    for name, path in shipped_models().items():
        card = path.with_suffix(".md") if path.with_suffix(".md").exists() else path.parent / "README.md"
        if read_record(path)["method"]["name"] == "frozen-gel":
            assert "frozen-gel" in card.read_text("utf-8"), name
            assert "\nGEL on" not in card.read_text("utf-8"), name
    for name in shipped_recipes():
        about = recipe_file(name).read_text("utf-8").partition(" = ")[0]
        if load_recipe(name, ["init=x"]).method.name == "frozen-gel" and "GEL" in about:
            assert "frozen-gel" in about, name

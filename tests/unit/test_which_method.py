"""The page that compares all methods is what its tool writes from the table, and ranks are places within tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from glocal.research.methods import METHODS

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_the_page_is_written_from_the_table() -> None:
    import which_method_page

    table = which_method_page.read(ROOT / "docs/results/data/which-method.csv")
    page = (ROOT / "docs/results/which-method.md").read_text("utf-8")
    assert page == which_method_page.page(table)
    prose = [line for line in page.splitlines() if not line.startswith("|")]
    assert len(" ".join(prose).split()) <= 500
    assert all(f"`{name}" in page for name in METHODS), "what was not run is said"


def test_a_rank_is_the_mean_place_by_both_metrics() -> None:
    import which_method

    best, middle, last = ({"acc": np.array(acc), "auroc": np.array(auroc)} for acc, auroc in (
        ([0.9, 0.9], [0.8, 0.9]),
        ([0.9, 0.5], [0.7, 0.7]),
        ([0.1, 0.2], [0.6, 0.8]),
    ))  # fmt: skip
    ranks = which_method.ranks([best, middle, last])
    assert [round(mean, 3) for mean, _, _ in ranks] == [1.125, 2.125, 2.75]  # ACC 1.5, 1; 1.5, 2; 3, 3
    assert all(low <= mean <= high for mean, low, high in ranks)

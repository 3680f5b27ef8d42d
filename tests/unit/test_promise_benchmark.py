"""benchmarks/promise.py keeps what it measured, and its page shows the times of two versions when there are any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.mark.usefixtures("scripts")
def test_a_finished_part_is_not_measured_again(tmp_path: Path) -> None:
    from promise import kept_or

    turns: list[int] = []

    def measured() -> Any:
        turns.append(1)
        return {"false": [0.05 * len(turns)]}

    first = kept_or(tmp_path / "part.json", measured)
    assert kept_or(tmp_path / "part.json", measured) == first == {"false": [0.05]}
    assert kept_or(tmp_path / "other.json", measured) == {"false": [0.1]}


@pytest.mark.usefixtures("scripts")
def test_times_of_two_versions_become_a_table_with_ratios(tmp_path: Path) -> None:
    from promise_page import _versions

    assert _versions(tmp_path / "versions.json") == []
    record = {"before": "abc1234", "turns": 3, "seconds": {"enroll": [4.0, 3.0], "predict": [2.0, 2.5]}}
    (tmp_path / "versions.json").write_text(json.dumps(record), encoding="utf-8")
    page = _versions(tmp_path / "versions.json")
    assert "| enroll | 4.00 | 3.00 | 0.75 |" in page
    assert "| predict | 2.00 | 2.50 | 1.25 |" in page
    assert any("--before abc1234" in line for line in page)

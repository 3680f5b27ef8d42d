"""benchmarks/promise.py keeps what it measured, and its page shows the times of two versions when there are any."""

from __future__ import annotations

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

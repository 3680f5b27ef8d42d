"""``tools/record_answers.py compare``: when are two records of answers the same?"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "record_answers.py"
spec = importlib.util.spec_from_file_location("record_answers", SCRIPT)
assert spec is not None
assert spec.loader is not None
record_answers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(record_answers)

RECORD: dict[str, Any] = {
    "photos": {"gel": {"source": "mixed", "a.jpg": {"label": "nut", "is_unknown": False, "open_score": -400.0}}},
    "heads": {"x": {"tasks_fingerprint": "a73122", "mean": 0.5, "rows": [1, 2], "rank": None, "odd": float("nan")}},
}


def changed(*keys: str | int, to: Any) -> dict[str, Any]:
    record = copy.deepcopy(RECORD)
    place = record
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return record


@pytest.mark.parametrize(
    ("keys", "to", "mismatches"),
    [
        (("heads", "x", "mean"), 0.5 + 9e-7, 0),
        (("heads", "x", "mean"), 0.5 - 2e-6, 1),
        (("photos", "gel", "a.jpg", "open_score"), -400.0003, 0),  # relative to the number where that is above 1
        (("photos", "gel", "a.jpg", "open_score"), -400.0005, 1),
        (("photos", "gel", "a.jpg", "open_score"), float("nan"), 1),
        (("photos", "gel", "a.jpg", "label"), "bolt", 1),
        (("photos", "gel", "a.jpg", "is_unknown"), 0, 1),  # equal to False, but something else
        (("photos", "gel", "source"), "left out", 1),
        (("heads", "x", "tasks_fingerprint"), "a73123", 1),
        (("heads", "x", "rank"), 1.0, 1),
        (("heads", "x", "rows"), [1], 1),
        (("heads", "x", "new"), 3, 1),
        (("heads", "x"), {"error": "RuntimeError: no such model"}, 6),  # five values are gone, an error is new
        (("more",), {}, 1),
    ],
)
def test_each_change_is_found(keys: tuple[str | int, ...], to: Any, mismatches: int) -> None:
    other = changed(*keys, to=to)
    assert len(record_answers.compare(RECORD, other, 1e-6)) == mismatches
    assert len(record_answers.compare(other, RECORD, 1e-6)) == mismatches


def test_a_line_for_each_section_and_each_mismatch(tmp_path: Path, monkeypatch, capsys):
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file, record in zip(files, (RECORD, changed("heads", "x", "mean", to=0.625)), strict=True):
        file.write_text(json.dumps(record))
    monkeypatch.setattr(sys, "argv", ["record_answers.py", "compare", *map(str, files)])
    assert record_answers.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "photos: 1 numbers, 0 errors, 0 mismatches, largest difference 0",
        "heads: 4 numbers, 0 errors, 1 mismatches, largest difference 0.125",
        "heads/x/mean: 0.5 -> 0.625",
        "1 mismatches",
    ]
    monkeypatch.setattr(sys, "argv", ["record_answers.py", "compare", str(files[0]), str(files[0])])
    assert record_answers.main() == 0


def test_the_same_error_twice_is_counted_but_no_mismatch(capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"heads": {"x": {"error": "RuntimeError: no such model"}}}
    assert record_answers.compare(failed, failed, 1e-6) == []
    assert "1 errors, 0 mismatches" in capsys.readouterr().out

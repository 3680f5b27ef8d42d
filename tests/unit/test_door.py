"""What a sentence shows of a wrong value: its beginning, and of what Python cannot write its kind."""

from __future__ import annotations

import sys

import pytest

from glocal.common.validation import SHOWN, check_kind, check_record, shown
from glocal.recognizer.photos.images import Preprocess


def deep() -> object:
    value: object = []
    for _ in range(sys.getrecursionlimit() + 10):
        value = [value]
    return value


def test_any_value_can_be_shown() -> None:
    assert shown("x") == "'x'"
    assert shown(ValueError("no")) == "no"
    assert shown("x" * 1_000) == f"'{'x' * (SHOWN - 1)}..."
    assert shown(deep()) == "a value of type list that is too large to be shown"
    assert shown(16**4_000) == "a value of type int that is too large to be shown"
    for value in (deep(), [16**4_000]):
        with pytest.raises(ValueError, match="too large to be shown"):
            check_kind(value, str, "name")
        with pytest.raises(ValueError, match="too large to be shown"):
            check_record(Preprocess, {"size": value})

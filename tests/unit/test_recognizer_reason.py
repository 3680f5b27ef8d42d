"""Answers in words, word for word."""

from __future__ import annotations

from dataclasses import replace

from glocal_runtime.prediction import Evidence, reason

USUAL = {"E_c": (-9.0, -7.0), "E_f": (1.0, 3.0), "patches": (20.0, 45.0), "open_score": (-6.0, -4.0)}
KNOWN = Evidence("bolt", 0.93, False, -5.5, -3.9, {"E_c": -8.0, "E_f": 2.0}, (41, 49))


def test_a_known_picture() -> None:
    assert reason(KNOWN, USUAL) == (
        "bolt (93 %): global and local match as usual, 41 of 49 patches match (usually 20 to 45); "
        "global energy -8 (usually -9 to -7); local energy 2 (usually 1 to 3)"
    )


def test_an_unknown_picture_names_what_is_weak() -> None:
    weak = replace(KNOWN, is_unknown=True, probability=0.41, parts={"E_c": -8.0, "E_f": 4.5}, patches=(3, 49))
    assert reason(weak, USUAL).startswith(
        "nearest class bolt (41 %), but local match is weak: 3 of 49 patches match (usually 20 to 45); global energy -8"
    )
    both = replace(weak, parts={"E_c": -6.0, "E_f": 4.5})
    assert "but global and local match are weak: 3 of 49" in reason(both, USUAL)
    whole = replace(weak, parts={"E_c": -6.0, "E_f": 2.0})
    assert "but global match is weak; global energy -6 (usually -9 to -7)" in reason(whole, USUAL)


def test_weak_but_known() -> None:
    assert reason(replace(KNOWN, parts={"E_c": -6.9, "E_f": 2.0}), USUAL).startswith(
        "bolt (93 %), though global match is weak; "
    )


def test_unknown_without_a_part_out_of_range() -> None:
    edge = replace(KNOWN, is_unknown=True, open_score=-3.5)
    assert reason(edge, USUAL).startswith(
        "nearest class bolt (93 %), but it is not like it enough: open score -3.5, above the threshold -3.9; global"
    )


def test_a_method_that_sees_no_patches() -> None:
    plain = replace(KNOWN, parts={}, patches=None)
    assert reason(plain, USUAL) == "bolt (93 %): it matches; open score -5.5 (usually -6 to -4)"
    assert reason(replace(plain, is_unknown=True, open_score=-3.5), USUAL) == (
        "nearest class bolt (93 %), but it is not like it enough: open score -3.5, above the threshold -3.9; "
        "known photos score -6 to -4"
    )


def test_nothing_is_usual_yet() -> None:
    assert reason(KNOWN, {}) == ("bolt (93 %): it matches, 41 of 49 patches match; global energy -8; local energy 2")
    assert "patches match (usually 4);" in reason(KNOWN, {**USUAL, "patches": (4.0, 4.0)})

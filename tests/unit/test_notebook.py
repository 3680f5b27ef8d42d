"""What a notebook shows of a recognizer, an answer, an evaluation and a comparison."""

from __future__ import annotations

import glocal
from glocal.recognizer.prediction import Prediction
from photos import recognizer, some

HOSTILE = "<script>alert(1)</script>"
SHAPE = {"way": 3, "unknown_way": 2, "query": 3, "tasks": 4, "device": "cpu"}


def test_a_recognizer_and_its_answers() -> None:
    who = recognizer({"zero": 5, "one": 3})
    assert repr(who) == "<Recognizer of 2 classes (zero, one), 8 photos, frozen-gel on embedded-gel>"
    who.rename_class("zero", HOSTILE.replace("/", "|"))
    shown = who._repr_html_()
    assert shown.count("<img") == 8
    assert "named right" in shown
    assert "<script>" not in shown
    [answer] = recognizer().predict(some("two", 30, 31))
    assert repr(answer).startswith("<Prediction 0: two, ")
    assert repr([answer]).count("%") == 1, "a list of answers can be read"
    shown = answer._repr_html_()
    assert "<strong>two</strong>" in shown
    assert "match" in shown
    odd = Prediction(HOSTILE, HOSTILE, False, 1.0, 2.0, {HOSTILE: 0.7, "unknown": 0.3}, HOSTILE, HOSTILE, HOSTILE)
    assert "<script>" not in odd._repr_html_()


def test_an_evaluation_and_a_comparison() -> None:
    one = glocal.evaluate("embedded-gel", "embedded", **SHAPE)
    assert repr(one).startswith("<Evaluation of embedded-gel on embedded/test, 3-way 1-shot, 4 tasks: ACC ")
    assert one._repr_html_().count("<tr>") == 1 + len(one.rows)
    both = glocal.compare(["embedded-protonet", "embedded-gel"], "embedded", shots=[1, 5], **SHAPE)
    assert repr(both) == "<ModelComparison of embedded-protonet, embedded-gel on embedded/test: 2 task lists>"
    shown = both._repr_html_()
    assert shown.count("<table") == 2
    assert shown.count("<tr>") == 2 * (1 + 2)

"""The share of unknowns among the last photos, and the range that the target rate allows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from glocal.recognizer.decision import Threshold
from glocal.recognizer.diagnosis.drift import OUTSIDE, Drift, allowed

FIVE = Threshold(0.0, 0.05, 0.05, (0.01, 0.12), "leave-one-out")


def test_the_range_holds_chance_and_the_prediction_interval() -> None:
    sure = Threshold(0.0, 0.05, 0.05, (0.0499, 0.0501), "leave-one-out")
    low, high = allowed(sure, 200) or (math.nan, math.nan)
    # Binomial alone, by its exact tails.
    tail = np.array([math.comb(200, k) * 0.05**k * 0.95 ** (200 - k) for k in range(201)])
    above = tail[::-1].cumsum()[::-1]
    assert above[round(high * 200) + 1] <= 1.3 * OUTSIDE / 2
    assert above[round(high * 200)] >= 0.7 * OUTSIDE / 2
    below = tail.cumsum()
    assert below[round(low * 200) - 1] <= 1.3 * OUTSIDE / 2 <= 2 * below[round(low * 200)]
    wide = allowed(FIVE, 200)
    assert wide is not None
    assert high < wide[1] < 0.25
    assert (allowed(FIVE, 2000) or wide)[1] < wide[1]


def test_a_range_needs_a_target_rate() -> None:
    by_hand = Threshold(0.0, 0.05, None, None, "user")
    assert allowed(by_hand, 200) is None
    drift = Drift(by_hand, last=3)
    assert [drift.add(True) for _ in range(9)] == [""] * 9
    assert drift.share == 1.0


def test_one_sentence_when_it_leaves_and_one_when_it_is_back() -> None:
    drift = Drift(FIVE, last=100)
    assert {drift.add(True) for _ in range(99)} == {""}
    assert drift.share is None, "too few photos to tell"
    assert drift.add(True)
    drift = Drift(FIVE, last=100)
    assert {drift.add(i % 20 == 0) for i in range(300)} == {""}
    assert drift.share == 0.05
    left = [drift.add(i % 2 == 0) for i in range(300)]
    assert drift.sentence
    assert len([sentence for sentence in left if sentence]) == 1
    back = [drift.add(i % 20 == 0) for i in range(300)]
    assert len([sentence for sentence in back if sentence]) == 1
    assert drift.sentence == ""


@pytest.mark.parametrize("share", [0.02, 0.05, 0.09])
def test_known_photos_alone_rarely_leave_the_range(share: float) -> None:
    """Recognizers within the prediction interval, each with 5,000 photos of its classes."""
    random = np.random.default_rng(1)
    alarms = 0
    for _ in range(20):
        drift = Drift(FIVE)
        alarms += any(drift.add(bool(each)) for each in random.random(5_000) < share)
    assert alarms <= 1

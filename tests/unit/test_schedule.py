"""Learning-rate factors at places where a wrong formula gives another number."""

from __future__ import annotations

import pytest

from glocal.engine.recipe import Optimizer


def factors(progress: list[float], **settings: object) -> list[float]:
    optimizer = Optimizer.model_validate(settings)
    return [optimizer.factor(at) for at in progress]


def test_constant() -> None:
    assert factors([0.0, 0.5, 0.99], schedule="constant") == [1.0, 1.0, 1.0]


def test_steps_fall_at_each_milestone_and_stay() -> None:
    found = factors([0.0, 0.39, 0.4, 0.69, 0.7, 0.99], schedule="steps", milestones=[0.4, 0.7], gamma=0.1)
    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01], rel=1e-12)
    assert factors([0.9], schedule="steps") == [1.0], "without milestones the rate stays"


def test_one_cycle_rises_then_falls_in_straight_lines() -> None:
    found = factors([0.0, 0.1, 0.2, 0.6, 0.9999], schedule="one-cycle", warmup=0.2)
    assert found == pytest.approx([0, 0.5, 1, 0.5, 1e-3], rel=1e-12)
    assert factors([0.0, 0.5], schedule="one-cycle", warmup=0.0) == [1.0, 0.5]


def test_cosine_rises_straight_then_falls_as_half_a_wave() -> None:
    found = factors([0.1, 0.2, 0.4, 0.6, 0.8], schedule="cosine", warmup=0.2)
    assert found == pytest.approx([0.5, 1, 0.5 + 0.5 * 0.5**0.5, 0.5, 0.5 - 0.5 * 0.5**0.5], rel=1e-12)
    assert factors([0.0], schedule="cosine", warmup=0.0) == [1.0]


def test_every_factor_lies_between_nothing_and_the_base_rate() -> None:
    steps = 97
    for schedule in ("constant", "steps", "one-cycle", "cosine"):
        found = factors([step / steps for step in range(steps)], schedule=schedule, milestones=[0.3])
        assert all(0 <= factor <= 1 for factor in found), schedule
        assert max(found) == pytest.approx(1, abs=0.02), schedule

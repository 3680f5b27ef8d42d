"""Learning rate as a pure function of how much of the run is done."""

from __future__ import annotations

import math

from glocal.engine.recipe import Optimizer


def rate_factor(settings: Optimizer, progress: float) -> float:
    """Factor on the base rate at ``progress`` in [0, 1): steps taken / steps in all."""
    match settings.schedule:
        case "constant":
            return 1.0
        case "steps":
            return settings.gamma ** sum(progress >= milestone for milestone in settings.milestones)
        case "one-cycle":  # straight up, straight down to almost nothing
            up = settings.warmup
            return progress / up if progress < up else max(1e-3, (1 - progress) / (1 - up))
        case "cosine":
            up = settings.warmup
            return progress / up if progress < up else 0.5 * (1 + math.cos(math.pi * (progress - up) / (1 - up)))

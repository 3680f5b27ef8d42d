"""What to expect of a recognizer, said first: three numbers from its own photos, and one verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glocal.recognizer.calibration.leave_one_out import LeftOut
from glocal.recognizer.decision import Decision
from glocal.recognizer.diagnosis.rate import Rate

CHANCE = 1.3  # times what guessing would name right, up to which naming counts as guessing
ENOUGH = 3  # photos of a class; with fewer, naming no better than guessing may be chance
MISSING = 1.0  # log odds; means over thirteen domains with 2 photos: 71 % counted, 80 % real
TELLING = 0.02  # difference between what was counted and what is expected that is worth saying
NEARLY_ALL = 0.95  # a few classes of which all was caught do not show 100 %
MOST, SOME = 0.6, 0.3  # least share of caught unknowns that counts as most, or as some
BASIS = "if unknown things are as like your classes as these are like each other"
LEVERS = "a higher target rate, more photos of each class, or known unknowns (--unknown DIR) catch more"
BLIND = 2.0  # times the false unknowns, up to which catching unknown things counts as chance


@dataclass(frozen=True)
class Outlook:
    """Each photo judged without itself, each class once left out as if it were unknown."""

    named_right: Rate | None  # None for a single class, and when no class has two photos
    named_right_expected: float | None  # of new photos: with all photos enrolled it names more than without one
    false_unknown: float | None
    false_unknown_interval: tuple[float, float] | None
    caught: Rate | None  # None for a single class, and in a file of an earlier version until it changes
    usable: bool | None  # None when it cannot be told
    verdict: str

    def lines(self) -> list[str]:
        """The three numbers and the verdict, for people."""
        named = "cannot be told yet" if self.named_right is None else str(self.named_right)
        counted, expected = self.named_right, self.named_right_expected
        if counted is not None and expected is not None and abs(expected - counted.value) >= TELLING:
            named += f", with all photos about {100 * expected:.0f} %"
        if self.false_unknown is None or self.false_unknown_interval is None:
            false = "nothing is promised"
        else:
            low, high = self.false_unknown_interval
            span = f"95 % prediction interval {100 * low:.1f} to {100 * high:.1f} %"
            false = f"{100 * self.false_unknown:.1f} % expected ({span})"
        caught = "cannot be told yet" if self.caught is None else f"{self.caught}, {BASIS}"
        return [
            self.verdict,
            f"named right:          {named}",
            f"known, but 'unknown': {false}",
            f"unknown caught:       {caught}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fields = {name: value.to_json() if isinstance(value, Rate) else value for name, value in vars(self).items()}
        interval = self.false_unknown_interval
        return fields | {"false_unknown_interval": None if interval is None else list(interval)}


def outlook(shots: Sequence[int], decision: Decision) -> Outlook:
    left, strange, threshold = decision.measured.left_out, decision.measured.strange, decision.threshold
    named = Rate(sum(each.nearest == each.label for each in left), len(left)) if left and len(shots) > 1 else None
    caught = None
    if strange:
        above = int((decision.levelled(strange) > threshold.value).sum())
        caught = Rate(above, len(strange), groups=len({each.label for each in strange}))
    usable, verdict = _verdict(shots, named, caught, threshold.expected)
    return Outlook(named, _expected(named, left), threshold.expected, threshold.interval, caught, usable, verdict)


def _expected(named: Rate | None, left: Sequence[LeftOut]) -> float | None:
    """What is expected when no photo is missing: leaving one out costs ``MISSING`` / photos of the class in log odds.

    Half a photo is counted on each side, because few photos say little.
    """
    if named is None:
        return None
    odds = math.log((named.k + 0.5) / (named.n - named.k + 0.5))
    odds += MISSING * sum(1 / (each.shots + 1) for each in left) / len(left)
    return 1 / (1 + math.exp(-odds))


def _verdict(
    shots: Sequence[int], named: Rate | None, caught: Rate | None, false: float | None
) -> tuple[bool | None, str]:
    way = len(shots)
    if named is not None and _like_guessing(named, way):
        counted = (
            f"photos judged by the others get their name {100 * named.value:.0f} % of the time, and guessing would "
            f"reach {100 / way:.0f} %"
        )
        if named.value > CHANCE / way and sum(shots) < ENOUGH * way:
            return None, f"cannot be told from so few photos: {counted}. Add a second and third photo of each class"
        return False, (
            f"not usable as it is: {counted}. Either the classes differ in something the encoder does not "
            "see, or photos are in the wrong folders. Look at the photos named below, add photos that show the "
            "difference, crop to it, or try another encoder"
        )
    weak = caught is not None and false is not None and caught.value <= BLIND * false
    if way == 1:
        return None, (
            "too early to tell: a single class has no other name, and nothing shows how others score; "
            "add a second class, or other things"
        )
    if named is None:
        return None, "cannot be judged from one photo per class: add a second and third photo of each"
    if weak:
        return True, (
            "usable for naming, but it hardly notices unknown things: the classes look as much like other things as "
            f"like themselves; {LEVERS}"
        )
    if caught is None:
        return True, "usable for naming; what it will catch cannot be told yet"
    part = f"about {100 * caught.value:.0f} % of" if caught.value < NEARLY_ALL else "nearly all"
    share = f"{part} unknown things will be caught, {BASIS}"
    if caught.value >= MOST:
        return True, f"usable: {share}"
    few = "many unknown things will be missed" if caught.value >= SOME else "most unknown things will be missed"
    return True, f"usable for naming, but {few}: {share}; {LEVERS}"


def _like_guessing(named: Rate, way: int) -> bool:
    """Whether guessing would give such a count more easily than naming that is better than ``CHANCE``, all alike."""
    better = CHANCE / way + (1 - CHANCE / way) * (np.arange(200) + 0.5) / 200
    guessing, naming = (named.k * np.log(p) + (named.n - named.k) * np.log1p(-p) for p in (1 / way, better))
    return named.value <= CHANCE / way or bool(np.exp(naming - guessing).mean() <= 1)

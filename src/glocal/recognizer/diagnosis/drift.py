"""Whether the last photos are as often unknown as the target rate allows.

While all photos show enrolled classes, the share of unknowns lies around the target rate.  How far from it, the
prediction interval of the recognizer and the number of photos tell.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from glocal.recognizer.decision import Threshold
from glocal.recognizer.diagnosis.rate import Z95

LAST = 200  # photos
OUTSIDE = 0.001  # probability that the share leaves its range by chance: a watched folder is judged very often
DRAWN = 100_000


class Drift:
    """The share of unknowns among the last photos, and the range that it should lie in.

    Without a target rate there is no range.
    """

    def __init__(self, threshold: Threshold, last: int = LAST) -> None:
        self.last, self.range = last, allowed(threshold, last)
        self.sentence = ""  # while the share is outside
        self._unknown: deque[bool] = deque(maxlen=last)

    @property
    def share(self) -> float | None:
        """Of unknowns among the last photos; None before there are as many."""
        return sum(self._unknown) / self.last if len(self._unknown) == self.last else None

    def add(self, is_unknown: bool) -> str:
        """Count one more answer; a sentence when the share leaves its range, and when it is back."""
        self._unknown.append(is_unknown)
        share = self.share
        if share is None or self.range is None:
            return ""
        low, high = self.range
        shown = f"{100 * share:.0f} % of the last {self.last} photos are unknown"
        if not self.sentence and not low <= share <= high:
            bound = f"at most {100 * high:.0f} %" if share > high else f"at least {100 * low:.0f} %"
            self.sentence = (
                f"{shown}, where the target rate allows {bound}; look whether something new has "
                "come or the photos have changed"
            )
            return f"drift: {self.sentence}"
        if self.sentence and abs(share - (low + high) / 2) <= (high - low) / 4:  # well inside, so that it stays there
            self.sentence = ""
            return f"no drift any more: {shown}"
        return ""


def allowed(threshold: Threshold, n: int) -> tuple[float, float] | None:
    """Where the share of unknowns among n photos of enrolled classes lies; None without a target rate."""
    if threshold.expected is None or threshold.interval is None or not 0 < threshold.expected < 1:
        return None
    mean, (low, high) = threshold.expected, threshold.interval
    spread = max((high - low) / (2 * Z95), 1e-6)
    worth = max(mean * (1 - mean) / spread**2 - 1, 1e-3)  # of the beta distribution with this mean and spread
    random = np.random.default_rng(0)
    drawn = random.binomial(n, random.beta(mean * worth, (1 - mean) * worth, DRAWN)) / n
    low, high = np.quantile(drawn, [OUTSIDE / 2, 1 - OUTSIDE / 2])
    return float(low), float(high)

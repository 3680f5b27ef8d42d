r"""What a head knows about its own scores, and the threshold that follows for a support it has never seen.

The open score u of a known photo, its class enrolled with k photos among N classes, is read in *spreads*:

.. math:: z = (u - \mu(N, k)) / \sigma(N, k), \quad \mu, \log\sigma \text{ linear in } (1, k^{-p}, \log N)

so that a score left out of a class (k - 1 photos) and one of a new photo (k photos) say the same about the class: that
corrects the bias of leaving one out, and carries on monotonely beyond the sizes it was fitted on.  Within a task
:math:`z = t + d_c + e`: a shift t of the whole task, 0 unless the left-out scores contradict (other pictures than the
head knows), an effect of the class with the share ``between`` of the variance, and the photo.  From n left-out scores
with mean m the class lies at :math:`t + w (m - t)`, w = n / (n + kappa), and the spread is corrected by theirs as if
``steadiness`` scores had confirmed it before.  One photo per class: the score model alone.

The threshold is the value that known photos, each class equally often, exceed with the share that was promised.  The
shape of what remains is the one found on validation tasks *with this same procedure*, by how much was known (w).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glocal_runtime.door import check_record
from glocal_runtime.errors import DataError, WeightsError
from glocal_runtime.probability import above, below, quantile, table_rows, with_unknown
from glocal_runtime.threshold import LeftOut, Threshold, check_promise

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]
SURPRISE = 2.0  # standard errors up to which a common shift of the left-out scores counts as chance
ALARM = 3.0  # and from which on it is worth a warning
FAR = 30.0  # spreads beyond which there are no thresholds
DRAWS = 1000  # of class effects, for the interval
FEW_UNKNOWNS = 3  # known unknowns below which their spread cannot be told


class KnownScores(NamedTuple):
    """Where the known photos of each class of one support are expected: all (N,), in units of the open score."""

    centre: Array
    within: Array  # spread of photos of one class
    doubt: Array  # spread of what is not known about the class
    weight: Array  # 0 = score model alone, 1 = left-out scores alone
    table: Array  # (N, levels) quantiles of what remains
    shift: float  # of the whole task, in spreads
    surprise: float  # the same in standard errors; beyond ALARM the pictures are not like those the head knows
    ratio: float  # spread of the left-out scores over the usual one, steadied

    @property
    def spread(self) -> Array:
        return np.hypot(self.within, self.doubt)


@dataclass(frozen=True)
class ScoreModel:
    power: float  # p, how fast more photos of a class stop to matter
    mean: tuple[float, float, float]  # mu by (1, k^-p, log N)
    log_spread: tuple[float, float, float]  # log sigma by the same
    between: float  # share of the variance between classes
    kappa: float  # left-out scores that weigh as much as the score model
    left_out_within: float  # variance of left-out scores around their class, in squared spreads
    steadiness: float
    weights: tuple[float, ...]  # knots of w ...
    quantiles: tuple[tuple[float, ...], ...]  # ... and the standardised scores that ``LEVELS`` lie above, at each
    temperature: float  # logits are divided by it before the softmax
    unknown: tuple[float, float, float, float]  # logit of P(unknown) by (1, x, log N, x / k), x in spreads
    ways: tuple[int, int]  # least and most classes it was fitted on
    shots: tuple[int, int]
    classes: int  # how many classes it was fitted on
    strange_mean: tuple[float, float, float] | None = None  # classes as strangers to each other, by the same sizes
    strange_spread: tuple[float, float] | None = None  # log of the spread of a task's mean, by (1, log N)
    fitted_on: str = ""

    def threshold(
        self,
        *,
        shots: Sequence[int],
        left_out: Sequence[LeftOut],
        max_false_unknown: float = 0.05,
        unknown_scores: Sequence[float] = (),
        per_class: bool = False,
        strange: Sequence[float] = (),
    ) -> Threshold:
        """The threshold for classes with so many photos each; ``left_out`` as from ``leave_one_out``.

        ``strange``, as from ``strange_scores``, only warns.  ``unknown_scores`` of known unknowns can only raise the
        value: to where, above the promised threshold, false unknowns and missed unknowns are fewest together.
        """
        check_promise(max_false_unknown)
        known = self.known_scores(shots, left_out)
        value = promised = self._solve(known, max_false_unknown)
        usable = len(unknown_scores) >= FEW_UNKNOWNS
        if usable:
            value = self._raise(known, promised, np.asarray(unknown_scores, dtype=np.float64))
        expected, interval = self._rate(known, value)
        values = None
        if per_class:
            tail = quantile(max_false_unknown, known.table)
            values = tuple((known.centre + known.spread * tail + (value - promised)).tolist())
        slope, midpoint = self._unknown(shots, known)
        source = "score model" if not left_out else "mixed"
        return Threshold(
            value,
            max_false_unknown,
            expected,
            interval,
            source,
            n_scores=len(left_out),
            extrapolated=self.extrapolates(shots),
            per_class=values,
            midpoint=midpoint,
            slope=slope,
            warnings=(
                *self._warnings(shots, known, max_false_unknown, interval, len(unknown_scores)),
                *self._alike(shots, strange),
            ),
        )

    def probabilities(
        self, logits: Floats, open_score: Floats, threshold: Threshold, *, unknown_share: float = 0.5
    ) -> Array:
        """Probabilities: logits (Q, N), open_score (Q,) -> (Q, N + 1), the last column is unknown.

        P(unknown) is what validation tasks showed, if a share ``unknown_share`` of the photos is unknown; the classes
        share the rest by a softmax.  It rises with the open score as the decision does, but does not pass one half
        exactly at the threshold: that is set by the promise, whatever the share of unknowns.  For a threshold that was
        set by hand one half is at the threshold.
        """
        slope, midpoint = threshold.slope, threshold.midpoint
        if slope is None or midpoint is None:
            slope, midpoint = self._unknown([self.shots[0]] * logits.shape[-1], None)[0], threshold.value
        odds = slope * (open_score.astype(np.float64) - midpoint) + math.log(unknown_share / (1 - unknown_share))
        return with_unknown(logits.astype(np.float64) / self.temperature, odds)

    def usual_range(self, shots: Sequence[int]) -> tuple[float, float]:
        """Open scores between which 95 % of known photos lie when all that is known are the numbers of photos."""
        known = self.known_scores(shots, ())
        return self._solve(known, 0.975), self._solve(known, 0.025)

    def extrapolates(self, shots: Sequence[int]) -> bool:
        return not (self.ways[0] <= len(shots) <= self.ways[1] and max(shots) <= self.shots[1])

    def known_scores(self, shots: Sequence[int], left_out: Sequence[LeftOut]) -> KnownScores:
        if not shots or min(shots) < 1:
            raise DataError(f"every class needs at least one photo, got shots {list(shots)}")
        n_way = len(shots)
        mu, sigma = self.usual(n_way, np.asarray(shots, dtype=np.float64))
        n, mean = np.zeros(n_way), np.zeros(n_way)
        shift, surprise, ratio = 0.0, 0.0, 1.0
        if left_out:
            label = np.array([one.label for one in left_out])
            z = self.spreads(n_way, left_out)
            n = np.bincount(label, minlength=n_way).astype(np.float64)
            mean = np.bincount(label, z, minlength=n_way) / np.maximum(n, 1)
            shift, surprise = self._common(n[n > 0], mean[n > 0])
            ratio = self._ratio(float(((z - mean[label]) ** 2).sum()), float((n - 1).clip(0).sum()))
        weight = n / (n + self.kappa)
        return KnownScores(
            mu + sigma * (shift + weight * (mean - shift)),
            sigma * ratio * math.sqrt(1 - self.between),
            sigma * ratio * np.sqrt(self.between * (1 - weight)),
            weight,
            table_rows(self.weights, self.quantiles, weight),
            shift,
            surprise,
            ratio,
        )

    def usual(self, way: int, shots: Array) -> tuple[Array, Array]:
        """mu and sigma of classes with so many photos (N,) among ``way`` classes."""
        x = np.stack([np.ones_like(shots), shots**-self.power, np.full_like(shots, math.log(way))])
        return np.asarray(self.mean) @ x, np.exp(np.asarray(self.log_spread) @ x)

    def spreads(self, way: int, left_out: Sequence[LeftOut]) -> Array:
        mu, sigma = self.usual(way, np.array([one.shots for one in left_out], dtype=np.float64))
        return np.asarray((np.array([one.score for one in left_out]) - mu) / sigma)

    def _common(self, n: Array, mean: Array) -> tuple[float, float]:
        """The shift that all classes share: (classes,) counts and means -> shift, and the mean in standard errors.

        It is believed as far as the score model, fitted on a limited number of classes, may itself be off; and what
        chance does not explain, as with photos unlike those the head knows, more and more: 1 - (2 errors / m)².
        """
        precision = 1 / (self.between + self.left_out_within / n)
        m, variance = float((precision * mean).sum() / precision.sum()), float(1 / precision.sum())
        surprise, off = abs(m) / math.sqrt(variance), self.between / self.classes
        believed = max(off / (off + variance), 1 - (SURPRISE / max(surprise, 1e-9)) ** 2)
        return m * believed, surprise

    def _ratio(self, squares: float, freedom: float) -> float:
        """Spread of left-out scores around their classes, over the usual one."""
        usual = self.steadiness
        return math.sqrt((usual + squares / self.left_out_within) / (usual + freedom)) if freedom else 1.0

    def false_unknown(self, known: KnownScores, value: Array) -> Array:
        """Share of known photos above each value (V,), every class equally often."""
        x = (value[:, None] - known.centre) / known.spread
        return np.asarray(above(x, known.table).mean(axis=1))

    def _solve(self, known: KnownScores, share: float) -> float:
        """The value with that share above it, by looking closer twice; on the safe side of the last step."""
        low = float((known.centre - FAR * known.spread).min())
        high = float((known.centre + FAR * known.spread).max())
        for _ in range(3):
            grid = np.linspace(low, high, 129)
            first = int(np.argmax(self.false_unknown(known, grid) <= share))
            low, high = float(grid[max(first - 1, 0)]), float(grid[first])
        return high

    def _raise(self, known: KnownScores, value: float, unknown: Array) -> float:
        """The value at or above ``value`` at which false and missed unknowns are fewest together.

        Missed unknowns by the scores of known ones, each smeared by the rule-of-thumb bandwidth: a handful has gaps.
        """
        bandwidth = max(1.06 * float(unknown.std()) * len(unknown) ** -0.2, 1e-9)
        candidates = np.linspace(value, max(value, float(np.median(unknown))), 101)
        miss = [np.mean([below(x) for x in (c - unknown) / bandwidth]) for c in candidates]
        return float(candidates[int(np.argmin(self.false_unknown(known, candidates) + np.array(miss)))])

    def _rate(self, known: KnownScores, value: float) -> tuple[float, tuple[float, float]]:
        """False unknowns to expect at ``value``, and where 95 % of tasks like this one lie.

        Drawn: what is not known about each class, and one error that all share, because the score model itself comes
        from a limited number of classes.
        """
        expected, rng = float(self.false_unknown(known, np.array([value]))[0]), np.random.default_rng(0)
        own = rng.standard_normal((DRAWS, len(known.centre))) * known.doubt
        unsure = np.sqrt(self.between / self.classes) * (1 - known.weight)
        shared = rng.standard_normal((DRAWS, 1)) * known.within / math.sqrt(1 - self.between) * unsure
        x = (value - known.centre - own - shared) / known.within
        rates = above(x, known.table).mean(axis=1)
        low, high = np.quantile(rates * expected / max(rates.mean(), 1e-12), [0.025, 0.975])
        return expected, (float(low), min(1.0, float(high)))

    def _unknown(self, shots: Sequence[int], known: KnownScores | None) -> tuple[float, float]:
        """Slope and midpoint of logit P(unknown) by the open score."""
        place = self.known_scores(shots, ()) if known is None else known
        centre, spread = float(place.centre.mean()), float(np.sqrt((place.spread**2).mean()))
        base, by_x, by_way, by_shot = self.unknown
        steep = max(by_x + by_shot * float(np.mean(1 / np.asarray(shots))), 1e-3)
        return steep / spread, centre - spread * (base + by_way * math.log(len(shots))) / steep

    def sizes(self, shots: Sequence[int]) -> Array:
        """(1, mean k^-p, log N) of one support."""
        return np.array([1.0, float((np.asarray(shots, dtype=np.float64) ** -self.power).mean()), math.log(len(shots))])

    def _alike(self, shots: Sequence[int], strange: Sequence[float]) -> list[str]:
        """A warning when the classes are more like each other than those of tasks the head knows."""
        if not strange or self.strange_mean is None or self.strange_spread is None:
            return []
        x = self.sizes(shots)
        off = float(
            (np.mean(strange) - np.asarray(self.strange_mean) @ x) / np.exp(np.array(self.strange_spread) @ x[[0, 2]])
        )
        if off > -ALARM:
            return []
        return [
            f"the classes look more alike to the head than any it knows ({off:+.1f} spreads): the photos may be unlike "
            "those it learned from, and many unknown ones will pass; check it with `glocal check`"
        ]

    def _warnings(
        self,
        shots: Sequence[int],
        known: KnownScores,
        share: float,
        interval: tuple[float, float],
        n_unknown: int,
    ) -> list[str]:
        found = []
        if interval[1] > 2 * share:
            found.append(
                f"too few photos to promise {100 * share:g} %: that is the mean over tasks like this one, and 95 % of "
                f"them lie between {100 * interval[0]:.1f} % and {100 * interval[1]:.1f} %; more photos of each class "
                "narrow it"
            )
        if known.surprise > ALARM:
            found.append(
                f"support scores lie outside the range the head knows: {known.shift:+.1f} spreads; the photos are "
                "unlike those it learned from, and the threshold follows the support: check it with `glocal check`"
            )
        if self.extrapolates(shots):
            found.append(
                f"the score model was fitted on {self.ways[0]} to {self.ways[1]} classes of {self.shots[0]} to "
                f"{self.shots[1]} photos; for {len(shots)} of up to {max(shots)} it is carried on"
            )
        if 0 < n_unknown < FEW_UNKNOWNS:
            found.append(f"{n_unknown} known unknowns are too few to move the threshold; {FEW_UNKNOWNS} would do")
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Any) -> ScoreModel:
        known = cls.__dataclass_fields__.keys()
        if not isinstance(fields, dict) or not fields.keys() <= known or not fields.keys() >= REQUIRED:
            raise WeightsError(f"a score model must be a table of {', '.join(known)}, got {str(fields)[:200]}")
        try:
            check_record(cls, fields)
        except ValueError as error:
            raise WeightsError(f"a score model cannot be used: {error}") from error
        tuples = {name: tuple(value) for name, value in fields.items() if isinstance(value, list | tuple)}
        return cls(**(fields | tuples | {"quantiles": tuple(tuple(row) for row in fields["quantiles"])}))


REQUIRED = {name for name, field in ScoreModel.__dataclass_fields__.items() if field.default is MISSING}

r"""Where "unknown" begins for each class, from what the support says about itself and nothing else.

Photos score higher (more unknown) when their class has fewer photos.  Two measurements show by how much: left-out
photos (K - 1 photos of their class) and photos of a class cut down to a single one.  Between them the level of a class
with K photos is :math:`A + B / K`, which corrects the bias of leaving one out and tells what to expect of a class with
few photos.  On top of it a class lies :math:`D_c`, the mean of its own n left-out scores beside that level, believed
:math:`n / (n + 2)`; and single photos lie around it.  The limit of a class is

.. math:: A + B / K_c + \frac{n}{n + 2} D_c + Q

Q what the promised share of left-out scores lies above, around limits that were made without them: each photo is
held against its class's mean without itself, so Q knows how far such means can be trusted.  Where the share is less
than one of the scores, no quantile tells where it lies, and Student's distribution does (``_tail``).  A class with
fewer photos than the left-out scores come from is careful for itself: its limit moves towards the one that a class cut
down to one photo would have needed (``_careful``), and no other limit moves for it.

Two photos of a class score each other alike, so a class of two counts as one score.  Where no class has more, none can
be cut down either: B is then a share of how much higher left-out photos score than enrolled ones (``PAIRS``), which is
alike in thirteen domains and for two heads.  Nothing depends on a unit of the score: any head and encoder gets its
limits this way.  Only a support of single photos has no left-out scores; ``one_photo`` takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from glocal.recognizer.calibration import one_photo
from glocal.recognizer.calibration.leave_one_out import ENOUGH, Measured
from glocal.recognizer.calibration.threshold import LeftOut

Array = npt.NDArray[np.float64]
FEW = 4  # left-out scores below which there is no quantile to speak of
SPENT = 3.0  # scores held against means of few others scatter more than new photos will: the share is so much larger
USUAL_WAY = 5  # classes; with fewer of them a mean is of no fewer photos, and no more is spent
LEAST = 0.2  # of the share is left to a class with one photo, however many of its photos look like other classes
BELIEF = 2.0  # left-out scores of a class that weigh as much as those of all others
# Fitted over thirteen domains, by benchmarks/fit_few_photos.py:
PAIRS = 0.36  # B where classes have two photos at most, in what left-out photos score above enrolled ones
ALIKE = 1.5  # left-out scores that say as much about spread as one would of a class of its own
LEAST_FREEDOM = 1.5  # of Student's distribution, below which it has no middle to speak of


class Limits(NamedTuple):
    per_class: Array  # (N,)
    overall: float  # one for all classes
    spread: float  # standard deviation of known photos around the level of their class: the unit of "far"
    source: str
    scores: int  # left-out scores it rests on


def limits(shots: Sequence[int], measured: Measured, share: float) -> Limits | None:
    """For classes with so many photos, so that the share of their photos is called unknown; None if nothing is known.

    Photos of a class may lie nearest to another one and are then held against its limit, so a class with few photos
    loses more of its own than was promised, and none of the others'.
    """
    k = np.asarray(shots, dtype=np.float64)
    if len(measured.left_out) < FEW:
        return _from_strangers(k, measured, share)
    label, score, left = _columns(measured.left_out)
    slope = _slope(measured, label, score, left)
    level = score - slope / left
    n = np.bincount(label, minlength=len(k)).astype(np.float64)
    mean = np.bincount(label, level, minlength=len(k)) / np.maximum(n, 1)
    centre = float(mean[n > 0].mean())
    off = np.where(n > 0, mean - centre, 0.0)
    worth = np.where(n == 2, 1.0, n)  # two photos of a class score each other alike
    others = worth[label] - 1
    without = (off[label] * n[label] - (level - centre)) / np.maximum(others, 1)
    around = level - centre - np.where(others > 0, others / (others + BELIEF) * without, 0.0)
    spent = SPENT * float((others > 0).mean()) / max(len(around), USUAL_WAY * n.max())
    tail = _tail(around, share, worth.sum(), 1 + spent)
    own = centre + slope / k + worth / (worth + BELIEF) * off + tail
    own = _careful(k, measured, own, share)
    overall = float((centre + slope / k).mean()) + _tail(level - centre, share, worth.sum())
    return Limits(own, overall, float(around.std()) or 1.0, "leave-one-out", len(score))


def _slope(measured: Measured, label: Any, score: Array, left: Array) -> float:
    """B: how much higher photos score when their class has one photo, over 1 - 1 / (photos it had otherwise)."""
    cut, low, _ = _columns(measured.alone)
    classes = np.unique(cut)
    if not len(classes):
        return PAIRS * float(score.mean() - measured.own)
    fewer = np.mean([low[cut == c].mean() for c in classes])
    usual = np.mean([score[label == c].mean() for c in classes])
    inverse = np.mean([1 / left[label == c].mean() for c in classes])
    return float((fewer - usual) / (1 - inverse)) if inverse < 1 else 0.0


def _careful(k: Array, measured: Measured, usual: Array, share: float) -> Array:
    """(N,) limits; those of classes with fewer photos than the left-out scores come from, by what photos of a class
    that was cut down to one would meet with.

    Some of them lie nearest to another class and beyond its limit, which is not moved for them; so fewer of those
    nearest to their own may be lost.
    """
    if not measured.alone:
        return usual
    label, score, _ = _columns(measured.alone)
    nearest = np.array([each.nearest for each in measured.alone])
    at_home = nearest == label
    if at_home.sum() < FEW:
        return usual
    lost = float((~at_home & (score > usual[nearest])).mean())
    rest = max(share - lost, LEAST * share) / float(at_home.mean())
    home = score[at_home]
    beyond = float(home.mean()) + NormalDist().inv_cdf(1 - min(rest, 0.9)) * _scatter(home, label[at_home])
    single = max(_quantile(home, min(rest, 0.9)), beyond)
    inverse = float(np.mean(1 / (k[k >= ENOUGH] - 1)))
    fewer = np.clip((1 / k - inverse) / max(1 - inverse, 1e-9), 0, 1) if inverse < 1 else np.zeros(len(k))
    return np.asarray(usual + fewer * np.maximum(single - usual, 0))


def _scatter(score: Array, label: Any) -> float:
    """Standard deviation to expect of photos of one class more: within a class, and of its mean among so few means."""
    of = [score[label == c] for c in np.unique(label)]
    within = float(np.mean([each.var(ddof=1) for each in of if len(each) > 1] or [score.var()]))
    between = float(np.var([each.mean() for each in of], ddof=1)) * (1 + 1 / len(of)) if len(of) > 1 else 0.0
    return math.sqrt(within + between)


def _from_strangers(k: Array, measured: Measured, share: float) -> Limits | None:
    """One photo per class: from how the classes look to each other."""
    if not measured.strange:
        return None
    label, score, _ = _columns(measured.strange)
    gap = float(score.mean()) - measured.own
    if gap <= 0:  # photos are as unknown to their own class as to others: nothing can be told apart
        return Limits(np.full(len(k), score.max()), float(score.max()), 1.0, "one photo", 0)
    own = one_photo.limits((score - measured.own) / gap, label, len(k), share, measured.alike)
    values = measured.own + gap * own
    return Limits(values, float(values.mean()), gap * one_photo.SPREAD, "one photo", 0)


def _columns(some: Sequence[LeftOut]) -> tuple[Any, Array, Array]:
    """Label, score and photos that were left of the class."""
    label = np.array([each.label for each in some], dtype=np.int64)
    return label, np.array([each.score for each in some]), np.array([max(each.shots, 1) for each in some], dtype=float)


def _tail(values: Array, share: float, worth: float, wider: float = 1.0) -> float:
    """What the share, made so much wider, of further values lies above, where the known ones count ``worth``.

    Their quantile, if the share is one of them at least; the less it is, the more by Student's distribution: the
    quantile would be the largest value, whatever was promised.
    """
    wide, known = min(wider * share, 0.9), min(worth * share, 1.0)
    quantile = _quantile(values, wide)
    if known == 1:
        return quantile
    n = len(values) / ALIKE
    freedom = max(n - 1, LEAST_FREEDOM)
    scatter = math.sqrt(float(np.square(values).mean()) * n / freedom * (1 + 1 / n))
    student = float(values.mean()) + student_quantile(1 - wide, freedom) * scatter
    return known * quantile + (1 - known) * max(student, quantile)  # so that a smaller share is a higher limit


def student_quantile(share: float, freedom: float) -> float:
    """Of Student's distribution, expanded around the normal one: a hundredth off with 3 degrees of freedom."""
    z = NormalDist().inv_cdf(share)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _quantile(values: Array, share: float) -> float:
    """What the share lies above."""
    return float(np.quantile(values, 1 - share, method="median_unbiased"))

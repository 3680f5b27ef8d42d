"""Slow twins of the metrics that scikit-learn does not have: loops over thresholds and bins."""

from __future__ import annotations

from collections.abc import Sequence

Task = tuple[Sequence[float], Sequence[bool]]  # score and known of each query


def oscr(score: Sequence[float], known: Sequence[bool], correct: Sequence[bool]) -> float:
    """Trapezoids under (FPR, CCR) while the threshold below which a query is accepted as known rises."""
    n_known, n_unknown = sum(known), len(known) - sum(known)
    curve = [(0.0, 0.0)]
    for threshold in sorted(set(score)):
        named = accepted_unknown = 0
        for s, is_known, is_correct in zip(score, known, correct, strict=True):
            if s <= threshold:
                if is_known and is_correct:
                    named += 1
                if not is_known:
                    accepted_unknown += 1
        curve.append((accepted_unknown / n_unknown, named / n_known))
    area = 0.0
    for i in range(1, len(curve)):
        (x0, y0), (x1, y1) = curve[i - 1], curve[i]
        area += (x1 - x0) * (y0 + y1) / 2
    return area


def histograms(tasks: Sequence[Task]) -> tuple[list[int], list[int]]:
    """(known, unknown) counts of the 100 bins; bin i is [i/100, (i+1)/100), the last one closed."""
    bins: dict[bool, list[int]] = {True: [0] * 100, False: [0] * 100}
    for score, known in tasks:
        lowest = min(score)
        moved = [s - lowest if lowest < 0 else s for s in score]
        highest = max(moved)
        for s, is_known in zip(moved, known, strict=True):
            x = s / highest if highest > 0 else 0.0
            i = 0
            while i < 99 and x >= (i + 1) / 100:
                i += 1
            bins[bool(is_known)][i] += 1
    return bins[True], bins[False]


def histogram_iou(tasks: Sequence[Task]) -> float:
    known, unknown = histograms(tasks)
    smaller = larger = 0.0
    for k, u in zip(known, unknown, strict=True):
        smaller += min(k / sum(known), u / sum(unknown))
        larger += max(k / sum(known), u / sum(unknown))
    return smaller / larger

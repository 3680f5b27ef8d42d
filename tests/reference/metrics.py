"""Slow twins of the metrics: loops over pairs, thresholds and bins, straight from the definitions."""

from __future__ import annotations

from collections.abc import Sequence

Task = tuple[Sequence[float], Sequence[bool]]  # score and known of each query


def auroc(score: Sequence[float], known: Sequence[bool]) -> float:
    return oscr(score, known, [True] * len(score))


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


def aupr(score: Sequence[float], known: Sequence[bool]) -> float:
    total, recall_before = 0.0, 0.0
    for threshold in sorted(set(score), reverse=True):
        found, refused = _called(score, known, threshold)
        recall = found / (len(known) - sum(known))
        total += (recall - recall_before) * found / (found + refused)
        recall_before = recall
    return total


def fpr95(score: Sequence[float], known: Sequence[bool]) -> float:
    for threshold in sorted(set(score), reverse=True):
        found, refused = _called(score, known, threshold)
        if found / (len(known) - sum(known)) >= 0.95:
            return refused / sum(known)
    raise AssertionError("the last threshold finds every unknown query")


def f1_at_true_rate(score: Sequence[float], known: Sequence[bool]) -> float:
    n_unknown = len(known) - sum(known)
    found, refused = _called(score, known, sorted(score, reverse=True)[n_unknown - 1])
    precision, recall = found / (found + refused), found / n_unknown
    return 0.0 if found == 0 else 2 * precision * recall / (precision + recall)


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


def _called(score: Sequence[float], known: Sequence[bool], threshold: float) -> tuple[int, int]:
    """Queries with score >= threshold: (unknown ones, known ones)."""
    found = refused = 0
    for s, is_known in zip(score, known, strict=True):
        if s >= threshold:
            if is_known:
                refused += 1
            else:
                found += 1
    return found, refused

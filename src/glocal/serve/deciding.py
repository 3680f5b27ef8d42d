"""What the page needs to choose a threshold: where scores lie, what a value would promise and what it would change."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from glocal.recognizer import Recognizer
from glocal.serve.judged import Recent
from glocal.serve.promises import expected_share
from glocal_runtime.naming import UNKNOWN_NAME

BINS = 32
FAR = 1e12
MARGIN = 0.05  # of the range, on both sides


def histogram(recognizer: Recognizer, recent: Sequence[Recent]) -> dict[str, Any]:
    """``range`` holds every score and, unless it is out of all reach, the threshold."""
    support = [each.score for each in recognizer.contents.decision.left_out]
    asked = [each.answer.open_score for each in recent]
    limit = recognizer.threshold.value
    points = [*support, *asked, *([limit] if abs(limit) <= FAR else [])] or [0.0]
    low, high = min(points), max(points)
    pad = MARGIN * (high - low) or 0.5
    edges = np.linspace(low - pad, high + pad, BINS + 1)
    counts = {name: np.histogram(some, edges)[0].tolist() for name, some in (("support", support), ("recent", asked))}
    return {"histogram": {"edges": edges.tolist(), **counts}, "range": [float(edges[0]), float(edges[-1])]}


def preview(
    recognizer: Recognizer,
    recent: Sequence[Recent],
    curve: Sequence[tuple[float, float]],
    *,
    value: float | None = None,
    max_false_unknown: float | None = None,
    per_class: bool | None = None,
) -> dict[str, Any]:
    """What a change of the threshold would do, without doing it."""
    tried = copy.copy(recognizer)
    threshold = tried.set_threshold(value, max_false_unknown=max_false_unknown, per_class=per_class)
    left = tried.contents.decision.left_out
    changes = []
    for each, limit in zip(recent, _limits(tried, [each.answer.nearest for each in recent]), strict=True):
        label = UNKNOWN_NAME if each.answer.open_score > limit else each.answer.nearest
        if label != each.answer.label:
            name = each.query.picture.name
            shown = f"/queries/{each.query.id}/thumbnail"
            changes.append(
                {"id": each.query.id, "name": name, "thumbnail": shown, "from": each.answer.label, "to": label}
            )
    own = _limits(tried, [tried.classes[each.nearest] for each in left])
    expected = expected_share(curve, threshold.value) if value is not None else threshold.expected
    return {
        "value": threshold.value if math.isfinite(threshold.value) else None,
        "expected_false_unknown": expected,
        "would_change": changes,
        "n_recent": len(recent),
        "support_rejected": sum(each.score > limit for each, limit in zip(left, own, strict=True)),
        "n_support": len(left),
    }


def _limits(recognizer: Recognizer, nearest: Sequence[str]) -> list[float]:
    rows = np.array([recognizer.classes.index(name) for name in nearest], dtype=np.int64)
    limits: list[float] = recognizer.contents.decision.limits(rows).tolist()
    return limits

"""Where the open scores of known and unknown queries lie: the histograms of the paper's density figure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from glocal.data.dataset import ClassDataset
from glocal.data.episodes import TaskList
from glocal.engine.contestants import Contestant
from glocal.engine.evaluate import Answers, build_bank, evaluate
from glocal.engine.row_store import RowStore
from glocal.methods import Method
from glocal.metrics import ScoreHistogram, score_histogram
from glocal.metrics.histogram import BINS
from glocal.reproduce.measure import Bench, Measurement
from glocal.reproduce.tables import Line

EDGES = [i / BINS for i in range(BINS + 1)]


def histogram(line: Line, found: Measurement, bench: Bench) -> ScoreHistogram:
    """Pooled over all test tasks after scaling each to [0, 1]; read again when it was made before."""
    who, store = found.contestants[line.run, line.score], RowStore(bench.store.parent / "densities")
    counts = store.read(who, found.fingerprint, 1)
    if counts is None:
        answers = answers_of(who, found.data, found.tasks, bench)
        pooled = score_histogram((answer.open_score, answer.label >= 0) for answer in answers)
        counts = {"known": pooled.known.astype(np.float64), "unknown": pooled.unknown.astype(np.float64)}
        store.write(who, found.fingerprint, 1, counts)
    known, unknown = (counts[side].astype(np.int64) for side in ("known", "unknown"))
    return ScoreHistogram(np.array(EDGES), known=known, unknown=unknown)


def answers_of(who: Contestant, data: ClassDataset, tasks: TaskList, bench: Bench) -> tuple[Answers, ...]:
    """What a row says about every query, which ``compare`` does not keep."""
    how: dict[str, Any] = {"device": bench.device, "workers": bench.workers}
    bank = build_bank(who.model, data, tasks, **how)
    with _scoring(who.model.method, who.score) as method:
        return evaluate(method, tasks, bank, device=bench.device).answers


@contextmanager
def _scoring(method: Method, score: str) -> Iterator[Method]:
    """The method under another open score, for as long as it is needed: rows of a report share models."""
    before = method.open_score
    method.choose_score(score)
    try:
        yield method
    finally:
        method.choose_score(before)

"""Which photos to label next: those that stand for many others that are likely of the classes.

A photo is covered by the most similar photo with a label, c(i) by its cosine.  The next photo is the one that adds most
to the cover of all: term i is w(i) max(0, cos(i, next) - c(i)), with the weight w(i) = 1 - p(unknown).  Photos of the
support cover half, because they were not chosen to stand for others.

Photos between two classes or near the threshold are the usual choice.  Over the domains they named as well as random
ones and caught fewer unknowns: such photos lie at the edge of their class, and the threshold follows them.
"""

from __future__ import annotations

import numpy as np

from glocal.recognizer.features import Array, Labels, spread, unit

MOST = 4_000  # photos that are compared with each other: 64 MB
LABELLED = 0.5  # cover by a photo of the support


def choose(vec: Array, n: int, *, weight: Array | None = None, labelled: Array | None = None) -> list[int]:
    """Rows of vectors (B, D), the most useful first; ``labelled`` (S, D) are the vectors of photos with a label.

    Of more than ``MOST`` photos some are looked at, in even steps.
    """
    rows: Labels = spread(np.arange(len(vec)), MOST)
    some = unit(vec[rows].astype(np.float32))
    weight = np.ones(len(some), np.float32) if weight is None else weight[rows].astype(np.float32)
    cover = np.zeros(len(some), np.float32)
    if labelled is not None and len(labelled):
        cover = LABELLED * (some @ unit(labelled.astype(np.float32)).T).max(axis=1).clip(0)
    alike = some @ some.T
    chosen: list[int] = []
    free = np.ones(len(some), dtype=bool)
    for _ in range(min(n, len(some))):
        gain = weight @ (alike - cover[:, None]).clip(0)
        best = int(np.where(free, gain, -1).argmax())
        free[best] = False
        chosen.append(int(rows[best]))
        cover = np.maximum(cover, alike[best])
    return chosen

"""Limits for a support of single photos, from how its classes look to each other.

Open scores are read in units of the gap between a photo that is enrolled (0) and a stranger, a photo whose class is not
(1, their mean).  In these units the share of known photos that was promised lies above

    a + b (stranger score of the class - 1) + c (spread of the stranger scores) + d log(classes)

with coefficients by quantile regression over thirteen domains of photos and two heads
(``benchmarks/fit_one_photo.py``).  On a domain that the fit has not seen, what comes out may be a third or twice
of what was promised (docs/results/promise.md): one photo does not show how photos of its class differ.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
SPREAD = 0.18  # of known photos, in gaps
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
COEFFICIENTS: tuple[tuple[float, ...], ...] = (  # a, b, c, d at each of SHARES
    (1.4491, 0.1163, 1.2532, -0.1243),
    (1.3147, 0.1514, 1.1170, -0.0921),
    (1.1799, 0.1914, 0.8938, -0.0609),
    (1.0994, 0.2058, 0.6541, -0.0425),
    (1.0176, 0.2187, 0.3975, -0.0265),
    (0.9600, 0.2272, 0.2329, -0.0165),
)


def features(strange: Array, label: npt.NDArray[np.int64], n_way: int) -> Array:
    """Stranger scores (S,) in gaps, of photos of these classes -> (N, 4)."""
    counts = np.bincount(label, minlength=n_way)
    mean = np.where(counts, np.bincount(label, strange, minlength=n_way) / np.maximum(counts, 1), 1.0)
    same = np.ones(n_way)
    return np.stack([same, mean - 1, same * float(strange.std()), same * math.log(n_way)], axis=1)


def limits(strange: Array, label: npt.NDArray[np.int64], n_way: int, share: float) -> Array:
    """(N,) in gaps; between ``SHARES`` by the logarithm of the share, beyond them as at the last."""
    table = np.asarray(COEFFICIENTS)
    at = [float(np.interp(math.log(share), np.log(SHARES), column)) for column in table.T]
    return np.asarray(features(strange, label, n_way) @ np.array(at))

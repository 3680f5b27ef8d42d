"""Limits for a support of single photos, from how its classes look to each other.

Open scores are read in units of the gap between a photo that is enrolled (0) and a stranger, a photo whose class is not
(1, their mean).  In these units the share of known photos that was promised lies above

    a + b (stranger score of the class - 1) + c (spread of the stranger scores) + d log(classes) + e (how alike)

with coefficients by quantile regression over thirteen domains of photos and two heads, drawn towards none and centred
so that the domains' rates are the promise in the geometric mean (``benchmarks/fit_one_photo.py``).  How alike classes
are is the mean cosine between them.  On a domain that the fit has not seen, most come out between a third and twice of
what was promised, single ones further off (docs/results/promise.md): one photo does not show how photos of its class
differ, nor do other views of it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
SPREAD = 0.18  # of known photos, in gaps
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
COEFFICIENTS: tuple[tuple[float, ...], ...] = (  # a, b, c, d, e at each of SHARES
    (1.2330, 0.0198, 0.1678, -0.0062, 0.1688),
    (1.1361, 0.0422, 0.2484, -0.0105, 0.2311),
    (1.0339, 0.0848, 0.3079, -0.0133, 0.2702),
    (0.9813, 0.1170, 0.2857, -0.0120, 0.2338),
    (0.9332, 0.1500, 0.1993, -0.0090, 0.1638),
    (0.8984, 0.1637, 0.1150, -0.0058, 0.1136),
)


def features(strange: Array, label: npt.NDArray[np.int64], n_way: int, alike: float) -> Array:
    """Stranger scores (S,) in gaps, of photos of these classes -> (N, 5)."""
    counts = np.bincount(label, minlength=n_way)
    mean = np.where(counts, np.bincount(label, strange, minlength=n_way) / np.maximum(counts, 1), 1.0)
    same = np.ones(n_way)
    return np.stack([same, mean - 1, same * strange.std(), same * math.log(n_way), same * alike], axis=1)


def limits(strange: Array, label: npt.NDArray[np.int64], n_way: int, share: float, alike: float) -> Array:
    """(N,) in gaps; between ``SHARES`` by the logarithm of the share, beyond them as at the last."""
    table = np.asarray(COEFFICIENTS)
    at = [float(np.interp(math.log(share), np.log(SHARES), column)) for column in table.T]
    return np.asarray(features(strange, label, n_way, alike) @ np.array(at))

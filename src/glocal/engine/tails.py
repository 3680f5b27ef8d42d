"""How standardised scores of known photos are spread; see ``glocal_runtime.tails``."""

from glocal_runtime.tails import LEVELS, MINUS_LOG, above, quantile, rows

__all__ = ["LEVELS", "MINUS_LOG", "above", "quantile", "rows"]

"""The answer about one picture; see ``glocal_runtime.prediction``."""

from glocal_runtime.prediction import Prediction

__all__ = ["Prediction"]

"""Where "unknown" begins; see ``glocal_runtime.decision``."""

from glocal_runtime.decision import Decision, Promise, Range

__all__ = ["Decision", "Promise", "Range"]

"""Thresholds; see ``glocal_runtime.threshold``, which machines without torch use."""

from glocal_runtime.threshold import SOURCES, LeaveOneOut, Threshold, check_promise, plain_threshold

__all__ = ["SOURCES", "LeaveOneOut", "Threshold", "check_promise", "plain_threshold"]

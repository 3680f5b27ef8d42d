"""A picture of an answer; see ``glocal_runtime.explain``."""

from glocal_runtime.explain import Match, explain, nearest_photos, overlay, partners, write_explanation

__all__ = ["Match", "explain", "nearest_photos", "overlay", "partners", "write_explanation"]

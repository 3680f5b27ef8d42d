"""Pictures below folders; see ``glocal_runtime.walk``."""

from glocal_runtime.walk import walk

__all__ = ["walk"]

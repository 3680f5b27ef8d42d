"""The check-up of a support; see ``glocal_runtime.checkup``."""

from glocal_runtime.checkup import ENOUGH, Finding, check_up, tidy

__all__ = ["ENOUGH", "Finding", "check_up", "tidy"]

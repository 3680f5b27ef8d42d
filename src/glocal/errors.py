"""Errors a user can act on.  Each message names the thing, the rule, what came, and the way out."""

from glocal_runtime.errors import DataError, GlocalError, RecipeError, WeightsError

__all__ = ["DataError", "GlocalError", "RecipeError", "WeightsError"]

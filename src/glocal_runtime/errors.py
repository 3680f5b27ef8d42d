"""Errors a user can act on.  Each message names the thing, the rule, what came, and the way out."""


class GlocalError(Exception):
    """Base of everything glocal raises on purpose; the command line prints it as one sentence and exits with 2."""


class DataError(GlocalError, ValueError):
    """A picture, folder, split or task that cannot be used."""


class WeightsError(GlocalError, ValueError):
    """A checkpoint that is missing, damaged, foreign or does not fit."""


class RecipeError(GlocalError, ValueError):
    """A setting that is unknown, misspelt or out of range."""

"""Errors a user can act on.  Each message names the thing, the rule, what came, and the way out."""

from __future__ import annotations


class GlocalError(Exception):
    """Base of everything glocal raises on purpose; the command line prints it as one sentence and exits with 2.

    ``code`` is short and stays the same when the sentence is reworded: for programs and tests.
    """

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class DataError(GlocalError, ValueError):
    """A picture, folder, split or task that cannot be used."""

    code = "data"


class WeightsError(GlocalError, ValueError):
    """A checkpoint that is missing, damaged, foreign or does not fit."""

    code = "weights"


class RecipeError(GlocalError, ValueError):
    """A setting that is unknown, misspelt or out of range."""

    code = "recipe"

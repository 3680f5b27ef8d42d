"""Errors a user can act on.  Each message names the thing, the rule, what came, and the way out."""

from __future__ import annotations


class GlocalError(Exception):
    """Base of every error that glocal raises on purpose; the command line prints it as one sentence and exits with 2.

    Parameters
    ----------
    message : str
        One sentence: the thing, the rule, the value that came, and the way out.
    code : str, optional
        A short name of the error, which stays the same when the sentence is reworded.

    Examples
    --------
    >>> error = GlocalError("way must be at least 1, got 0", code="way")
    >>> str(error), error.code
    ('way must be at least 1, got 0', 'way')
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

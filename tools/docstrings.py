"""Check the docstrings of the public names with numpydoc: ``python tools/docstrings.py``; part of ``make lint``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from numpydoc.validate import validate

import glocal
from glocal.research.backbones import Backbone
from glocal.research.methods import Method

DERIVED_FROM = (Method, Backbone)
FUNCTIONS = {"GL08", "SS03", "PR01", "PR02", "PR03", "PR04", "PR07", "RT01", "RT03"}  # parameters and returns
EXAMPLES = {"EX01"}


def names() -> Iterator[tuple[str, set[str]]]:
    """Every public name with the checks that it must pass."""
    public = [getattr(glocal, name) for name in glocal.__all__]
    for each in (*public, *DERIVED_FROM):
        if not inspect.ismodule(each):
            yield f"{each.__module__}.{each.__qualname__}", FUNCTIONS | EXAMPLES
        if inspect.isclass(each):
            own = (
                name
                for name, value in vars(each).items()
                if not name.startswith("_") and callable(inspect.unwrap(value))
            )
            yield from ((f"{each.__module__}.{each.__qualname__}.{name}", FUNCTIONS) for name in own)


def main() -> int:
    wrong = [
        f"{name}: {code} {text}"
        for name, checks in names()
        for code, text in validate(name)["errors"]
        if code in checks
    ]
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

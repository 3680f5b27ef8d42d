"""A package that is not installed here, as a test writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest


@contextmanager
def stand_in(folder: Path, package: str, **modules: str) -> Iterator[None]:
    """``modules`` are sources by name, ``__init__`` among them; the test is skipped where the package is installed."""
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    (folder / package).mkdir()
    for name, source in modules.items():
        (folder / package / f"{name}.py").write_text(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    for name in (package, *(f"{package}.{each}" for each in modules)):
        sys.modules.pop(name, None)

"""The examples in docstrings run and say the truth."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import glocal.research.methods
import glocal.research.ops

MODULES = [
    info.name
    for package in (glocal.research.methods, glocal.research.ops)
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_and_that_every_method_has_one(name: str):
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0
    assert found.attempted or name not in {cls.__module__ for cls in glocal.research.methods.METHODS.values()}

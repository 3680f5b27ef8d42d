"""The examples in docstrings run and say the truth."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import glocal.methods
import glocal.ops

MODULES = [
    info.name
    for package in (glocal.methods, glocal.ops)
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("method", sorted({cls.__module__ for cls in glocal.methods.METHODS.values()}))
def test_every_method_file_has_an_example(method: str):
    assert doctest.testmod(importlib.import_module(method)).attempted > 0

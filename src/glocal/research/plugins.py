"""Methods, backbones, data sets, metrics and recipes of other packages (entry points) and of files (``--import``)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from glocal.common.errors import GlocalError, RecipeError
from glocal.common.words import meant

T = TypeVar("T")
METHODS, BACKBONES, DATASETS, METRICS = "glocal.methods", "glocal.backbones", "glocal.datasets", "glocal.metrics"
OURS = files("glocal.research") / "recipes"
entries = cache(lambda group: tuple(sorted(entry_points(group=group), key=lambda entry: entry.name)))
log_once = cache(logging.getLogger("glocal").warning)


def load(group: str, registry: MutableMapping[str, Any], name: str | None = None) -> None:
    """Register the plugin ``name``; without a name register all, and log those that cannot be imported."""
    for entry in entries(group):
        if entry.name not in registry and name in (None, entry.name):
            try:
                registry[entry.name] = _attempt(entry.load, f"the plugin {entry.name!r} of {_package(entry)} ({group})")
            except GlocalError as error:
                if name is not None:
                    raise
                log_once(str(error))


def find(group: str, registry: MutableMapping[str, T], name: str) -> T:
    """The value under the name, ours or a plugin's."""
    load(group, registry, name)
    if name not in registry:
        kind = group.partition(".")[2].removesuffix("s")
        message = f"there is no {kind} {name!r}, and no installed plugin brings it (entry point {name!r} of {group}); "
        message += meant(name, registry, see=f"glocal list {kind}s")
        way_out = " Otherwise install its package, or give its file with --import"
        raise RecipeError(message + way_out, code="no-plugin")
    return registry[name]


def recipes() -> dict[str, tuple[str, Traversable]]:
    """Recipe -> the package it comes from and its file; our own stand before those of plugins."""
    folders = [(_package(each), files(each.value)) for each in entries("glocal.recipes")]
    every = [(name, file) for name, folder in [*folders, ("glocal", OURS)] for file in folder.iterdir()]
    return {file.name.removesuffix(".toml"): (name, file) for name, file in every if file.name.endswith(".toml")}


def recipe_file(source: str | Path) -> Path | Traversable:
    """A .toml or .json file, or a recipe that ships."""
    path, known = Path(source), recipes()
    if path.suffix in (".toml", ".json") and path.is_file():
        return path
    if str(source) in known:
        return known[str(source)][1]
    hint = meant(str(source), known, see="glocal list recipes")
    raise RecipeError(f"recipe {str(source)!r} is neither a .toml file nor one that ships; {hint}")


def import_file(source: str) -> None:
    """Import a .py file, or a module by its name, for what it registers."""
    path = Path(source).resolve()
    if path.suffix == ".py":
        if not path.is_file():
            raise GlocalError(f"--import {source}: there is no such file", code="plugin")
        sys.path.insert(0, str(path.parent))
    module = _attempt(lambda: import_module(path.stem if path.suffix == ".py" else source), f"--import {source}")
    if path.suffix == ".py" and module.__file__ != str(path):
        raise GlocalError(
            f"--import {source}: a module {path.stem!r} is loaded already; rename the file", code="plugin"
        )


def origin(group: str, name: str, value: Any) -> str:
    """The package or file of a registered value; empty for our own."""
    module = getattr(value, "compute", value).__module__  # a Metric is an instance of our class
    packages = [_package(entry) for entry in entries(group) if entry.name == name]
    file = Path(getattr(sys.modules.get(module), "__file__", None) or module).name
    return "" if module.partition(".")[0] == "glocal" else (packages or [file])[0]


def _attempt(do: Callable[[], T], what: str) -> T:
    try:
        return do()
    except Exception as error:  # a plugin may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise GlocalError(f"{what} cannot be used: {reason}", code="plugin") from error


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value

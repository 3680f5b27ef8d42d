"""Methods, backbones, data sets, metrics and recipes of other packages and of single files.

A package names what it brings as entry points of the groups below; they are imported when a registry is asked for a
name that it lacks, or listed.  A single file (``glocal --import FILE``) puts its names into the registries itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import MutableMapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from glocal.common.errors import GlocalError, RecipeError
from glocal.common.words import meant

T = TypeVar("T")
METHODS, BACKBONES, DATASETS, METRICS = "glocal.methods", "glocal.backbones", "glocal.datasets", "glocal.metrics"
RECIPES = "glocal.recipes"  # each names a package whose folder holds .toml files


def load(group: str, registry: MutableMapping[str, Any], name: str) -> None:
    """Put ``name`` into the registry if it is not there and a plugin brings it."""
    if name not in registry:
        for entry in _entries(group):
            if entry.name == name:
                registry[name] = _value(entry)


def load_all(group: str, registry: MutableMapping[str, Any]) -> None:
    """Put in everything that plugins bring; one that cannot be imported is logged with its name and left out."""
    for entry in _entries(group):
        if entry.name not in registry:
            try:
                registry[entry.name] = _value(entry)
            except GlocalError as error:
                _log_once(str(error))


def find(group: str, registry: MutableMapping[str, T], name: str) -> T:
    """What is registered under the name, here or by a plugin."""
    load(group, registry, name)
    if name not in registry:
        kind = group.partition(".")[2].removesuffix("s")
        raise RecipeError(
            f"there is no {kind} {name!r}, and no installed plugin brings it (entry point {name!r} of {group}); "
            f"{meant(name, registry, see=f'glocal list {kind}s')} Otherwise install its package, or give its file with "
            "--import",
            code="no-plugin",
        )
    return registry[name]


def recipes() -> dict[str, tuple[str, Traversable]]:
    """Recipe -> the package it comes from and its file: our own, then those of plugins."""
    folders = [("glocal", files("glocal.research") / "recipes")]
    for entry in _entries(RECIPES):
        try:
            folders.append((_package(entry), files(entry.value)))
        except Exception as error:
            _log_once(_sentence(entry, error))
    found: dict[str, tuple[str, Traversable]] = {}
    for package, folder in folders:
        for file in folder.iterdir():
            if file.name.endswith(".toml"):
                found.setdefault(file.name.removesuffix(".toml"), (package, file))
    return found


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
    path = Path(source)
    try:
        if path.suffix != ".py":
            importlib.import_module(source)
            return
        if not path.is_file():
            raise GlocalError(f"--import {source}: there is no such file", code="plugin")
        name = path.stem
        if name in sys.modules and getattr(sys.modules[name], "__file__", None) != str(path.resolve()):
            raise GlocalError(f"--import {source}: a module {name!r} is loaded already; rename the file", code="plugin")
        spec = importlib.util.spec_from_file_location(name, path.resolve())
        assert spec is not None  # it ends in .py
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    except GlocalError:
        raise
    except Exception as error:
        raise GlocalError(f"--import {source}: {_reason(error)}", code="plugin") from error


def origin(group: str, name: str, value: Any) -> str:
    """Where a registered value comes from: empty for our own, else a package or a file."""
    module = getattr(value, "__module__", None) or ""
    if hasattr(value, "compute"):  # a Metric: the function says more than the class
        module = value.compute.__module__
    for entry in _entries(group):
        if entry.name == name and not module.startswith("glocal."):
            return _package(entry)
    if module.partition(".")[0] == "glocal":
        return ""
    return Path(getattr(sys.modules.get(module), "__file__", None) or module).name


@cache
def _entries(group: str) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)))


@cache
def _log_once(sentence: str) -> None:
    logging.getLogger("glocal").warning(sentence)


def _value(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:  # whatever somebody else's module raises
        raise GlocalError(_sentence(entry, error), code="plugin") from error


def _sentence(entry: EntryPoint, error: Exception) -> str:
    return f"the plugin {entry.name!r} of {_package(entry)} ({entry.group}) cannot be used: {_reason(error)}"


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())

"""The reference says what the code says today, and leaves nothing public out."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import glocal
from field_comments import as_markdown, comments_of
from glocal.research.engine.recipe import Component, Recipe
from reference_pages import COMMAND, main, pages

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def test_the_pages_are_current_and_the_command_takes_one_folder(capsys: pytest.CaptureFixture[str]) -> None:
    stale = [name for name, text in pages().items() if (REFERENCE / name).read_text("utf-8") != text]
    assert not stale, f"{', '.join(stale)} out of date in docs/reference; run {COMMAND}"
    assert main([]) == 2
    assert COMMAND in capsys.readouterr().err


def test_every_key_of_a_recipe_is_explained() -> None:
    sections = [Recipe, *(type(f.default) for f in Recipe.model_fields.values() if isinstance(f.default, BaseModel))]
    missing = [
        f"{section.__name__}.{name}"
        for section, explained in zip(sections, map(comments_of, sections), strict=True)
        for name, field in section.model_fields.items()
        if name not in explained and not _is_section(field.annotation)
    ]
    assert len(sections) == 7
    assert missing == []


def _is_section(annotation: Any) -> bool:
    return any(
        isinstance(each, type) and issubclass(each, BaseModel | Component)
        for each in (annotation, *getattr(annotation, "__args__", ()))
    )


def test_formulas_and_examples_become_markdown() -> None:
    written = "First.\n\n.. math:: a_b\n\n>>> 1 + 1\n2"
    assert as_markdown(written) == "First.\n\n$$\na_b\n$$\n\n```pycon\n>>> 1 + 1\n2\n```"


@cache
def public() -> dict[str, Any]:
    """Every name the reference shows and every name of ``__all__``, with what belongs to the classes among them."""
    names = [name for page in REFERENCE.glob("*.md") for name in DIRECTIVE.findall(page.read_text("utf-8"))]
    names += [f"glocal.{name}" for name in glocal.__all__]
    for package in (
        "glocal.research.backbones",
        "glocal.research.data",
        "glocal.research.methods",
        "glocal.research.metrics",
        "glocal.recognizer",
    ):
        names += [f"{package}.{name}" for name in importlib.import_module(package).__all__]
    return {name: _find(name) for name in names}


def _find(name: str) -> Any:
    home, _, last = name.rpartition(".")
    return getattr(importlib.import_module(home), last) if home else importlib.import_module(name)


def test_every_public_name_is_in_the_reference() -> None:
    assert len(public()) > 70
    shown = {name for page in REFERENCE.glob("*.md") for name in DIRECTIVE.findall(page.read_text("utf-8"))}
    whole = {name for name in shown if inspect.ismodule(_find(name))}
    objects = [_find(name) for name in shown]
    missing = [
        name
        for name, each in public().items()
        if name not in shown
        and name.rpartition(".")[0] not in whole
        and not inspect.ismodule(each)
        and not any(each is one for one in objects)
    ]
    assert missing == []

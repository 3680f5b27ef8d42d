"""``glocal list``: what there is, in groups, a line each; many of one family are one line until they are asked for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, NamedTuple

import typer

from glocal.cli.console import show
from glocal.cli.options import Json

FEW = 3  # names of a family that are shown one by one
FAMILY = re.compile(r"[^/]+(?=/)|(cifar-fs|mini-imagenet|tiered-imagenet|tiered-64)(?=-)")  # of models, of recipes


class Kind(StrEnum):
    encoders = "encoders"
    heads = "heads"
    methods = "methods"
    backbones = "backbones"
    datasets = "datasets"
    metrics = "metrics"
    recipes = "recipes"
    models = "models"


class Name(NamedTuple):
    about: str  # one line
    plugin: str = ""  # that brings it


LIGHT = (Kind.encoders, Kind.heads)  # what there is without torch
ABOUT = {
    "fast": "EfficientNet-Lite0, 224 pixels",
    "better": "EfficientNet-Lite0 and Lite2 side by side, 224 and 260 pixels; three times the time",
    "ridge": "Class means and a kernel ridge regression on photos and their patches",
    "prototypes": "Class means alone",
    "gel": "The trained head of the paper, on the encoder fast",
}
HEADINGS = {  # title, and where such a name is given
    Kind.encoders: ("Encoders", "glocal enroll --encoder"),
    Kind.heads: ("Heads", "glocal enroll --head"),
    Kind.methods: ("Methods", "method.name of a recipe"),
    Kind.backbones: ("Backbones", "backbone.name of a recipe"),
    Kind.datasets: ("Data sets", "--dataset"),
    Kind.metrics: ("Metrics", "columns of evaluate and compare"),
    Kind.recipes: ("Recipes", "glocal pretrain, glocal train"),
    Kind.models: ("Models", "glocal evaluate, compare, enroll --model"),
}


def inventory(
    kind: Annotated[Kind | None, typer.Argument(help="Only these, one by one.", show_default=False)] = None,
    part: Annotated[str, typer.Argument(metavar="[PART]", help="Only names that hold this.")] = "",
    json: Json = False,
) -> None:
    """List encoders, heads, methods, backbones, data sets, metrics, recipes and models."""
    there = Kind if find_spec("torch") else LIGHT
    every = {each: dict(_names(each)) for each in (there if kind is None else [kind])}
    chosen = {each: {name: about for name, about in names.items() if part in name} for each, names in every.items()}
    if part and not any(chosen.values()):
        from glocal.common.errors import RecipeError
        from glocal.common.words import meant

        known = [name for names in every.values() for name in names]
        raise RecipeError(
            f"none of the {kind} holds {part!r} in its name; {meant(part, known, see=f'glocal list {kind}')}"
        )
    plain: dict[str, Any] = {each.value: list(names) for each, names in chosen.items()}
    plain["plugins"] = {
        each.value: {name: about.plugin for name, about in names.items() if about.plugin}
        for each, names in chosen.items()
        if each not in (*LIGHT, Kind.models)
    }
    show(plain, as_json=json, otherwise=lambda: _listing(chosen, fold=not part, all_kinds=kind is None))


def _names(kind: Kind) -> Iterator[tuple[str, Name]]:
    if kind in LIGHT:
        from glocal.recognizer.encoders.builtin import ENCODERS
        from glocal.recognizer.model import HEADS

        yield from ((name, Name(ABOUT[name])) for name in (ENCODERS if kind is Kind.encoders else HEADS))
        return
    if kind is Kind.models:
        from glocal.research.engine.records import read_record, shipped_models

        for name, file in shipped_models().items():
            if (card := file.with_suffix(".md")).is_file():
                lead = card.read_text("utf-8").split("\n\n")[1]  # what follows its title
                about = _sentence(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", lead))
            else:
                record = read_record(file)
                about = f"{record['method']['name']} on {record['backbone']['name']}"
            yield name, Name(about)
        return
    from glocal.research import plugins

    if kind is Kind.recipes:
        for name, (origin, recipe) in sorted(plugins.recipes().items()):
            first = recipe.read_text(encoding="utf-8").partition("\n")[0]
            about = _sentence(first.removeprefix("#")) if first.startswith("#") else ""
            yield name, Name(about, "" if origin == "glocal" else origin)
        return
    package = "data" if kind is Kind.datasets else kind
    registry = getattr(import_module(f"glocal.research.{package}"), kind.upper())
    plugins.load(f"glocal.{kind}", registry)
    for name, value in sorted(registry.items()):
        yield name, Name(_about(value), plugins.origin(f"glocal.{kind}", name, value))


def _about(value: Any) -> str:
    if hasattr(value, "description"):  # a metric
        return f"{value.title}: {value.description}"
    own = value.__doc__ and inspect.cleandoc(value.__doc__)  # getdoc would take that of a parent class
    if own and (inspect.isfunction(value) or "\n" not in own.split("\n\n")[0]):
        return _sentence(own)
    module = inspect.getmodule(value)
    return _sentence((module and module.__doc__) or own or "")


def _sentence(text: str) -> str:
    """The first one, without its stop."""
    line = " ".join(text.split("\n\n")[0].split()).replace("``", "")
    return re.split(r"(?<=[a-z0-9)])\.\s+(?=[A-Z])", line)[0].rstrip(".:")


def _listing(groups: dict[Kind, dict[str, Name]], *, fold: bool, all_kinds: bool) -> Any:
    """A line per name that is cut at the edge of a terminal and never wrapped: a list, no wall."""
    from rich.console import Console, Group
    from rich.text import Text

    lines: list[Text] = []
    for kind, names in groups.items():
        rows = list(_rows(kind, names, fold=fold and (all_kinds or kind is Kind.models)))
        width, (title, use) = max((len(name) for name, _ in rows), default=0), HEADINGS[kind]
        lines += [Text(), Text.assemble((title, "bold"), (f"  for {use}", "dim"))]
        lines += [Text.assemble(f"  {name:<{width}}  ", (about, "dim")) for name, about in rows]
    if tuple(groups) == LIGHT:
        lines += [Text(), Text("Methods, data sets, metrics, recipes and models: pip install 'glocal[research]'")]
    if not Console().is_terminal:  # in a file or a pipe, all of a line
        return "\n".join(line.plain.rstrip() for line in lines[1:])
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines[1:])


def _rows(kind: Kind, names: dict[str, Name], *, fold: bool) -> Iterator[tuple[str, str]]:
    families: dict[str, list[str]] = {}
    for name, about in names.items():
        start = FAMILY.match(name) if fold and not about.plugin else None
        families.setdefault(start[0] if start else name, []).append(name)
    for family, members in families.items():
        if len(members) > FEW:
            yield f"{family}{'/' if kind is Kind.models else '-'}...", f"{len(members)}: glocal list {kind} {family}"
            continue
        for name in members:
            origin = names[name].plugin
            yield f"{name} (from {origin})" if origin else name, names[name].about

"""``glocal list``: what there is, in groups, a line each; many of one family are one line until they are asked for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from glocal.cli.console import show
from glocal.cli.options import Json

FEW = 3  # names of a family that are shown one by one


class Kind(StrEnum):
    encoders = "encoders"
    heads = "heads"
    methods = "methods"
    backbones = "backbones"
    datasets = "datasets"
    metrics = "metrics"
    recipes = "recipes"
    models = "models"


_ABOUT = {
    "fast": "EfficientNet-Lite0, 224 pixels",
    "better": "EfficientNet-Lite0 and Lite2 side by side, 224 and 260 pixels; three times the time",
    "ridge": "Class means and a kernel ridge regression on photos and their patches",
    "prototypes": "Class means alone",
    "gel": "The trained head of the paper, on the encoder fast",
}
_LIGHT = (Kind.encoders, Kind.heads)  # what there is without torch
_REGISTRIES = {
    Kind.methods: ("Methods", "method.name of a recipe", "glocal.research.methods"),
    Kind.backbones: ("Backbones", "backbone.name of a recipe", "glocal.research.backbones"),
    Kind.datasets: ("Data sets", "--dataset", "glocal.research.data"),
    Kind.metrics: ("Metrics", "columns of evaluate and compare", "glocal.research.metrics"),
}


class Group(NamedTuple):
    title: str
    use: str  # where such a name is given
    names: dict[str, str]  # with the plugin that brings it, or nothing
    about: Callable[[str], str]  # one line


def inventory(
    kind: Annotated[Kind | None, typer.Argument(help="Only these, one by one.", show_default=False)] = None,
    part: Annotated[str, typer.Argument(metavar="[PART]", help="Only names that hold this.")] = "",
    json: Json = False,
) -> None:
    """List encoders, heads, methods, backbones, data sets, metrics, recipes and shipped models, with their plugins."""
    there = Kind if find_spec("torch") else _LIGHT
    groups = {each: _group(each) for each in (there if kind is None else [kind])}
    chosen = {
        each: group._replace(names={name: origin for name, origin in group.names.items() if part in name})
        for each, group in groups.items()
    }
    if part and not any(group.names for group in chosen.values()):
        from glocal.common.errors import RecipeError
        from glocal.common.words import meant

        known = [name for group in groups.values() for name in group.names]
        raise RecipeError(
            f"none of the {kind} holds {part!r} in its name; {meant(part, known, see=f'glocal list {kind}')}"
        )
    names: dict[str, Any] = {each.value: list(group.names) for each, group in chosen.items()}
    names["plugins"] = {
        each.value: {name: origin for name, origin in group.names.items() if origin}
        for each, group in chosen.items()
        if each not in (Kind.encoders, Kind.heads, Kind.models)
    }
    show(names, as_json=json, otherwise=lambda: _listing(chosen, every=kind is not None, part=part))


def _group(kind: Kind) -> Group:
    if kind in (Kind.encoders, Kind.heads):
        from glocal.recognizer.encoders.builtin import ENCODERS
        from glocal.recognizer.model import HEADS

        names = ENCODERS if kind is Kind.encoders else HEADS
        use = f"glocal enroll --{kind.removesuffix('s')}"
        return Group(kind.capitalize(), use, dict.fromkeys(names, ""), lambda name: _ABOUT[name])
    if kind is Kind.models:
        from glocal.research.engine.records import shipped_models

        models = shipped_models()
        use = "glocal evaluate, compare, enroll --model"
        return Group("Models", use, dict.fromkeys(models, ""), lambda name: _about_model(models[name]))
    from glocal.research import plugins

    if kind is Kind.recipes:
        recipes = plugins.recipes()
        origins = {name: "" if recipes[name][0] == "glocal" else recipes[name][0] for name in sorted(recipes)}
        return Group("Recipes", "glocal pretrain, glocal train", origins, lambda name: _about_recipe(recipes[name][1]))
    title, use, module = _REGISTRIES[kind]
    registry = getattr(import_module(module), kind.upper())
    plugins.load(f"glocal.{kind}", registry)
    origins = {name: plugins.origin(f"glocal.{kind}", name, registry[name]) for name in sorted(registry)}
    return Group(title, use, origins, lambda name: _about_object(registry[name]))


def _about_object(value: Any) -> str:
    if hasattr(value, "description"):  # a metric
        return f"{value.title}: {value.description}"
    own = value.__doc__ and inspect.cleandoc(value.__doc__)  # getdoc would take that of a parent class
    if own and (inspect.isfunction(value) or "\n" not in own.split("\n\n")[0]):
        return _sentence(own)
    module = inspect.getmodule(value)
    return _sentence((module and module.__doc__) or own or "")


def _about_recipe(file: Any) -> str:
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return _sentence(first.removeprefix("#")) if first.startswith("#") else ""


def _about_model(file: Path) -> str:
    """From its card, the first sentence under its title without links; without one, what its record says."""
    card = file.with_suffix(".md")
    if card.is_file():
        text = card.read_text(encoding="utf-8").split("\n\n")[1]
        return _sentence(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    from glocal.research.engine.records import read_record

    record = read_record(file)
    return f"{record['method']['name']} on {record['backbone']['name']}"


def _sentence(text: str) -> str:
    """The first one, without its stop."""
    line = " ".join(text.split("\n\n")[0].split()).replace("``", "")
    return re.split(r"(?<=[a-z0-9)])\.\s+(?=[A-Z])", line)[0].rstrip(".:")


def _listing(groups: dict[Kind, Group], *, every: bool, part: str) -> Any:
    """A line per name that is cut at the edge of a terminal and never wrapped: a list, no wall."""
    from rich.console import Console
    from rich.console import Group as Lines
    from rich.text import Text

    lines: list[Text] = []
    for kind, group in groups.items():
        rows = list(_rows(kind, group, fold=not part and (not every or kind is Kind.models)))
        width = max((len(name) for name, _ in rows), default=0)
        lines += [Text(), Text.assemble((group.title, "bold"), (f"  for {group.use}", "dim"))]
        lines += [Text.assemble(f"  {name:<{width}}  ", (about, "dim")) for name, about in rows]
    if tuple(groups) == _LIGHT:
        lines += [Text(), Text("Methods, data sets, metrics, recipes and models: pip install 'glocal[research]'")]
    if not Console().is_terminal:  # in a file or a pipe, all of a line
        return "\n".join(line.plain.rstrip() for line in lines[1:])
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Lines(*lines[1:])


def _rows(kind: Kind, group: Group, *, fold: bool) -> Iterator[tuple[str, str]]:
    families: dict[str, list[str]] = {}
    for name, origin in group.names.items():
        families.setdefault(_family(kind, name) if fold and not origin else name, []).append(name)
    for family, names in families.items():
        if len(names) > FEW:
            yield f"{family}{'/' if kind is Kind.models else '-'}...", f"{len(names)}: glocal list {kind} {family}"
            continue
        for name in names:
            origin = group.names[name]
            yield f"{name} (from {origin})" if origin else name, group.about(name)


def _family(kind: Kind, name: str) -> str:
    """Recipes and research heads of one data set belong together."""
    if kind is Kind.models:
        return name.partition("/")[0]
    if kind is not Kind.recipes:
        return name
    known = ("cifar-fs", "mini-imagenet", "tiered-imagenet", "tiered-64")
    return next((each for each in known if name.startswith(f"{each}-")), name)

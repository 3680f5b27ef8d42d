"""The numbers that the GEL paper prints, and what a reader should know of the model beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from glocal.research.data.episodes import EpisodeSpec
from glocal.research.engine.compare import Conditions
from glocal.research.engine.named_models import NamedModel
from glocal.research.methods import METHODS
from glocal.research.metrics import METRICS, Interval

TASKS = 600  # over which the paper takes its means
CAPTION = (
    "Published: the GEL paper, with a full-width backbone, 500 epochs of pre-training and its own tasks; the note says "
    "what ours is."
)


@dataclass(frozen=True)
class Published:
    """A row that the GEL paper prints; the metrics are fractions with their interval."""

    table: str  # table-1, ablation, combine, coefficients, resnet-18
    dataset: str
    method: str  # a name of METHODS, for variants ``gel/<variant>``
    shot: int
    backbone: str
    values: dict[str, Interval]
    note: str = ""


@cache
def published() -> tuple[Published, ...]:
    """Every row of the paper's tables, in the paper's order."""
    record = json.loads((resources.files("glocal.research.report") / "published.json").read_text("utf-8"))
    return tuple(_published(fields) for fields in record["rows"])


def _published(fields: dict[str, Any]) -> Published:
    values = {name: Interval(fields[name][0] / 100, fields[name][1] / 100, TASKS) for name in METRICS if name in fields}
    about = {key: value for key, value in fields.items() if key not in METRICS}
    return Published(values=values, **about)


def published_beside(each: NamedModel, on: Conditions) -> Published | None:
    """The paper's row for this method, data set, shot and backbone, where the tasks are the paper's."""
    if on.split != "test" or on.support_views > 1 or on.spec != EpisodeSpec(shot=on.spec.shot):
        return None
    wanted = (on.name, _paper_name(each), on.spec.shot, each.backbone)
    rows = (row for row in published() if (row.dataset, row.method, row.shot, row.backbone) == wanted)
    return next(rows, None)


def _paper_name(each: NamedModel) -> str:
    """GEL's variants have rows of their own; Delay Combine is the model of + Pixel wise under another score."""
    if each.method != "gel":
        return each.method
    variant, coefficients = each.settings.get("variant", "ahead"), each.settings.get("coefficients", "fixed")
    if (variant, each.score) == ("pixel", "delay"):
        variant = "delay"
    own = variant if variant != "ahead" else coefficients if coefficients != "fixed" else ""
    return f"gel/{own}" if own else "gel"


def about(each: NamedModel) -> str:
    """What a reader of the table should know of a model beside its name."""
    recipe, settings = each.model.record.get("recipe") or {}, each.settings
    widths = getattr(each.model.backbone, "stage_channels", ()) if each.backbone == "resnet12" else ()
    parts = [
        each.method if each.method not in each.name.split(":")[0].lower() else "",
        "reconstruction" if _is_reconstruction(each.method, settings) else "",
        "centred features" if settings.get("centre") else "",
        f"{'-'.join(map(str, widths))} channels" if widths else "",
    ]
    if recipe.get("stage") == "train":
        parts.append(f"{recipe['train']['backbone']} backbone, {recipe['train']['tasks']:,} tasks")
    elif recipe.get("stage") == "pretrain":
        parts.append("pre-trained backbone, no meta-training")
    return ", ".join(part for part in parts if part)


def _is_reconstruction(method: str, settings: Mapping[str, Any]) -> bool:
    """No program of it was ever released.  PEELER's is: only its ResNet-12 row had to be guessed."""
    return method in METHODS and bool(METHODS[method].card.reconstruction) and settings.get("variant") != "gaussian"

"""May our number stand beside the published one?  If not, why not, in a few words per reason."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from glocal.research.data.episodes import EpisodeSpec
from glocal.research.data.splits import PUBLISHED, published_split
from glocal.research.engine.named_models import NamedModel
from glocal.research.engine.weight_layouts import CONTRAST, TOP_K
from glocal.research.methods import METHODS, build_method
from glocal.research.methods.base import TEMPERATURES
from glocal.research.methods.gel import VARIANTS
from glocal.research.metrics import METRICS, Interval
from glocal.research.report.training import GEL, other_training

TASKS = 600  # over which the paper takes its means


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


PAPER_SIZES = {"mini-imagenet": 84, "tiered-imagenet": 84, "cifar-fs": 32}  # side of a picture in pixels
SMALL = 32  # pixels, at which no map is halved
PAPER_WIDTHS = {"resnet12": [64, 160, 320, 640]}
PAPER_TASK = EpisodeSpec()
PEELERS = {"prototype": "resnet12", "gaussian": "resnet18"}  # each was published on one backbone
# Settings that choose among published forms, follow from the backbone, or are judged elsewhere.
FORMS = ("variant", "coefficients", "memory", "negative", "early_channels", "sigma_channels", "open_score")


@dataclass(frozen=True)
class Conditions:
    """What a table was measured on."""

    dataset: str  # name or path, as given
    split: str
    classes: tuple[str, ...]
    spec: EpisodeSpec
    support_views: int = 1

    @property
    def name(self) -> str:
        return Path(self.dataset).name.removesuffix(".zip")


def published_beside(each: NamedModel, on: Conditions) -> Published | None:
    """The row of the paper's tables that this model repeats, if nothing stands against the comparison."""
    return None if why_not(each, on) else _row(each, on)


def why_not(each: NamedModel, on: Conditions) -> list[str]:
    """Every reason against it, to follow "not comparable with the paper:"; empty when nothing speaks against it."""
    if on.name not in {row.dataset for row in published()}:
        return [f"it has no results on {on.name}"]
    return [*_other_tasks(on), *_other_model(each, on)]


def about(each: NamedModel) -> str:
    """What a reader of the table should know of a model beside its name."""
    recipe, settings = each.model.record.get("recipe") or {}, each.settings
    parts = [each.method if each.method not in each.name.split(":")[0].lower() else ""]
    parts.append("reconstruction" if _is_reconstruction(each.method, settings) else "")
    parts.append("centred features" if settings.get("centre") else "")
    if recipe.get("stage") == "train":
        parts.append(f"{recipe['train']['backbone']} backbone")
    elif recipe.get("stage") == "pretrain":
        parts.append("pre-trained backbone, no meta-training")
    return ", ".join(part for part in parts if part)


def _is_reconstruction(method: str, settings: Mapping[str, Any]) -> bool:
    """No program of it was ever released.  PEELER's is: only its ResNet-12 row had to be guessed."""
    return method in METHODS and bool(METHODS[method].card.reconstruction) and settings.get("variant") != "gaussian"


def _other_tasks(on: Conditions) -> Iterator[str]:
    if on.split != "test" or (on.name in PUBLISHED and set(on.classes) != set(published_split(on.name)["test"])):
        yield "other classes than the published test split"
    if replace(on.spec, shot=PAPER_TASK.shot) != PAPER_TASK or on.spec.shot not in (1, 5):
        yield "its tasks have 5 + 5 classes with 15 queries of each and 1 or 5 shots"
    if on.support_views > 1:
        yield "it shows each support picture once"


def _other_model(each: NamedModel, on: Conditions) -> Iterator[str]:
    method = _paper_name(each)
    rows = [row for row in published() if (row.dataset, row.method) == (on.name, method)]
    if not rows:
        yield f"it has no {method} on {on.name}"
    backbone = each.backbone
    if rows and backbone not in {row.backbone for row in rows}:
        yield f"{backbone} backbone instead of {' or '.join(dict.fromkeys(row.backbone for row in rows))}"
    elif each.method == "peeler" and backbone != PEELERS[(form := _form(each).get("variant", "prototype"))]:
        yield f"variant {form} was published on {PEELERS[form]} alone"
    widths, full = list(getattr(each.model.backbone, "stage_channels", ())), PAPER_WIDTHS.get(backbone)
    if full and widths != full:
        yield f"narrow backbone ({'-'.join(map(str, widths))} channels instead of {'-'.join(map(str, full))})"
    size = each.model.backbone.preprocess.size
    if size != PAPER_SIZES[on.name]:
        yield f"pictures of {size} pixels instead of {PAPER_SIZES[on.name]}"
    yield from other_training(each, on.name, on.spec.shot)
    changed = [f"{key} = {value} instead of {usual}" for key, value, usual in _other_settings(each, on)]
    if changed:
        yield f"not the published form: {', '.join(changed)}"
    settings = {key: value for key, value in _form(each).items() if key != "open_score"}
    if settings.pop("centre", False):
        yield "centred features"
    usual = build_method(each.method, each.model.backbone.channels, settings).open_score
    if each.score != usual:
        yield f"open score {each.score} instead of {usual}"


def _other_settings(each: NamedModel, on: Conditions) -> Iterator[tuple[str, Any, Any]]:
    """Settings of the method with other values than were published: the defaults, unless a data set has its own."""
    if each.method not in METHODS:
        return
    accepted = list(inspect.signature(METHODS[each.method]).parameters.values())[1:]  # the first is no setting
    defaults = {parameter.name: parameter.default for parameter in accepted}
    used = defaults | each.settings
    published: dict[str, tuple[Any, ...]] = {key: (usual,) for key, usual in defaults.items() if key not in FORMS}
    if "temperature" in published:
        usual = defaults["temperature"] or TEMPERATURES[defaults.get("distance", "sq-euclidean")]
        published["temperature"] = (usual, None)  # None follows from the distance
    at = 0 if on.spec.shot == PAPER_TASK.shot else 1
    if each.method in GEL and not VARIANTS[used["variant"]].pixel:
        del published["top_k"]  # it compares no pixels
    if "top_k" in published and on.name in TOP_K:
        published["top_k"] = (TOP_K[on.name][at],)
    if "contrast_weight" in published and on.name in CONTRAST:
        own = zip(("contrast_weight", "temperature", "contrast_temperature"), CONTRAST[on.name][at], strict=True)
        published |= {key: (value, *published[key]) for key, value in own}
    if "reduce" in published:  # ResNet-18 on large pictures has 11x11 maps, which the authors halve
        published["reduce"] = (each.backbone == "resnet18" and PAPER_SIZES[on.name] > SMALL,)
    for key, usual_ones in published.items():
        if used[key] not in usual_ones:
            yield key, used[key], usual_ones[0]


def _form(each: NamedModel) -> dict[str, Any]:
    """Settings that say which published form it is: Delay Combine is the model of + Pixel wise under another score."""
    settings = each.settings
    delayed = each.method in GEL and settings.get("variant") == "pixel" and each.score == "delay"
    return settings | {"variant": "delay"} if delayed else settings


def _row(each: NamedModel, on: Conditions) -> Published | None:
    wanted = (on.name, _paper_name(each), on.spec.shot, each.backbone)
    rows = [row for row in published() if (row.dataset, row.method, row.shot, row.backbone) == wanted]
    return rows[0] if rows else None


def _paper_name(each: NamedModel) -> str:
    """GEL's variants have rows of their own."""
    name, settings = each.method, _form(each)
    if name not in GEL:
        return name
    variant, coefficients = settings.get("variant", "ahead"), settings.get("coefficients", "fixed")
    own = variant if variant != "ahead" else coefficients if coefficients != "fixed" else ""
    return f"gel/{own}" if own else "gel"

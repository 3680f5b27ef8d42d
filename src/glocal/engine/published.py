"""Import of published ``.pth`` files (FEAT, SnaTCHer, GEL, TANE): strict, and nothing in the file is executed.

Every weight of our modules must be in the file and every entry of the file must have a place here, in the base memory
or on the list of entries that are knowingly ignored; only DropBlock's counters, which no other program has, may lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glocal.backbones import build_backbone
from glocal.backbones.resnet12 import MEAN, STD
from glocal.engine.checkpoint import Model
from glocal.engine.pickled import read_pickled_weights
from glocal.methods import build_method
from glocal_runtime.errors import RecipeError, WeightsError

OUR_OWN = re.compile(r"layer[34]\.drop\.step")
BASE = {"weight": "base.weight", "bias": "base.bias"}  # the classifier of the base classes, in Model.extra
BASE_ROWS = ("fc.weight", "cls_classifier.weight", "cls_classifier.classifier.weight", "cls_classifier.weight_base")
ATT = "part of ATT / ATT-G, a method that glocal does not have yet"


class Layout(NamedTuple):
    """How a program names its weights, and what becomes of them here."""

    title: str
    method: str
    stage: str  # name of a backbone weight; {0}: layer1 .. layer4, {1}: the rest
    parts: Mapping[str, str] = {}  # our prefix in the method -> theirs
    base: tuple[str, ...] = ("fc.",)  # prefixes of the base classifier
    ignored: Mapping[str, str] = {}  # pattern of names -> why they are not needed
    note: str = ""


ENCODER = "encoder.{0}.0.{1}"
LAYOUTS = {
    "feat": Layout("FEAT", "feat", ENCODER, {"attend.": "slf_attn."}),
    "snatcher": Layout("SnaTCHer", "snatcher-f", ENCODER, {"attend.": "slf_attn."}),
    "gel": Layout(
        "GEL",
        "gel",
        ENCODER,
        {"attend.": "slf_attn.", "calibrate.": "conv."},
        ignored={r"EnergyLoss\.awl\.params": "dead: the authors' program adds both energies with coefficient 1"},
    ),
    "tane": Layout(
        "TANE",
        "protonet",
        "feature.{0}.{1}",
        base=("cls_classifier.", "cls_classifier.classifier."),
        ignored={
            r"(cls_classifier\.)?(calibrator|open_generator)\..+": ATT,
            r"(cls_classifier\.)?(weight_base|bias_base|weight_mem)": f"base memory, {ATT}",
            r"(cls_classifier\.)?metric\.temp": f"scale of the cosine, {ATT}",
            r"cls_classifier\.temp": "scale of a cosine classifier; the published one is linear and does not use it",
        },
        note="Only the backbone is imported, under protonet with cosine similarity: glocal has no ATT / ATT-G yet.",
    ),
    "pretrained": Layout(
        "pre-training of FEAT, SnaTCHer or GEL",
        "protonet",
        ENCODER,
        note="The file has no attention: the backbone is imported under protonet, to start a training from.",
    ),
}

IMAGES: dict[str, dict[str, Any]] = {  # evaluation transform of FEAT, SnaTCHer and GEL
    "mini-imagenet": {"image_size": 84, "resize": 92, "mean": MEAN, "std": STD},
    "tiered-imagenet": {"image_size": 84, "resize": None, "mean": MEAN, "std": STD},
    "cifar-fs": {"image_size": 32, "resize": 40, "mean": MEAN, "std": STD},
}
TANE_CIFAR = {"mean": (0.5071, 0.4867, 0.4408), "std": (0.2675, 0.2565, 0.2761)}
TOP_K = {"mini-imagenet": (10, 1), "tiered-imagenet": (2, 5), "cifar-fs": (1, 1)}  # 1-shot, 5-shot
CONTRAST = {  # weight, temperature, contrast temperature; CIFAR-FS was not published and takes miniImageNet's
    "mini-imagenet": ((0.01, 64.0, 64.0), (0.1, 64.0, 32.0)),
    "tiered-imagenet": ((0.1, 64.0, 64.0), (0.1, 32.0, 64.0)),
    "cifar-fs": ((0.01, 64.0, 64.0), (0.1, 64.0, 32.0)),
}
TIERED_CLASSES = 351


@dataclass(frozen=True)
class Report:
    """What was found in the file and where it went."""

    file: str
    sha256: str
    container: str  # entry that held the weights
    beside: list[str]  # other entries of the file: no weights
    layout: str
    layout_why: str
    dataset: str
    dataset_why: str
    method: str
    settings: dict[str, Any]
    preprocess: dict[str, Any]
    widths: list[int]
    parameters: dict[str, int]  # of the backbone and the method
    tensors: dict[str, dict[str, Any]]  # published name -> our name and shape
    ignored: dict[str, str]  # published name -> why
    added: list[str]  # our own counters, zero
    notes: list[str]

    @property
    def counts(self) -> dict[str, int]:
        """Tensors that went into the backbone, the method and the base memory, and those that were ignored."""
        parts = [entry["to"].partition(".")[0] for entry in self.tensors.values()]
        return {part: parts.count(part) for part in ("backbone", "method", "extra")} | {"ignored": len(self.ignored)}

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"counts": self.counts}


class Imported(NamedTuple):
    model: Model
    report: Report


def import_published(path: str | Path, *, layout: str = "auto", dataset: str | None = None, shot: int = 1) -> Imported:
    """The model in a published file.  ``dataset`` chooses the pictures' preparation and, with ``shot``, the settings
    that were published for it and that the file does not hold (top_k, temperatures)."""
    path = Path(path)
    _check_choices(layout, dataset, shot)
    state, container, beside, sha256 = read_pickled_weights(path)
    layout, layout_why = (layout, "asked for") if layout != "auto" else _recognise(state, path)
    form = LAYOUTS[layout]
    dataset, dataset_why = (dataset, "asked for") if dataset else _dataset_of(state, path)

    settings = _settings(form.method, layout, dataset, shot)
    images = IMAGES[dataset] if layout != "tane" else _tane_images(dataset)
    where = f"{path} in the layout of {form.title}"
    widths = [_width(state, form, stage, where) for stage in ("layer1", "layer2", "layer3", "layer4")]
    with torch.random.fork_rng(devices=[]):  # the numbers that new modules draw are all replaced
        backbone_settings = {"width": widths, **{name: _plain(value) for name, value in images.items()}}
        backbone = build_backbone("resnet12", **backbone_settings)
        method = build_method(form.method, backbone.channels, settings)
    placed, added = _places(form, backbone, method)
    base = _base_of(state, form, backbone.channels, where)
    ignored = {name: why for name in state for pattern, why in form.ignored.items() if re.fullmatch(pattern, name)}
    _check(state, placed, (*base, *ignored), {"backbone": backbone, "method": method}, where)

    for module, part in ((backbone, "backbone."), (method, "method.")):
        own = {ours.removeprefix(part): state[name] for name, ours in placed.items() if ours.startswith(part)}
        module.load_state_dict(own, strict=False)  # completeness was checked above, in the file's own names
    went = placed | {name: f"extra.{ours}" for name, ours in base.items()}
    report = Report(
        file=path.name,
        sha256=sha256,
        container=container,
        beside=beside,
        layout=layout,
        layout_why=layout_why,
        dataset=dataset,
        dataset_why=dataset_why,
        method=form.method,
        settings=settings,
        preprocess=backbone.preprocess.to_json(),
        widths=widths,
        parameters={"backbone": _parameters(backbone), "method": _parameters(method)},
        tensors={name: {"to": ours, "shape": list(state[name].shape)} for name, ours in went.items()},
        ignored=ignored,
        added=added,
        notes=_notes(form, layout, layout_why, shot, settings),
    )
    record = {
        "backbone": {"name": "resnet12", "settings": backbone_settings},
        "method": {"name": form.method, "settings": settings},
        "preprocess": report.preprocess,
        # A stage that starts from here writes this into its chain, as it does with a recipe.
        "recipe": {"stage": "import", "file": path.name, "sha256": sha256, "layout": layout, "dataset": dataset},
        "chain": [],
    }
    extra = {ours: state[name].detach().clone() for name, ours in base.items()}
    return Imported(Model(backbone, method, record, extra).eval(), report)


def _recognise(names: Iterable[str], path: Path) -> tuple[str, str]:
    heads = sorted({name.partition(".")[0] for name in names})
    if any(name.startswith("feature.layer") for name in names):
        return "tane", "backbone under feature.layer1 .. 4"
    if not any(name.startswith("encoder.layer") for name in names):
        raise WeightsError(
            f"{path} has no ResNet-12 that FEAT, SnaTCHer, GEL (encoder.layer1.0.conv1.weight) or TANE "
            f"(feature.layer1.conv1.weight) would write; its entries begin with {_some(heads)}"
        )
    for layout, marks in (("gel", ("conv", "EnergyLoss")), ("feat", ("slf_attn",))):
        found = [mark for mark in marks if mark in heads]
        if found:
            return layout, f"backbone under encoder.layer1.0 .. 4.0, and {' and '.join(found)}"
    return "pretrained", "backbone under encoder.layer1.0 .. 4.0, and no slf_attn"


def _dataset_of(state: Mapping[str, Tensor], path: Path) -> tuple[str, str]:
    rows = [len(state[name]) for name in BASE_ROWS if name in state and state[name].ndim]
    if rows == [TIERED_CLASSES]:
        return "tiered-imagenet", f"its classifier has tieredImageNet's {TIERED_CLASSES} base classes"
    reason = f"{rows[0]} base classes do not tell it" if rows else "it holds no classifier of the base classes"
    raise RecipeError(f"which pictures is {path} for? {reason}; add --dataset, one of {', '.join(IMAGES)}")


def _tane_images(dataset: str) -> dict[str, Any]:
    """TANE evaluates on the stored 84 or 32 pixels as they are, CIFAR-FS with a normalisation of its own."""
    return IMAGES[dataset] | {"resize": None} | (TANE_CIFAR if dataset == "cifar-fs" else {})


def _settings(method: str, layout: str, dataset: str, shot: int) -> dict[str, Any]:
    at = (1, 5).index(shot)
    if method == "gel":
        return {"variant": "ahead", "top_k": TOP_K[dataset][at]}
    if method == "protonet":
        return {"distance": "cosine"} if layout == "tane" else {}
    names = ("contrast_weight", "temperature", "contrast_temperature")
    return dict(zip(names, CONTRAST[dataset][at], strict=True))


def _notes(form: Layout, layout: str, why: str, shot: int, settings: Mapping[str, Any]) -> list[str]:
    notes = [form.note] if form.note else []
    if layout == "feat" and why != "asked for":
        notes.append("SnaTCHer's files have the same names: --layout snatcher gives its open score.")
    if form.method != "protonet":
        shown = ", ".join(f"{name} {value}" for name, value in settings.items())
        notes.append(f"Not in the file, as published for {shot}-shot: {shown}. --shot chooses 1 or 5.")
    return notes


def _places(form: Layout, backbone: nn.Module, method: nn.Module) -> tuple[dict[str, str], list[str]]:
    """Published name -> ours for every weight that the file must have, and our own counters."""
    added = [f"backbone.{name}" for name in backbone.state_dict() if OUR_OWN.fullmatch(name)]
    placed = {
        form.stage.format(*name.split(".", 1)): f"backbone.{name}"
        for name in backbone.state_dict()
        if not OUR_OWN.fullmatch(name)
    }
    for name in method.state_dict():
        ours, theirs = next(pair for pair in form.parts.items() if name.startswith(pair[0]))
        placed[theirs + name.removeprefix(ours)] = f"method.{name}"
    return placed, added


def _width(state: Mapping[str, Tensor], form: Layout, stage: str, where: str) -> int:
    name = form.stage.format(stage, "conv1.weight")
    if name not in state:
        raise WeightsError(f"{where} lacks {name}; see its entries, or leave the layout to auto")
    if state[name].ndim != 4:
        raise WeightsError(f"{where}: {name} must be (out, in, 3, 3), got {tuple(state[name].shape)}")
    return len(state[name])


def _base_of(state: Mapping[str, Tensor], form: Layout, dim: int, where: str) -> dict[str, str]:
    """Published name -> ours of the base classifier, when there is one."""
    for prefix in form.base:
        if prefix + "weight" not in state:
            continue
        found = {prefix + name: ours for name, ours in BASE.items() if prefix + name in state}
        rows = state[prefix + "weight"].shape[:1]
        for name, ours in found.items():
            wanted = (*rows, dim) if ours == BASE["weight"] else tuple(rows)
            if tuple(state[name].shape) != wanted:
                raise WeightsError(f"{where}: {name} must be {wanted}, got {tuple(state[name].shape)}")
        return found
    return {}


def _check(
    state: Mapping[str, Tensor],
    placed: Mapping[str, str],
    elsewhere: Iterable[str],
    modules: Mapping[str, nn.Module],
    where: str,
) -> None:
    """Nothing missing, nothing left over, every shape right."""
    missing = [name for name in placed if name not in state]
    left = sorted(set(state) - set(placed) - set(elsewhere))
    if missing or left:
        faults = ([f"lacks {_some(missing)}"] if missing else []) + (
            [f"has {_some(left)}, which {'has' if len(left) == 1 else 'have'} no place here"] if left else []
        )
        raise WeightsError(f"{where} {' and '.join(faults)}; a file must fit exactly, or its numbers would be wrong")
    own = {f"{part}.{name}": value for part, module in modules.items() for name, value in module.state_dict().items()}
    for name, ours in placed.items():
        if state[name].shape != own[ours].shape:
            raise WeightsError(f"{where}: {name} must be {tuple(own[ours].shape)}, got {tuple(state[name].shape)}")


def _check_choices(layout: str, dataset: str | None, shot: int) -> None:
    for setting, value, choices in (
        ("layout", layout, ("auto", *LAYOUTS)),
        ("dataset", dataset, (None, *IMAGES)),
        ("shot", shot, (1, 5)),
    ):
        if value not in choices:
            raise RecipeError(f"{setting} must be one of {', '.join(map(str, filter(None, choices)))}, got {value!r}")


def _some(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value  # as JSON gives it back

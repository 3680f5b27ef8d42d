"""Import of published ``.pth`` files (FEAT, SnaTCHer, GEL, TANE, Conv-4): strict, and nothing in a file is executed.

Every weight of our modules must be in the file.  Every entry of the file must have a place in the modules, in the base
memory or on the list of ignored entries.  Only DropBlock's counters may lack, because no other program has them.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glocal.common.errors import RecipeError, WeightsError
from glocal.common.words import listed
from glocal.research.backbones import build_backbone
from glocal.research.engine.checkpoint import TrainedModel, check_outline
from glocal.research.engine.weight_layouts import (
    BASE_ROWS,
    IMAGES,
    LAYOUTS,
    TANE_BASE,
    TIERED_CLASSES,
    Layout,
    images_of,
    published_name,
    settings_of,
)
from glocal.research.methods import build_method
from glocal.research.methods.att import ATTG

_some = partial(listed, most=3)  # weights in a sentence
OUR_OWN = re.compile(r"layer[34]\.drop\.step")
CONTAINERS = ("params", "cls_params", "state_dict")  # where the programs put the weights; or at the top
DTYPES = (torch.float16, torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)
# Harmless objects that programs saved beside the weights: scores and the command line.
BYSTANDERS = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "numpy.dtype", "argparse.Namespace")


@dataclass(frozen=True)
class ImportReport:
    """The content of a file and its place in our modules."""

    file: str
    sha256: str
    container: str  # entry that held the weights
    beside: list[str]  # other entries of the file: no weights
    layout: str
    layout_why: str
    dataset: str
    dataset_why: str
    backbone: str
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
    model: TrainedModel
    report: ImportReport


def import_weights(path: str | Path, *, layout: str = "auto", dataset: str | None = None, shot: int = 1) -> Imported:
    """The model in a published file.  ``dataset`` chooses the pictures' preparation and, with ``shot``, the settings
    that were published for it and that the file does not hold (top_k, temperatures)."""
    path = Path(path)
    _check_choices(layout, dataset, shot)
    state, container, beside, sha256 = read_pickled(path)
    layout, layout_why = (layout, "asked for") if layout != "auto" else _recognise(state, path)
    _check_choices(layout, dataset, shot)
    form = LAYOUTS[layout]
    dataset, dataset_why = (dataset, "asked for") if dataset else _dataset_of(state, path)

    settings, images = settings_of(form, dataset, shot, state), images_of(form, dataset)
    where = f"{path} in the layout of {form.title}"
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in images.items()}  # as in JSON
    if form.backbone == "conv4":
        widths = [_width(state, "0.weight", where)] * 4
        backbone_settings: dict[str, Any] = {"width": widths[0], "flat": True, **plain}
    else:
        names = [form.stage.format(f"layer{i}", "conv1.weight") for i in (1, 2, 3, 4)]
        widths = [_width(state, name, where) for name in names]
        backbone_settings = {"width": widths, **plain}
    check_outline(partial(build_backbone, form.backbone, backbone_settings), state.values(), "backbone")
    with torch.random.fork_rng(devices=[]):  # the numbers that new modules draw are all replaced
        backbone = build_backbone(form.backbone, backbone_settings)
        method = build_method(form.method, backbone.channels, settings)
    if isinstance(method, ATTG) and TANE_BASE[0] in state:
        method.base.fill(torch.empty(*state[TANE_BASE[0]].shape[:1], backbone.channels))
    placed, added = _places(form, backbone, method)
    base = _base_of(state, form, backbone.channels, where)
    ignored = {name: why for name in state for pattern, why in form.ignored.items() if re.fullmatch(pattern, name)}
    _check(state, placed, (*base, *ignored), {"backbone": backbone, "method": method}, where)

    for module, part in ((backbone, "backbone."), (method, "method.")):
        own = {ours.removeprefix(part): state[name] for name, ours in placed.items() if ours.startswith(part)}
        module.load_state_dict(own, strict=False)  # completeness was checked above, in the file's own names
    went = {name: f"extra.{ours}" for name, ours in base.items()} | placed
    report = ImportReport(
        file=path.name,
        sha256=sha256,
        container=container,
        beside=beside,
        layout=layout,
        layout_why=layout_why,
        dataset=dataset,
        dataset_why=dataset_why,
        backbone=form.backbone,
        method=form.method,
        settings=settings,
        preprocess=backbone.preprocess.to_json(),
        widths=widths,
        parameters={
            part: sum(parameter.numel() for parameter in module.parameters())
            for part, module in (("backbone", backbone), ("method", method))
        },
        tensors={name: {"to": ours, "shape": list(state[name].shape)} for name, ours in went.items()},
        ignored=ignored,
        added=added,
        notes=_notes(form, layout, layout_why, shot, settings) + _precision(state.values()),
    )
    record = {
        "backbone": {"name": form.backbone, "settings": backbone_settings},
        "method": {"name": form.method, "settings": settings},
        "preprocess": report.preprocess,
        # A stage that starts from here writes this into its chain, as it does with a recipe.
        "recipe": {"stage": "import", "file": path.name, "sha256": sha256, "layout": layout, "dataset": dataset},
        "chain": [],
    }
    extra = {ours: state[name].detach().clone() for name, ours in base.items()}
    return Imported(TrainedModel(backbone, method, record, extra).eval(), report)


def _recognise(names: Iterable[str], path: Path) -> tuple[str, str]:
    if {"0.weight", "4.weight", "8.weight", "12.weight"} <= {*names}:
        return "conv4", "four times convolution and batch norm in one sequence, 0.weight .. 13.bias"
    heads = sorted({name.partition(".")[0] for name in names})
    if any(name.startswith("feature.layer") for name in names):
        head = "cls_classifier.open_generator.att.fc.weight" in names and not any(".task_visfuse." in n for n in names)
        where = "backbone under feature.layer1 .. 4"
        return ("att-g", f"{where}, and cls_classifier.open_generator") if head else ("tane", where)
    if not any(name.startswith("encoder.layer") for name in names):
        raise WeightsError(
            f"{path} has no ResNet-12 that FEAT, SnaTCHer, GEL (encoder.layer1.0.conv1.weight) or TANE "
            f"(feature.layer1.conv1.weight) would write; its entries begin with {_some(heads)}"
        )
    # GEL without pixels has the same names as FEAT: only where its program puts a file tells them apart.
    folders = path.resolve().parent.parts
    named_by_gel = path.name == "max_auroc.pth" or any(re.search("-DIS(-New)?-Energy", part) for part in folders)
    if named_by_gel and "slf_attn" in heads and not {"conv", "EnergyLoss"} & set(heads):
        return "gel-maps", "slf_attn and no conv, in a file named as GEL's program names its own"
    for layout, marks in (("gel", ("conv", "EnergyLoss")), ("feat", ("slf_attn",))):
        present = [mark for mark in marks if mark in heads]
        if present:
            return layout, f"backbone under encoder.layer1.0 .. 4.0, and {' and '.join(present)}"
    return "pretrained", "backbone under encoder.layer1.0 .. 4.0, and no slf_attn"


def _dataset_of(state: Mapping[str, Tensor], path: Path) -> tuple[str, str]:
    rows = [len(state[name]) for name in BASE_ROWS if name in state and state[name].ndim]
    if "0.weight" in state:
        return "mini-imagenet", "its program has no other colour pictures"
    if rows == [TIERED_CLASSES]:
        return "tiered-imagenet", f"its classifier has tieredImageNet's {TIERED_CLASSES} base classes"
    reason = f"{rows[0]} base classes do not tell it" if rows else "it holds no classifier of the base classes"
    raise RecipeError(f"which pictures is {path} for? {reason}; add --dataset, one of {', '.join(IMAGES)}")


def _notes(form: Layout, layout: str, why: str, shot: int, settings: Mapping[str, Any]) -> list[str]:
    notes = [form.note] if form.note else []
    if layout == "feat" and why != "asked for":
        notes.append(
            "SnaTCHer's files have the same names, and so have GEL's without pixels: --layout snatcher or gel-maps "
            "gives their open scores."
        )
    if layout == "att-g" and why != "asked for":
        notes.append("ATT's files have the same names: --layout att gives that method.")
    if settings.get("variant") == "pixel":
        notes.append(
            "No EnergyLoss.awl.params: the run was without --ahead_combine, its loss and open score are the energy of "
            "the pixels alone (variant pixel). Delay Combine is the same weights with --score delay."
        )
    if form.method not in ("protonet", "att", "att-g") and layout != "gel-maps":
        shown = ", ".join(f"{name} {value}" for name, value in settings.items() if name != "variant")
        notes.append(f"Not in the file, as published for {shot}-shot: {shown}. --shot chooses 1 or 5.")
    return notes


def _precision(weights: Iterable[Tensor]) -> list[str]:
    wide = sum(weight.dtype == torch.float64 for weight in weights)
    return [f"{wide} tensors are float64 in the file and float32 here."] if wide else []


def _places(form: Layout, backbone: nn.Module, method: nn.Module) -> tuple[dict[str, str], list[str]]:
    """Published name -> ours for every weight that the file must have, and our own counters."""
    added = [f"backbone.{name}" for name in backbone.state_dict() if OUR_OWN.fullmatch(name)]
    placed = {
        published_name(form, name): f"backbone.{name}" for name in backbone.state_dict() if not OUR_OWN.fullmatch(name)
    }
    for name in method.state_dict():
        ours, theirs = next(pair for pair in form.parts.items() if name.startswith(pair[0]))
        placed[theirs + name.removeprefix(ours)] = f"method.{name}"
    return placed, added


def _width(state: Mapping[str, Tensor], name: str, where: str) -> int:
    if name not in state:
        raise WeightsError(f"{where} lacks {name}; see its entries, or leave the layout to auto")
    if state[name].ndim != 4:
        raise WeightsError(f"{where}: {name} must be (out, in, 3, 3), got {tuple(state[name].shape)}")
    return len(state[name])


def _base_of(state: Mapping[str, Tensor], form: Layout, dim: int, where: str) -> dict[str, str]:
    """Published name -> ours of the base classifier, when there is one."""
    for weight, bias in form.base:
        if weight not in state:
            continue
        rows = tuple(state[weight].shape[:1])
        for name, wanted in ((weight, (*rows, dim)), (bias, rows)):
            if name in state and tuple(state[name].shape) != wanted:
                raise WeightsError(f"{where}: {name} must be {wanted}, got {tuple(state[name].shape)}")
        return {weight: "base.weight"} | ({bias: "base.bias"} if bias in state else {})
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
        ("dataset", dataset, (None, "mini-imagenet") if layout == "conv4" else (None, *IMAGES)),
        ("shot", shot, (1, 5)),
    ):
        if value not in choices:
            raise RecipeError(f"{setting} must be one of {', '.join(map(str, filter(None, choices)))}, got {value!r}")


class Pickled(NamedTuple):
    state: dict[str, Tensor]  # names without ``module.``
    container: str  # the entry that held the weights
    beside: list[str]  # the other entries
    sha256: str  # of the file


def read_pickled(path: Path) -> Pickled:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror}") from error
    state, container, beside = _weights_of(_load(content, path), path)
    return Pickled(state, container, beside, hashlib.sha256(content).hexdigest())


class _Bystander:
    """Stands in for the objects of BYSTANDERS; takes anything and keeps nothing."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...


def _load(content: bytes, path: Path) -> Any:
    """Only tensors and plain values are rebuilt; a file that asks for anything else is refused."""
    inert: list[Any] = [(_Bystander, name) for name in BYSTANDERS]
    try:
        with torch.serialization.safe_globals(inert), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the sentences below replace them
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can make the unpickler fail in any way
        asked = re.search(r"GLOBAL (\S+)", str(error))
        if asked:
            raise WeightsError(
                f"{path} was refused and nothing in it was run: it asks for {asked[1]}, which is no tensor and could "
                "execute code; ask its author for the state dict alone"
            ) from error
        raise WeightsError(f"{path} is damaged, cut short, or not a file that torch.save wrote") from error


def _weights_of(tree: Any, path: Path) -> tuple[dict[str, Tensor], str, list[str]]:
    """The weights, the entry that holds them, and the other entries."""
    if not isinstance(tree, Mapping):
        raise WeightsError(f"{path} holds a {type(tree).__name__}, not a dictionary of weights")
    held = [name for name in CONTAINERS if isinstance(tree.get(name), Mapping)]
    if len(held) > 1:
        raise WeightsError(f"{path} holds weights in {' and '.join(held)}; save a file with one of them")
    weights = tree[held[0]] if held else tree
    state: dict[str, Tensor] = {}
    for key, value in weights.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise WeightsError(f"{path}: entry {key!r} is a {type(value).__name__}, and weights must be tensors")
        if value.layout is not torch.strided or value.dtype not in DTYPES:
            kind = f"{str(value.layout).removeprefix('torch.')} tensor of {str(value.dtype).removeprefix('torch.')}"
            raise WeightsError(
                f"{path}: entry {key!r} is a {kind}, and weights must be dense float16, 32 or 64 or whole numbers; "
                "convert it before saving"
            )
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise WeightsError(f"{path}: entry {key!r} is larger than what the file holds of it")
        # DataParallel around the whole model, or around its backbone alone.
        name = re.sub(r"^(encoder|feature)\.module\.", r"\1.", key.removeprefix("module."))
        if name in state:
            raise WeightsError(f"{path} has {name} twice, with and without module.; keep one of them")
        state[name] = value
    if not state:
        raise WeightsError(f"{path} holds no weights")
    if not held:
        return state, "the top", []
    return state, held[0], [str(name) for name in tree if name != held[0]]

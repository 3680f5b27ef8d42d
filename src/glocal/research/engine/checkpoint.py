"""Checkpoints: one safetensors file whose header carries a JSON record.  No pickle, written atomically.

One file, so that weights and the record of how they came about cannot be separated or half replaced.
"""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from glocal import __version__
from glocal.common.errors import WeightsError
from glocal.common.files import replacing
from glocal.research import plugins
from glocal.research.backbones import BACKBONES, Backbone, build_backbone
from glocal.research.engine.records import BEST as BEST
from glocal.research.engine.records import LAST as LAST
from glocal.research.engine.records import find_checkpoint as find_checkpoint
from glocal.research.engine.records import record_of
from glocal.research.methods import Method, build_method
from glocal.research.types import Preprocess, tensor_hash

FORMAT = 1
SLACK = 1 << 20  # numbers that a module may have beside its weights in the file


@dataclass(frozen=True)
class TrainedModel:
    """A backbone, the method on top of it, and the record of how they came about."""

    backbone: Backbone
    method: Method
    record: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Tensor] = field(default_factory=dict)  # e.g. the base classifier of pre-training

    @property
    def method_name(self) -> str:
        return str(self.record.get("method", {}).get("name", type(self.method).__name__))

    def tensors(self) -> dict[str, Tensor]:
        """Every weight and buffer under ``backbone.``, ``method.`` or ``extra.``.

        A backbone whose weights are still those of a package, or of a shipped model, is named by their fingerprint
        and not stored again.
        """
        parts = {"backbone": self.backbone.state_dict(), "method": self.method.state_dict(), "extra": self.extra}
        packaged = self.record.get("backbone", {}).get("packaged")
        if packaged and packaged == self.backbone.fingerprint():
            del parts["backbone"]
        return {f"{part}.{name}": value for part, state in parts.items() for name, value in state.items()}

    def to(self, device: torch.device | str) -> TrainedModel:
        """Backbone and method on that device; returns itself."""
        self.backbone.to(device)
        self.method.to(device)
        return self

    def eval(self) -> TrainedModel:
        """Backbone and method in evaluation mode; returns itself."""
        self.backbone.eval()
        self.method.eval()
        return self


def write_checkpoint(
    path: str | Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any], *, half: bool = False
) -> None:
    """``half`` stores floating-point numbers as float16, which ships at half the size."""
    stored = {name: _plain(value, half, name) for name, value in tensors.items()}
    ours = {"format": FORMAT, "version": __version__, "sha256": tensor_hash(stored)}
    content = save(stored, metadata={"glocal": json.dumps({**record, **ours})})
    with replacing(path) as partial:
        partial.write_bytes(content)


def read_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors (float16 widened to float32) and record; anything that is no intact checkpoint of ours is refused."""
    if not Path(path).is_file():
        raise WeightsError(f"checkpoint {path} cannot be read: there is no such file", code="no-file")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"checkpoint {path} is damaged or no safetensors file: {error}", code="damaged") from error
    record = record_of(path, header)
    written_as, version, digest = record["format"], record["version"], record["sha256"]
    if written_as != FORMAT:
        raise WeightsError(
            f"checkpoint {path} has format {written_as}, written by glocal {version}; this is glocal {__version__}, "
            f"which reads format {FORMAT}: update glocal",
            code="newer",
        )
    if tensor_hash(tensors) != digest:  # safetensors itself does not notice a flipped bit
        raise WeightsError(
            f"checkpoint {path} is damaged: its weights are not those that were written; copy it again", code="damaged"
        )
    return {name: t.float() if t.dtype == torch.float16 else t for name, t in tensors.items()}, record


def save_model(path: str | Path, model: TrainedModel, *, half: bool = False) -> None:
    """One checkpoint that ``load_model`` reads; ``half`` stores float16, half the size."""
    tensors, record = model.tensors(), model.record
    if any(name.startswith("backbone.") for name in tensors):  # its own by now: it no longer goes by another's name
        about = {key: value for key, value in record.get("backbone", {}).items() if key not in ("packaged", "model")}
        record = record | {"backbone": about}
    write_checkpoint(path, tensors, record, half=half)


def load_model(source: str | Path) -> TrainedModel:
    """Read a trained model.

    Parameters
    ----------
    source : str or Path
        A checkpoint file, a run folder (its best checkpoint on validation), or a shipped model by its name.

    Returns
    -------
    TrainedModel
        Backbone and method with their weights, and the record of the training.

    Examples
    --------
    >>> import glocal
    >>> model = glocal.load_model("embedded-gel")
    >>> model.record["method"]["name"], model.method.score_name
    ('frozen-gel', 'E')
    """
    tensors, record = read_checkpoint(find_checkpoint(source))
    parts: dict[str, dict[str, Tensor]] = {"backbone": {}, "method": {}, "extra": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        if part in parts:
            parts[part][rest] = value
    try:
        about, fetch = record["backbone"], not parts["backbone"]
        if not (fetch and ("model" in about or _brings_weights(about["name"]))):
            check_outline(lambda: _build(about, fetch=False), parts["backbone"].values(), "backbone")
        backbone = _build(about, fetch=fetch)
        make = partial(build_method, record["method"]["name"], backbone.channels, record["method"]["settings"])
        check_outline(make, parts["method"].values(), "method")
        method = make()
        if "preprocess" in record:
            backbone.preprocess = Preprocess.from_json(record["preprocess"])
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, RecursionError) as error:
        raise WeightsError(
            f"checkpoint {source}, written by glocal {record['version']}, names a model that this glocal "
            f"{__version__} cannot build: {error}",
            code="no-plugin" if getattr(error, "code", None) == "no-plugin" else "cannot-build",
        ) from error
    load_strictly(method, parts["method"], f"method of {source}")
    if parts["backbone"] or "packaged" not in record["backbone"]:
        load_strictly(backbone, parts["backbone"], f"backbone of {source}")
    elif backbone.fingerprint() != record["backbone"]["packaged"]:
        raise WeightsError(
            f"{source} was made with other weights of {record['backbone']['name']} than the installed package brings"
            f"{' in ' + record['backbone']['model'] if 'model' in record['backbone'] else ''}; "
            "install the package version it was made with",
            code="other-weights",
        )
    return TrainedModel(backbone, method, record, parts["extra"])


def check_outline(build: Callable[[], torch.nn.Module], there: Iterable[Tensor], what: str) -> None:
    """Refuse settings of a larger module than the weights are of, before it takes any memory: it is built of shapes."""
    with torch.device("meta"):
        needed = sum(each.numel() for each in build().state_dict().values())
    if needed > (held := sum(each.numel() for each in there)) + SLACK:
        raise WeightsError(f"the {what} that it describes has {needed:,} numbers, and it holds {held:,} of them")


def _brings_weights(name: str) -> bool:
    return "pretrained" in inspect.signature(plugins.find(plugins.BACKBONES, BACKBONES, name)).parameters


def _build(record: Mapping[str, Any], *, fetch: bool) -> Backbone:
    """``fetch``: the weights are not in the checkpoint, but in a package or in a shipped model."""
    if fetch and "model" in record:
        return load_model(record["model"]).backbone
    settings = dict(record["settings"])
    if not fetch and _brings_weights(record["name"]):
        settings["pretrained"] = False
    return build_backbone(record["name"], settings)


def load_strictly(module: torch.nn.Module, state: Mapping[str, Tensor], what: str) -> None:
    """Every weight present, none left over, every shape right; otherwise a sentence that says which."""
    try:
        module.load_state_dict(dict(state), strict=True)
    except RuntimeError as error:
        details = textwrap.shorten(" ".join(str(error).splitlines()[1:]), width=400, placeholder=" ...")
        raise WeightsError(f"{what} does not fit {type(module).__name__}: {details}", code="does-not-fit") from error


def _plain(value: Tensor, half: bool, name: str) -> Tensor:
    value = value.detach().cpu().contiguous()
    if not (half and value.is_floating_point()):
        return value.clone()  # tensors that share memory are refused by safetensors
    narrow = value.half()
    if not narrow.isfinite().all():
        raise WeightsError(f"{name} has values beyond the range of float16 (65504); save it without half")
    return narrow

"""The model behind a recognizer: read from wherever the user names it, and kept as the bytes of its checkpoint.

The bytes go into the recognizer's file as they are, so it needs no checkpoint beside it and an update of the shipped
weights does not change its answers.  A backbone whose weights come with a package is named by their hash.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from glocal.backbones import build_backbone
from glocal.engine.calibrate import ScoreModel, score_model_of
from glocal.engine.checkpoint import Model, find_checkpoint, load_model, save_model
from glocal.methods import build_method
from glocal_runtime.base import NEEDS_RIVALS, check_way
from glocal_runtime.errors import RecipeError

DEFAULT = "photos-gel"
TIMM = "timm:"  # timm:resnet50 is that network under cosine prototypes
PLAIN_HEAD = {"distance": "cosine", "open_score": "distance"}


@dataclass(frozen=True)
class Brain:
    name: str  # as the user named it
    model: Model
    checkpoint: bytes  # what load_model() reads
    score: str  # the open score it decides by
    own_score: str  # the one the model was made with

    @cached_property
    def score_model(self) -> ScoreModel | None:
        """What the head knows of its own open score; of another one chosen by the user it knows nothing."""
        return score_model_of(self.model.record) if self.score == self.own_score else None

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.checkpoint).hexdigest()

    @cached_property
    def eye_sha256(self) -> str:
        """Hash of the backbone's architecture and weights."""
        return self.model.backbone.fingerprint()

    @property
    def method(self) -> str:
        name: str = self.model.record["method"]["name"]
        return name

    def check_way(self, way: int) -> None:
        """Refuse a number of classes that the method is not defined for."""
        names = [name for name in self.model.method.score_names if name not in NEEDS_RIVALS]
        check_way(
            way,
            method=self.method,
            min_way=self.model.method.min_way,
            score=self.score,
            other_model=f"another model such as {DEFAULT}",
            other_score=f"choose another with --score: {', '.join(names)}",
        )


def load_brain(source: str | Path | Model, *, score: str | None = None) -> Brain:
    """A shipped model by name, a run folder, a checkpoint file, ``timm:NETWORK``, or a model in memory."""
    if isinstance(source, Model):
        return _in_memory("(model)", source, score)
    if str(source).startswith(TIMM):
        return _in_memory(str(source), _on_timm(str(source).removeprefix(TIMM)), score)
    path = find_checkpoint(source)
    return _brain(str(source), load_model(path), path.read_bytes(), score)


def brain_from_bytes(name: str, checkpoint: bytes, *, score: str | None = None) -> Brain:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(checkpoint)
        return _brain(name, load_model(path), checkpoint, score)


def _in_memory(name: str, model: Model, score: str | None) -> Brain:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_model(path, model)
        return _brain(name, model, path.read_bytes(), score)


def _brain(name: str, model: Model, checkpoint: bytes, score: str | None) -> Brain:
    if model.method.transductive:
        raise RecipeError(
            f"{model.record['method']['name']} lets the pictures of a folder see each other, so an answer would depend "
            f"on which pictures are asked about together; a recognizer needs another method, such as that of {DEFAULT}"
        )
    own = model.method.open_score
    if score is not None:
        model.method.choose_score(score)
    return Brain(name, model, checkpoint, model.method.open_score, own)


def _on_timm(network: str) -> Model:
    backbone = build_backbone("timm", trainable=False, model=network)
    method = build_method("protonet", backbone.channels, PLAIN_HEAD)
    eye = {"name": "timm", "settings": {"model": network}}
    record = {
        "backbone": eye,
        "method": {"name": "protonet", "settings": PLAIN_HEAD},
        "preprocess": backbone.preprocess.to_json(),
    }
    return Model(backbone, method, record)

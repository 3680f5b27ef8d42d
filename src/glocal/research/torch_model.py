"""A model of torch modules behind the recognizer: read from wherever the user names it, kept as its checkpoint's bytes.

The bytes go into the recognizer's file as they are, so it needs no checkpoint beside it and an update of the shipped
weights does not change its answers.  A backbone whose weights come with a package is named by their hash.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from glocal.common.errors import DataError, RecipeError
from glocal.recognizer import features as arrays
from glocal.recognizer.model import CHECKPOINT, DEFAULT, PARTS, Asked, Scores, Trial
from glocal.recognizer.photos.images import Pixels
from glocal.research.backbones import build_backbone
from glocal.research.engine.checkpoint import Model, find_checkpoint, load_model, save_model
from glocal.research.engine.distributed import pick_device
from glocal.research.methods import Method, build_method
from glocal.research.methods.base import Comparison
from glocal.research.types import Views, to_one_hot

FILE = "checkpoint.safetensors"
TIMM = "timm:"  # timm:resnet50 is that network under cosine prototypes
PLAIN_HEAD = {"distance": "cosine", "open_score": "distance"}


class TorchHead:
    """A method on one device: arrays in, arrays out."""

    def __init__(self, method: Method, device: torch.device | str = "cpu") -> None:
        self._method, self._device = method, torch.device(device)
        self.min_way, self.takes_unknown = method.min_way, method.takes_unknown

    def enroll(self, support: arrays.Views, label: arrays.Labels) -> Any:
        with torch.inference_mode():
            return self._method.enroll(self._here(support), to_one_hot(torch.from_numpy(label).to(self._device)))

    def compare(self, state: Any, query: arrays.Views) -> Scores:
        with torch.inference_mode():
            return self._scores(self._method.compare(state, self._here(query)))

    def trials(self, support: arrays.Views, asked: arrays.Views) -> Trial:
        with torch.inference_mode():
            there = self._here(support)
            tried = self._method.trials(there, there if asked is support else self._here(asked))

        def trial(rows: arrays.Labels, label: arrays.Labels) -> Asked:
            with torch.inference_mode():
                one_hot = to_one_hot(torch.from_numpy(label).to(self._device))
                ask = tried(torch.from_numpy(rows).to(self._device), one_hot)

            def answered(query: arrays.Labels) -> Scores:
                with torch.inference_mode():
                    return self._scores(ask(torch.from_numpy(query).to(self._device)))

            return answered

        return trial

    def _scores(self, comparison: Comparison) -> Scores:
        scores = comparison.open_score(self._method.open_score)
        parts = {name: comparison.own[name]().cpu().numpy() for name in PARTS if name in comparison.own}
        return Scores(comparison.logits.cpu().numpy(), scores.cpu().numpy(), parts)

    def _here(self, views: arrays.Views) -> Views:
        return Views.from_numpy(views, self._device)


class TorchModel(TorchHead):
    """``checkpoint`` is what ``load_model`` reads; ``score`` an open score other than the model's own."""

    def __init__(
        self, name: str, model: Model, checkpoint: bytes, *, score: str | None = None, device: str = "auto"
    ) -> None:
        if model.method.transductive:
            raise RecipeError(
                f"{model.record['method']['name']} lets the pictures of a folder see each other, so an answer would "
                "depend on which pictures are asked about together; a recognizer needs another method, such as that "
                f"of {DEFAULT}",
                code="transductive",
            )
        if score is not None:
            model.method.choose_score(score)
        where = pick_device(device)
        super().__init__(model.method.to(where).eval(), where)
        self._backbone = model.backbone.on(where).eval()
        self.name, self.model, self.checkpoint = name, model, checkpoint
        self.sha256 = hashlib.sha256(checkpoint).hexdigest()
        self.method: str = model.record["method"]["name"]
        self.preprocess: Any = model.backbone.preprocess
        self.open_score, self.score_names = model.method.open_score, tuple(model.method.score_names)

    @classmethod
    def read(cls, record: Mapping[str, Any], files: Mapping[str, bytes], *, device: str = "auto") -> TorchModel:
        """From a recognizer's file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / FILE
            path.write_bytes(files[FILE])
            found = cls(record["name"], load_model(path), files[FILE], score=record["open_score"], device=device)
        if found.model.backbone.fingerprint() != record["backbone_sha256"]:
            raise DataError(
                "it was made with other backbone weights than those on this machine; install the package version it "
                "was made with",
                code="other-weights",
            )
        return found

    def record(self) -> dict[str, Any]:
        made = self.model.record
        return {
            "kind": CHECKPOINT,
            "name": self.name,
            "method": self.method,
            "open_score": self.open_score,
            "preprocess": self.preprocess.to_json(),
            "settings": dict(made["method"]["settings"]),
            "backbone": {key: made["backbone"][key] for key in ("name", "settings") if key in made["backbone"]},
            "backbone_sha256": self.model.backbone.fingerprint(),
        }

    def files(self) -> dict[str, bytes]:
        return {FILE: self.checkpoint}

    def embed(self, images: Pixels) -> arrays.Views:
        """(B, size, size, 3) uint8 -> views."""
        with torch.inference_mode():
            there = torch.from_numpy(images).permute(0, 3, 1, 2).to(self._device)
            there = there.contiguous(memory_format=torch.channels_last)
            return self._method.embed(self._backbone(self.preprocess.normalize(there))).numpy()


def load_torch_model(source: str | Path | Model, *, score: str | None = None, device: str = "auto") -> TorchModel:
    """A shipped model by name, a run folder, a checkpoint file, ``timm:NETWORK``, or a model in memory."""
    if isinstance(source, Model):
        return _in_memory("(model)", source, score, device)
    if str(source).startswith(TIMM):
        return _in_memory(str(source), _on_timm(str(source).removeprefix(TIMM)), score, device)
    path = find_checkpoint(source)
    return TorchModel(str(source), load_model(path), path.read_bytes(), score=score, device=device)


def _in_memory(name: str, model: Model, score: str | None, device: str) -> TorchModel:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        save_model(path, model)
        return TorchModel(name, model, path.read_bytes(), score=score, device=device)


def _on_timm(network: str) -> Model:
    backbone = build_backbone("timm", trainable=False, model=network)
    method = build_method("protonet", backbone.channels, PLAIN_HEAD)
    record = {
        "backbone": {"name": "timm", "settings": {"model": network}},
        "method": {"name": "protonet", "settings": PLAIN_HEAD},
        "preprocess": backbone.preprocess.to_json(),
    }
    return Model(backbone, method, record)

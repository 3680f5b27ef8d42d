"""The models of a comparison: a model and one of its open scores, under the name of its row.

    RUN                   A run folder, a checkpoint file or a shipped model; the open score it was trained with.
    RUN:SCORE             Another open score; several as RUN:E,entropy, every one as RUN:all.
    LABEL=RUN:SCORE       The same under a name of your own.

A path that itself holds ``=`` or ``:`` is taken as it is when it exists.  ``RowStore`` keeps what was measured.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glocal import __version__
from glocal.common.errors import RecipeError
from glocal.common.files import write_text
from glocal.research.backbones import Backbone
from glocal.research.engine.checkpoint import TrainedModel, load_model
from glocal.research.engine.evaluate import Rows
from glocal.research.engine.records import parse_name
from glocal.research.methods import Method
from glocal.research.methods.base import check_choice
from glocal.research.metrics import METRICS, block_metrics
from glocal.research.source_hash import source_hash
from glocal.research.types import tensor_hash

FORMAT = "glocal-rows-1"


@dataclass(frozen=True)
class NamedModel:
    name: str  # of its row
    model: TrainedModel
    score: str  # the open score that is read off
    identity: str  # hash of all weights and settings that its answers depend on, the open score excepted
    encoder: str  # hash of backbone and preprocessing: equal ones give equal maps

    @property
    def method(self) -> str:
        return self.model.method_name

    @property
    def settings(self) -> dict[str, Any]:
        """Of the method."""
        return dict(self.model.record.get("method", {}).get("settings", {}))

    @property
    def fine_tuned(self) -> bool:
        """Whether the backbone learned with the method: no other model has its maps."""
        recipe = self.model.record.get("recipe") or {}
        return recipe.get("stage") == "train" and recipe["train"]["backbone"] == "fine-tuned"

    @property
    def backbone(self) -> str:
        return str(self.model.record.get("backbone", {}).get("name", type(self.model.backbone).__name__))


def load_models(named: Iterable[str] | Mapping[str, TrainedModel | str]) -> list[NamedModel]:
    """As on a command line, or models by name.  Equal backbones are held in memory once."""
    backbones: dict[str, Backbone] = {}
    if isinstance(named, Mapping):
        models = {k: copy.deepcopy(m) if isinstance(m, TrainedModel) else load_model(m) for k, m in named.items()}
        return [name_model(name, model, backbones=backbones) for name, model in models.items()]
    loaded: dict[str, NamedModel] = {}  # by run: one named twice is read once
    chosen: list[NamedModel] = []
    for text in named:
        label, run, wanted = parse_name(text)
        if run not in loaded:
            loaded[run] = name_model(label, load_model(run), backbones=backbones)
        known = loaded[run]
        scores = known.model.method.score_names
        for score in scores if wanted == ("all",) else wanted or (known.score,):
            if score not in scores:
                raise RecipeError(
                    f"{run} ({known.method}) has the open scores {', '.join(scores)}, got {score!r} in {text!r}",
                    code="open-score",
                )
            chosen.append(replace(known, name=label, score=score))
    return _different_names(chosen)


def name_model(
    name: str, model: TrainedModel, *, score: str | None = None, backbones: dict[str, Backbone] | None = None
) -> NamedModel:
    """``score`` is the method's own when left out; the backbone is exchanged for an equal one of ``backbones``."""
    encoder = _hash(model.backbone.fingerprint(), model.backbone.preprocess.fingerprint())
    if backbones is not None:
        model = replace(model, backbone=backbones.setdefault(encoder, model.backbone))
    weights = tensor_hash(model.method.state_dict())
    identity = _hash(encoder, json.dumps(model.record.get("method"), sort_keys=True), weights)
    method = model.method
    chosen = method.score_name if score is None else check_choice("open_score", score, method.score_names)
    return NamedModel(name, model, chosen, identity, encoder)


def check_reference(reference: str | None, models: Sequence[NamedModel]) -> str:
    """The row that differences are taken against: the first one when none is named."""
    names = [each.name for each in models]
    if reference is not None and reference not in names:
        raise RecipeError(f"the reference must be one of the rows {', '.join(names)}, got {reference!r}")
    return names[0] if reference is None else reference


def _different_names(models: Sequence[NamedModel]) -> list[NamedModel]:
    """Several scores of one label become label:score; what is still the same twice is refused."""
    labels = Counter(each.name for each in models)
    named = [replace(each, name=f"{each.name}:{each.score}") if labels[each.name] > 1 else each for each in models]
    twice = [name for name, count in Counter(each.name for each in named).items() if count > 1]
    if twice:
        raise RecipeError(
            f"two rows would be called {twice[0]!r}; give them different labels, as in LABEL=RUN", code="same-name"
        )
    return named


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class RowStore:
    """Rows that were measured once and are read the next time: one JSON file per model and task list.

    A file is named by what its numbers depend on: weights, settings and code of the model, open score, tasks, support
    views and metrics.  So an edited formula is computed again.
    """

    folder: Path

    def read(self, model: NamedModel, tasks: str, support_views: int) -> Rows | None:
        """The rows, or None when they are not there; a file that is not whole counts as not there."""
        record, file = self._record(model, tasks, support_views)
        try:
            stored = json.loads(file.read_text("utf-8"))
            rows = {str(name): np.asarray(values, np.float64) for name, values in stored.pop("rows").items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return rows if stored == record else None

    def write(self, model: NamedModel, tasks: str, support_views: int, rows: Rows) -> None:
        record, file = self._record(model, tasks, support_views)
        write_text(file, json.dumps(record | {"rows": {name: values.tolist() for name, values in rows.items()}}))

    def _record(self, model: NamedModel, tasks: str, support_views: int) -> tuple[dict[str, Any], Path]:
        record = {
            "format": FORMAT,
            "version": __version__,
            "method": model.method,
            "model": model.identity,
            "code": code_hash(model),
            "open_score": model.score,
            "tasks": tasks,
            "support_views": support_views,
            "metrics": sorted(METRICS),
        }
        key = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
        return record, self.folder / f"{key[:32]}.json"


def code_hash(model: NamedModel) -> str:
    """Of the source files that compute the answers: those of method, backbone and metrics, and what they import."""
    parts = [part for part in model.model.method.modules() if isinstance(part, Method)]  # a wrapper and what it wraps
    return source_hash([*parts, model.model.backbone, block_metrics, *(metric.compute for metric in METRICS.values())])

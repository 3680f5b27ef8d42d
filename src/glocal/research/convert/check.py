"""Compare a converted model with the modules that it was traced from, on a few pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from glocal.common.errors import WeightsError
from glocal.hub.measuring import COMPARED, SHOT, WAY, sketches
from glocal.recognizer.converted import EMBED, ENROLL, SCORE, ConvertedModel
from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.features import Array
from glocal.recognizer.photos.images import Pixels
from glocal.research.engine.checkpoint import TrainedModel
from glocal.research.types import normalize, to_one_hot

TOLERANCE = 1e-4  # of the spread of an output, which is its largest value less its smallest


@dataclass(frozen=True)
class Agreement:
    """Differences between a model and its graphs, by output, as shares of the output's spread."""

    differences: Mapping[str, float]
    queries: int
    same_class: int  # queries whose most similar class is the same

    @property
    def largest(self) -> float:
        return max(self.differences.values())


def check(model: TrainedModel, converted: ConvertedModel) -> Agreement:
    """Refuse graphs whose answers differ from those of the modules by more than ``TOLERANCE``."""
    agreement = compare_answers(model, converted, sketches(COMPARED, converted.preprocess.size))
    off = {name: each for name, each in agreement.differences.items() if not each <= TOLERANCE}
    if off:
        shown = ", ".join(f"{name} by {each:.1e}" for name, each in off.items())
        raise WeightsError(
            f"{converted.name} is not converted: its graphs differ from the model by more than {TOLERANCE:g} of the "
            f"spread ({shown}). A method of your own must not branch on the numbers of photos or classes",
            code="other-answers",
        )
    return agreement


def compare_answers(model: TrainedModel, converted: ConvertedModel, images: Pixels) -> Agreement:
    """Of ``images`` (B, size, size, 3) the first 15 are enrolled as 5 classes, the others are queries."""
    label = np.arange(WAY * SHOT) % WAY
    theirs, ours = _of_modules(model, images, label), _of_graphs(converted, images, label)
    differences = {name: _difference(ours[name], theirs[name]) for name in theirs}
    same = (ours["logits"].argmax(axis=1) == theirs["logits"].argmax(axis=1)).sum()
    return Agreement(differences, len(ours["logits"]), int(same))


def _of_modules(model: TrainedModel, images: Pixels, label: Array) -> dict[str, Array]:
    backbone, method = model.eval().backbone, model.method
    with torch.inference_mode():
        maps = backbone(normalize(torch.from_numpy(images).permute(0, 3, 1, 2), backbone.preprocess))
        views = method.embed(maps)
        support, query = views.rows(slice(len(label))), views.rows(slice(len(label), None))
        comparison = method.compare(method.enroll(support, to_one_hot(torch.from_numpy(label))), query)
        outputs = {"vec": views.vec, "logits": comparison.logits}
        outputs |= {} if views.local is None else {"local": views.local}
        outputs |= {name: comparison.scores[name] for name in method.score_names}
    return {name: each.numpy() for name, each in outputs.items()}


def _of_graphs(converted: ConvertedModel, images: Pixels, label: Array) -> dict[str, Array]:
    views = _run(converted, EMBED, {"images": images})
    support = {name: each[: len(label)] for name, each in views.items()}
    query = {name: each[len(label) :] for name, each in views.items()}
    state = _run(converted, ENROLL, {"label": np.eye(WAY, dtype=np.float32)[label], **support})
    return views | _run(converted, SCORE, {**state, **query})


def _run(converted: ConvertedModel, name: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
    graph = Graph(converted.graphs[name], name)
    return dict(zip(graph.outputs, graph(feeds, graph.outputs), strict=True))


def _difference(ours: Array, theirs: Array) -> float:
    """Scores that all but agree have no more digits than float32 gives to their size: hence the hundredth."""
    spread = max(float(np.ptp(theirs)), float(np.abs(theirs).max()) / 100) or 1.0
    return float(np.abs(ours - theirs).max()) / spread

"""From a trained model to graphs that the recognizer runs without PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from glocal.hub.precision import smaller_graph
from glocal.recognizer.converted import EMBED, ConvertedModel
from glocal.recognizer.photos.images import Preprocess
from glocal.research.backbones import build_backbone
from glocal.research.convert.check import Agreement, check, compare_answers
from glocal.research.convert.tracing import trace
from glocal.research.engine.checkpoint import TrainedModel, load_model
from glocal.research.methods import build_method

TIMM = "timm:"  # timm:resnet50 is that network under cosine prototypes
PLAIN_HEAD = {"distance": "cosine", "open_score": "distance"}


def convert(source: str | Path | TrainedModel) -> ConvertedModel:
    """A run folder, checkpoint, shipped model, ``timm:NETWORK`` or model as graphs, checked against its modules."""
    return convert_and_compare(source)[0]


def convert_and_compare(
    source: str | Path | TrainedModel, *, half: bool = False, int8: str | Path | None = None
) -> tuple[ConvertedModel, Agreement]:
    """``convert``, and how far its answers are from those of the modules.

    ``half`` stores the weights of backbone and embedding in half precision.  ``int8`` names a folder of photos, which
    scale 8-bit layers; the answers to these photos are compared then.
    """
    name, model = ("model", source) if isinstance(source, TrainedModel) else (str(source), _load(str(source)))
    method = model.method
    converted = ConvertedModel(
        name=name,
        method=model.record.get("method", {}).get("name", type(method).__name__),
        open_score=method.score_name,
        score_names=tuple(method.score_names),
        preprocess=Preprocess.from_json(model.backbone.preprocess.to_json()),
        graphs=trace(model),
        min_way=method.min_way,
        takes_unknown=method.takes_unknown,
    )
    agreement = check(model, converted)
    if half or int8 is not None:
        graph, precision, images = smaller_graph(converted.graphs[EMBED], converted.preprocess, int8)
        converted = replace(converted, graphs={**converted.graphs, EMBED: graph}, precision=precision)
        agreement = compare_answers(model, converted, images)
    return converted, agreement


def _load(source: str) -> TrainedModel:
    if not source.startswith(TIMM):
        return load_model(source)
    network = source.removeprefix(TIMM)
    backbone = build_backbone("timm", {"model": network}, trainable=False)
    method = build_method("protonet", backbone.channels, PLAIN_HEAD)
    return TrainedModel(backbone, method, {"method": {"name": "protonet", "settings": PLAIN_HEAD}})

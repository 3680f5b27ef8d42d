"""Networks of PyTorch as ONNX graphs with the inputs and outputs that hub repositories give theirs.

    pixel_values (B, 3, size, size)  ->  last_hidden_state: tokens (B, T, C) or a map (B, C, h, w)
                                         pooler_output (B, D), where the network has one

From there on they are graphs like any other.  Each is compared with its network on a few pictures.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.export import Dim

from glocal.common.errors import RecipeError, WeightsError
from glocal.hub.about import about_folder
from glocal.hub.graph_files import LARGEST
from glocal.hub.making import from_graph
from glocal.hub.measuring import sketches
from glocal.hub.precision import quiet
from glocal.hub.wrapping import HIDDEN, VECTORS
from glocal.recognizer.encoders.file import EncoderFile
from glocal.recognizer.encoders.session import Graph
from glocal.research.backbones.timm import import_timm, preprocess_of
from glocal.research.convert.tracing import graph_of
from glocal.research.engine.checkpoint import load_model
from glocal.research.types import Preprocess, normalize

TIMM = "timm:"
TAKEN = "pixel_values"
TOLERANCE = 1e-4  # of the largest number of an output
PICTURES = 4
Outputs: TypeAlias = Callable[[Any, Tensor], dict[str, Tensor]]
VISION = {  # of a model for pictures and text, the part that sees
    "clip": "CLIPVisionModelWithProjection",
    "clip_vision_model": "CLIPVisionModelWithProjection",
    "siglip": "SiglipVisionModel",
    "siglip_vision_model": "SiglipVisionModel",
}
CLASSIFIERS = ("head.", "head_dist.", "fc.", "classifier.", "last_linear.")  # names of weights behind the features


def from_network(source: str, given: dict[str, Any], folder: Path | None) -> EncoderFile:
    """``timm:NAME``, ``timm:NAME@WEIGHTS``, a folder of transformers, or a run or checkpoint of training."""
    if source.startswith(TIMM):
        network, known = _timm(source)
    elif folder is not None and (folder / "config.json").is_file():
        network, known = _transformer(folder), about_folder(folder)
    else:
        network, known = _backbone(source)
    known |= given
    size = known.get("size")
    if size is None:
        raise RecipeError(f"nothing says for which size of photos {source} is; say it with --about", code="no-size")
    return from_graph(onnx.load_from_string(_checked_graph(network, size, source)), source, known)


def _checked_graph(network: nn.Module, size: int, source: str) -> bytes:
    """With the outputs of the network, or a sentence."""
    network = network.eval().requires_grad_(False)
    if sum(each.nbytes for each in network.state_dict().values()) > LARGEST:
        raise RecipeError(f"{source} has more than 2 GiB of weights; choose a smaller network", code="too-large")
    images = sketches(PICTURES, size)
    pixels = normalize(torch.from_numpy(images).permute(0, 3, 1, 2), Preprocess(size))
    try:
        with torch.inference_mode():
            expected = {name: each.numpy() for name, each in network(pixels).items()}
    except RuntimeError as error:
        line = str(error).partition("\n")[0]
        raise RecipeError(f"{source} does not take photos of {size} pixels: {line}", code="no-size") from error
    graph = graph_of(network, (pixels[:2],), ({0: Dim.DYNAMIC},), [TAKEN], list(expected))
    given = Graph(graph, f"the graph of {source}")({TAKEN: pixels.numpy()}, list(expected))
    for (name, theirs), ours in zip(expected.items(), given, strict=True):
        difference = float(np.abs(theirs - ours).max()) / max(float(np.abs(theirs).max()), 1e-12)
        if not difference <= TOLERANCE:
            raise WeightsError(
                f"{source} is not converted: {name} of its graph differs by {difference:.1e} from the network, more "
                f"than {TOLERANCE:g}",
                code="other-answers",
            )
    return graph


class _Named(nn.Module):
    """A network, and what it gives under the names of hub repositories."""

    def __init__(self, network: Any, outputs: Outputs) -> None:
        super().__init__()
        self.network, self.outputs = network, outputs

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        return self.outputs(self.network, pixels)


def _of_vision(model: Any, pixels: Tensor) -> dict[str, Tensor]:
    outputs = model(pixel_values=pixels)
    return {name: each for name in (HIDDEN, *VECTORS) if (each := getattr(outputs, name, None)) is not None}


def _of_timm(net: Any, pixels: Tensor) -> dict[str, Tensor]:
    """The map of its last block, and what its head pools."""
    final, maps = net.forward_intermediates(pixels, indices=1, norm=True, output_fmt="NCHW")
    return {HIDDEN: maps[-1], "pooler_output": net.forward_head(final, pre_logits=True).flatten(1)}


def _of_backbone(backbone: Any, pixels: Tensor) -> dict[str, Tensor]:
    return {HIDDEN: backbone(pixels)}


def _backbone(source: str) -> tuple[nn.Module, dict[str, Any]]:
    backbone = load_model(source).to("cpu").backbone
    return _Named(backbone, _of_backbone), backbone.preprocess.to_json()


def _transformer(folder: Path) -> nn.Module:
    if not any(folder.glob("*.safetensors")):
        raise WeightsError(
            f"{folder} has no weights that can be read: neither a graph (.onnx) nor .safetensors; choose a repository "
            "that has one of them",
            code="no-weights",
        )
    with quiet():
        transformers = importlib.import_module("transformers")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
            kind = getattr(transformers, VISION.get(config.model_type, "AutoModel"))
            model, loading = kind.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, output_loading_info=True, dtype=torch.float32
            )
        except (OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
            line = str(error).strip().partition("\n")[0][:200]
            raise WeightsError(
                f"transformers {transformers.__version__} cannot load {folder} ({line})", code="other-weights"
            ) from error
    missing = sorted(name for name in loading["missing_keys"] if not name.startswith("pooler."))
    odd = [*missing, *(str(each[0]) for each in loading.get("mismatched_keys", ()))]
    if odd:
        raise WeightsError(
            f"{folder} holds weights of another architecture than its config.json names: {len(odd)} are missing or of "
            f"another shape, such as {odd[0]}",
            code="other-weights",
        )
    return _Named(model, _of_vision)


def _timm(source: str) -> tuple[nn.Module, dict[str, Any]]:
    """Pretrained weights are downloaded by timm, unless a file is named."""
    name, _, weights = source.removeprefix(TIMM).partition("@")
    timm = import_timm()
    try:
        net = timm.create_model(name, pretrained=not weights, num_classes=0)
    except RuntimeError as error:
        raise RecipeError(f"timm cannot build {name!r}: {error}", code="no-network") from error
    if not hasattr(net, "forward_intermediates"):
        raise RecipeError(f"{name} of timm gives no maps (forward_intermediates); choose another", code="no-network")
    if weights:
        _fill(net, Path(weights), name)
    return _Named(net, _of_timm), preprocess_of(timm.data.resolve_model_data_config(net)).to_json()


def _fill(net: nn.Module, file: Path, name: str) -> None:
    """All weights but those of the classifier must be there and fit."""
    try:
        there: Mapping[str, Tensor] = load_file(file)
    except Exception as error:  # safetensors raises its own kinds
        raise WeightsError(f"{file} is no file of weights (.safetensors): {error}", code="no-weights") from error
    kept = {key: each for key, each in there.items() if not key.startswith(CLASSIFIERS)}
    try:
        net.load_state_dict(kept)
    except RuntimeError as error:
        line = " ".join(str(error).split())[:200]
        raise WeightsError(
            f"{file} holds weights of another architecture than {name}: {line}", code="other-weights"
        ) from error

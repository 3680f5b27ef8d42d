"""Networks without a graph as encoders: of transformers, of timm (a stand-in), and of our own training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from glocal.hub.making import located
from glocal.hub.measuring import sketches
from glocal.recognizer.encoders.encoder import encoder_of
from glocal.recognizer.encoders.file import EncoderFile
from glocal.recognizer.features import unit
from glocal.research.convert.encoders import from_network
from glocal.research.engine.checkpoint import save_model
from glocal.research.types import Preprocess, normalize
from refusal import refused
from stand_in import stand_in
from tiny_models import tiny_model

SIZE = 64
TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SEES = {"image_size": SIZE, "patch_size": 8}
STAGES = {"hidden_sizes": [8, 8, 16, 32], "depths": [1, 1, 1, 1]}
# By name: classes of configuration and model, settings, output that is the vector, tokens before the patches.
NETWORKS: dict[str, tuple[str, str, dict[str, Any], str, int | None]] = {
    "dinov2-registers": (
        "Dinov2WithRegistersConfig",
        "AutoModel",
        {**TINY, **SEES, "image_size": 112, "num_register_tokens": 4},  # trained at another size than it is used at
        "pooler_output",
        5,
    ),
    "vit": ("ViTConfig", "AutoModel", {**TINY, **SEES}, "first token of last_hidden_state", 1),
    "dinov2": ("Dinov2Config", "AutoModel", {**TINY, **SEES}, "pooler_output", 1),
    "dinov3": ("DINOv3ViTConfig", "AutoModel", {**TINY, **SEES, "num_register_tokens": 4}, "pooler_output", 5),
    "siglip": ("SiglipVisionConfig", "SiglipVisionModel", {**TINY, **SEES}, "pooler_output", 0),
    "clip": (
        "CLIPVisionConfig",
        "CLIPVisionModelWithProjection",
        {**TINY, **SEES, "projection_dim": 16},
        "image_embeds",
        1,
    ),
    "swin": (
        "SwinConfig",
        "AutoModel",
        {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "image_size": SIZE},
        "pooler_output",
        0,
    ),
    "convnext": ("ConvNextConfig", "AutoModel", {**STAGES, "image_size": SIZE}, "pooler_output", None),
    "resnet": ("ResNetConfig", "AutoModel", {**STAGES, "embedding_size": 8}, "pooler_output", None),
}
QUICK = "dinov2-registers"


def saved(name: str, folder: Path) -> nn.Module:
    """A random network in a folder as transformers leaves it."""
    transformers = pytest.importorskip("transformers", reason="pip install 'glocal[hf]'")
    config, kind, settings, _, _ = NETWORKS[name]
    if not hasattr(transformers, config):
        pytest.skip(f"transformers {transformers.__version__} has no {config}")
    torch.manual_seed(0)
    made = getattr(transformers, config)(**settings)
    build = getattr(transformers, kind)
    model = (build.from_config(made) if kind == "AutoModel" else build(made)).eval()
    model.save_pretrained(folder)
    photos = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "size": {"height": SIZE, "width": SIZE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(photos))
    return model


def made(folder: Path) -> EncoderFile:
    place = located(str(folder), "model")
    assert place is not None
    assert place.graph is None
    return from_network(str(folder), {}, place.folder)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == QUICK else pytest.mark.long) for name in NETWORKS]
)
def test_graphs_answer_as_their_networks(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    encoder = made(tmp_path)
    _, _, _, vec, leading = NETWORKS[name]
    assert encoder.outputs == {"vec": vec, "local": "last_hidden_state"}
    images = sketches(5, SIZE)
    with torch.inference_mode():
        pixels = normalize(torch.from_numpy(images).permute(0, 3, 1, 2), encoder_preprocess(encoder))
        outputs = model(pixel_values=pixels)
    hidden = outputs.last_hidden_state
    wanted = hidden[:, 0] if vec.startswith("first") else getattr(outputs, vec).flatten(1)
    if leading is not None:
        tokens = hidden[:, leading:]
        side = int(tokens.shape[1] ** 0.5)
        hidden = tokens.transpose(1, 2).reshape(len(images), -1, side, side)
    cells = nn.functional.adaptive_avg_pool2d(hidden, min(4, hidden.shape[2])).numpy()
    features = encoder_of(encoder)(images)
    np.testing.assert_allclose(features.vec, unit(wanted.numpy()), atol=1e-4)
    np.testing.assert_allclose(features.local[0], unit(cells, axis=1), atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "projected"), [("CLIP", {"projection_dim": 16}), ("Siglip", {})])
def test_of_a_model_for_pictures_and_text_the_part_that_sees(
    kind: str, projected: dict[str, int], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install 'glocal[hf]'")
    torch.manual_seed(0)
    text, vision = {**TINY, "vocab_size": 50}, {**TINY, **SEES, **projected}
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision, **projected)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    model.save_pretrained(tmp_path)
    photos = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "size": SIZE}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(photos))
    encoder = made(tmp_path)
    images = sketches(3, SIZE)
    with torch.inference_mode():
        pixels = normalize(torch.from_numpy(images).permute(0, 3, 1, 2), encoder_preprocess(encoder))
        given = model.get_image_features(pixel_values=pixels)
    wanted = getattr(given, "pooler_output", given)
    np.testing.assert_allclose(encoder_of(encoder)(images).vec, unit(wanted.numpy()), atol=1e-4)


def encoder_preprocess(encoder: EncoderFile) -> Preprocess:
    return Preprocess.from_json(encoder.preprocess.to_json())


def test_weights_that_do_not_belong_to_the_network(tmp_path: Path) -> None:
    saved(QUICK, tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = load_file(weights)
    name = next(each for each in whole if each.endswith("query.weight"))
    save_file({each: value for each, value in whole.items() if each != name}, weights, {"format": "pt"})
    with refused("other-weights", "config.json", "1 "):
        made(tmp_path)
    save_file({**whole, name: torch.zeros(4, 4)}, weights, {"format": "pt"})
    with refused("other-weights"):
        made(tmp_path)
    weights.unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    with refused("no-weights", ".safetensors"):
        made(tmp_path)


def test_the_backbone_of_a_run_of_ours(tmp_path: Path) -> None:
    model = tiny_model()
    save_model(tmp_path / "model.safetensors", model)
    encoder = from_network(str(tmp_path / "model.safetensors"), {"name": "mine"}, None)
    assert (encoder.name, encoder.outputs["vec"]) == ("mine", "last_hidden_state")  # a map of one cell
    images = sketches(3, 16)
    backbone = model.backbone.eval()
    with torch.inference_mode():
        maps = backbone(normalize(torch.from_numpy(images).permute(0, 3, 1, 2), backbone.preprocess))
    features = encoder_of(encoder)(images)
    np.testing.assert_allclose(features.vec, unit(maps.mean((2, 3)).numpy()), atol=1e-4)


TIMM = '''"""What a vision transformer of timm offers."""
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.token = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
        self.norm, self.head = nn.LayerNorm(8), nn.Identity()

    def forward_intermediates(self, x, *, indices, norm, output_fmt):
        assert (indices, norm, output_fmt) == (1, True, "NCHW")
        maps = self.stem(x)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), maps.flatten(2).transpose(1, 2)], dim=1)
        tokens = self.norm(tokens)
        return tokens, [tokens[:, 1:].transpose(1, 2).reshape(maps.shape)]

    def forward_head(self, x, *, pre_logits):
        assert pre_logits
        return x[:, 0]

def create_model(name, *, pretrained, num_classes):
    assert num_classes == 0 and not pretrained
    if name == "vit_nothing":
        raise RuntimeError("Unknown model (vit_nothing)")
    torch.manual_seed(0)
    return Net()
'''
DATA = """
def resolve_model_data_config(model):
    return {"input_size": (3, 32, 32), "interpolation": "bicubic", "crop_pct": 0.8, "crop_mode": "center",
            "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
"""


@pytest.fixture
def timm(tmp_path: Path) -> Iterator[None]:
    with stand_in(tmp_path, "timm", __init__=TIMM, data=DATA):
        yield


@pytest.mark.usefixtures("timm")
def test_a_vision_transformer_of_timm_with_weights_of_a_file(tmp_path: Path) -> None:
    import timm

    net = timm.create_model("vit_tiny", pretrained=False, num_classes=0)
    with torch.no_grad():
        net.token += 1
    file = tmp_path / "vit.safetensors"
    save_file({**net.state_dict(), "head.weight": torch.zeros(3, 8)}, file)
    encoder = from_network(f"timm:vit_tiny@{file}", {}, None)
    assert (encoder.preprocess.size, encoder.preprocess.resize) == (32, 40)
    images = sketches(3, 32)
    with torch.inference_mode():
        pixels = normalize(torch.from_numpy(images).permute(0, 3, 1, 2), encoder_preprocess(encoder))
        tokens, [maps] = net.forward_intermediates(pixels, indices=1, norm=True, output_fmt="NCHW")
    features = encoder_of(encoder)(images)
    np.testing.assert_allclose(features.vec, unit(tokens[:, 0].numpy()), atol=1e-4)
    pooled = nn.functional.adaptive_avg_pool2d(maps, 4).numpy()
    np.testing.assert_allclose(features.local[0], unit(pooled, axis=1), atol=1e-4)
    save_file({"stem.weight": torch.zeros(2)}, file)
    with refused("other-weights", "vit_tiny"):
        from_network(f"timm:vit_tiny@{file}", {}, None)
    file.write_bytes(b"no weights")
    with refused("no-weights"):
        from_network(f"timm:vit_tiny@{file}", {}, None)
    with refused("no-network", "vit_nothing"):
        from_network(f"timm:vit_nothing@{file}", {}, None)

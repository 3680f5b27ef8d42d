"""Backbones that bring weights: EfficientNet-Lite0 (real, inside a package) and timm (a stand-in: not installed)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor

from glocal.common.errors import RecipeError
from glocal.research.backbones import build_backbone
from glocal.research.backbones.efficientnet import imagenet_weights
from glocal.research.types import Preprocess, normalize
from stand_in import stand_in

DAISY, PALACE = 985, 698  # ImageNet's class numbers


def prepared(photo: str, preprocess: Preprocess) -> Tensor:
    """Resize the short side, cut the centre, normalise: the preprocess spelt out with Pillow."""
    image = Image.fromarray(load_sample_image(photo))
    assert preprocess.resize is not None
    assert preprocess.interpolation == "bicubic"
    ratio = preprocess.resize / min(image.size)
    image = image.resize((round(image.width * ratio), round(image.height * ratio)), Image.Resampling.BICUBIC)
    left, top = (image.width - preprocess.size) // 2, (image.height - preprocess.size) // 2
    image = image.crop((left, top, left + preprocess.size, top + preprocess.size))
    return normalize(torch.from_numpy(np.array(image)).permute(2, 0, 1)[None], preprocess)


@pytest.mark.parametrize(("photo", "label", "confidence"), [("flower.jpg", DAISY, 0.3), ("china.jpg", PALACE, 0.25)])
def test_efficientnet_recognises_real_photos(photo: str, label: int, confidence: float) -> None:
    backbone, weights = build_backbone("efficientnet-lite0", trainable=False), imagenet_weights()
    assert (backbone.preprocess.size, backbone.preprocess.resize) == (224, 256)
    maps = backbone(prepared(photo, backbone.preprocess))
    logits = maps.mean((2, 3)) @ weights["_fc.weight"].T + weights["_fc.bias"]
    assert int(logits.argmax()) == label
    assert float(logits.softmax(1)[0, label]) > confidence  # ImageNet's mean and std give the flower 0.13


def test_efficientnet_is_that_of_the_package_and_loaded_whole() -> None:
    from efficientnet_lite_pytorch import EfficientNet

    package = EfficientNet.from_name("efficientnet-lite0")
    package.load_state_dict(imagenet_weights())
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = package.eval().extract_features(images)
        torch.testing.assert_close(build_backbone("efficientnet-lite0", trainable=False)(images), expected)
    backbone = build_backbone("efficientnet-lite0")
    assert sum(p.numel() for p in backbone.parameters()) == 3_371_008  # the published 4,652,008 without its classifier
    assert backbone.fingerprint() == build_backbone("efficientnet-lite0").fingerprint()
    assert not any("_fc" in name for name in backbone.state_dict())


TIMM = '''"""What the networks and functions of timm offer to the adapter."""
from types import SimpleNamespace
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, output_fmt):
        super().__init__()
        self.output_fmt = output_fmt
        self.feature_info = SimpleNamespace(channels=lambda: [4, 8])
        self.stem, self.body = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 8, 3, 2, 1)

    def forward(self, x):
        first = self.stem(x)
        maps = [first, self.body(first)]
        return [x.permute(0, 2, 3, 1) for x in maps] if self.output_fmt == "NHWC" else maps

def create_model(name, *, pretrained, features_only):
    assert features_only and not pretrained
    if name == "resnet49":
        raise RuntimeError("Unknown model (resnet49)")
    torch.manual_seed(0)
    return Net("NHWC" if name == "swin" else "NCHW")
'''
DATA = """
def resolve_model_data_config(model):
    return {"input_size": (3, 40, 40), "interpolation": "bicubic", "crop_pct": 0.875, "crop_mode": "center",
            "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
"""


@pytest.fixture
def timm(tmp_path: Path) -> Iterator[None]:
    with stand_in(tmp_path, "timm", __init__=TIMM, data=DATA):
        yield


@pytest.mark.usefixtures("timm")
def test_timm_stages_and_preprocess() -> None:
    backbone = build_backbone("timm", {"model": "resnet50", "pretrained": False})
    assert backbone.stage_channels == (4, 8)
    assert backbone.preprocess == Preprocess(40, 45, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), "bicubic")
    images = torch.randn(2, 3, 40, 40)
    first, second = backbone.stages_of(images)
    assert (first.shape, second.shape) == ((2, 4, 20, 20), (2, 8, 10, 10))
    swin = build_backbone("timm", {"model": "swin", "pretrained": False})
    torch.testing.assert_close(swin(images), second)
    assert swin.fingerprint() != backbone.fingerprint()  # same weights, another network


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
def test_missing_timm_names_the_extra() -> None:
    with pytest.raises(RecipeError, match=r"pip install glocal\[timm\]"):
        build_backbone("timm", {"model": "resnet50"})


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
def test_a_torchvision_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for what timm does then: it imports torchvision, which fails while it registers its operators."""
    (tmp_path / "torchvision.py").write_text('raise RuntimeError("operator torchvision::nms does not exist\\nmore")\n')
    (tmp_path / "timm").mkdir()
    (tmp_path / "timm" / "__init__.py").write_text("")
    (tmp_path / "timm" / "data.py").write_text("import torchvision\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError, match=r"does not fit torch \d.*operator torchvision::nms does not exist;") as found:
        build_backbone("timm", {"model": "resnet50"})
    assert found.value.code == "torchvision"
    assert "\n" not in str(found.value)
    assert "glocal[timm]" not in str(found.value), "timm itself is there"
    for name in ("timm", "timm.data"):
        sys.modules.pop(name, None)

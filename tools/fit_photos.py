"""Make the recognizer's models photos-fast and photos-better: a whitening from all thirteen domains of photos.

    GLOCAL_DATA=DIR python tools/fit_photos.py [--encoders fast better] [--without NAMES] [--per-class N] [--work DIR]

Nothing is trained.  The weights of the encoder stay in their package; the file holds the 256 directions of the
whitening in half precision.  ``benchmarks/promise.py`` measures heads made in the same way without one domain at a
time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from domains import ENCODERS, domains, ridge_method

from glocal.research.backbones import build_backbone
from glocal.research.backbones.efficientnet import EfficientNetLite
from glocal.research.engine.checkpoint import TrainedModel, save_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoders", nargs="*", default=list(ENCODERS))
    parser.add_argument("--without", nargs="*", default=[], help="Domains that are left out.")
    parser.add_argument("--per-class", type=int, help="At most so many photos of each class.")
    parser.add_argument("--work", type=Path, default=Path("promise-work"))
    parser.add_argument("--out", type=Path, default=Path("src/glocal/research/weights"))
    given = parser.parse_args()
    for encoder in given.encoders:
        backbone = build_backbone(ENCODERS[encoder], {"early": True}, trainable=False)
        assert isinstance(backbone, EfficientNetLite)
        channels = backbone.channels - sum(backbone.patch_channels)
        method = ridge_method(channels, backbone.patch_channels)
        every = domains(encoder, given.work, without=given.without, per_class=given.per_class)
        method.fit(torch.stack([each.covariance() for each in every.values()]).mean(dim=0))
        settings = {"patch_channels": list(backbone.patch_channels), "temperature": method.temperature}
        record = {
            "backbone": {
                "name": ENCODERS[encoder],
                "settings": {"early": True},
                "packaged": backbone.fingerprint(),
            },
            "method": {"name": "ridge", "settings": settings},
            "preprocess": backbone.preprocess.to_json(),
            "data": {"domains": sorted(every), "photos": sum(len(each.label) for each in every.values())},
        }
        path = given.out / f"photos-{encoder}.safetensors"
        save_model(path, TrainedModel(backbone, method, record), half=True)
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

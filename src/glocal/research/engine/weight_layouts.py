"""How published programs name their weights, and the settings that were published and are not in their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from glocal.research.backbones.resnet12 import MEAN, STD
from glocal.research.types import IMAGENET_MEAN, IMAGENET_STD

BASE_ROWS = ("fc.weight", "cls_classifier.weight", "cls_classifier.classifier.weight", "cls_classifier.weight_base")


class Layout(NamedTuple):
    """How a program names its weights, and what becomes of them here."""

    title: str
    method: str
    stage: str  # name of a backbone weight; {0}: layer1 .. layer4, {1}: the rest
    parts: Mapping[str, str] = {}  # our prefix in the method -> theirs
    base: tuple[tuple[str, str], ...] = (("fc.weight", "fc.bias"),)  # where the base classifier may be
    ignored: Mapping[str, str] = {}  # pattern of names -> why they are not needed
    note: str = ""
    backbone: str = "resnet12"


ENCODER, FEATURE, SEQUENCE = "encoder.{0}.0.{1}", "feature.{0}.{1}", ""
ATTENTION = {"attend.": "slf_attn."}
TANE_HEAD = {
    "calibrator.": "cls_classifier.calibrator.calibrator.",
    "open_generator.": "cls_classifier.open_generator.att.",
    "aggregate.": "cls_classifier.open_generator.agg_func.",
    "scale": "cls_classifier.metric.temp",
}
TANE_BASE = ("cls_classifier.weight_base", "cls_classifier.bias_base")
TANE_IGNORED = {
    r"metric\.temp": "a second scale that the program never reads",
    r"cls_classifier\.weight_mem": "a copy of the base classifier that the program never reads",
    r"cls_classifier\.\w+\.(map_sem\..+|\w+\.w_[qkv]s_sem\.weight)": "for word vectors, which ATT and ATT-G do not use",
}
LAYOUTS = {
    "feat": Layout("FEAT", "feat", ENCODER, ATTENTION),
    "snatcher": Layout("SnaTCHer", "snatcher-f", ENCODER, ATTENTION),
    "gel-maps": Layout("GEL without pixels", "gel", ENCODER, ATTENTION),
    "gel": Layout(
        "GEL",
        "gel",
        ENCODER,
        ATTENTION | {"calibrate.": "conv."},
        ignored={r"EnergyLoss\.awl\.params": "dead: the authors' program adds both energies with coefficient 1"},
    ),
    "att-g": Layout(
        "ATT-G (TANE)",
        "att-g",
        FEATURE,
        TANE_HEAD | {"base.rows": TANE_BASE[0]},
        base=(TANE_BASE,),
        ignored=TANE_IGNORED,
    ),
    "att": Layout(
        "ATT (TANE)",
        "att",
        FEATURE,
        TANE_HEAD,
        base=(TANE_BASE,),
        ignored=TANE_IGNORED
        | {r"cls_classifier\..+\.w_[qk]s\.weight": "the program's softmax has one key and does not depend on it"},
    ),
    "tane": Layout(
        "TANE",
        "protonet",
        FEATURE,
        base=tuple((f"{at}.weight", f"{at}.bias") for at in ("cls_classifier", "cls_classifier.classifier")),
        ignored={
            r"(cls_classifier\.)?((calibrator|open_generator)\..+|weight_base|bias_base|weight_mem|metric\.temp)": (
                "of a head that this layout leaves out"
            ),
            r"cls_classifier\.temp": "scale of a cosine classifier; the published one is linear and does not use it",
        },
        note="Only the backbone is imported, under protonet with cosine similarity: the file is from pre-training, or "
        "its head needs word vectors (SEMAN-G).",
    ),
    "pretrained": Layout(
        "pre-training of FEAT, SnaTCHer or GEL",
        "protonet",
        ENCODER,
        note="The file has no attention: the backbone is imported under protonet, to start a training from.",
    ),
    "conv4": Layout(
        "a prototypical network on Conv-4, all in one sequence",
        "protonet",
        SEQUENCE,
        base=(),
        note="The program cuts the middle 224 pixels of ImageNet's pictures and resizes them to 84; here the middle "
        "square of a picture is resized.",
        backbone="conv4",
    ),
}

IMAGES: dict[str, dict[str, Any]] = {  # evaluation transform of FEAT, SnaTCHer and GEL
    "mini-imagenet": {"image_size": 84, "resize": 92, "mean": MEAN, "std": STD},
    "tiered-imagenet": {"image_size": 84, "resize": None, "mean": MEAN, "std": STD},
    "cifar-fs": {"image_size": 32, "resize": 40, "mean": MEAN, "std": STD},
}
TANE_CIFAR = {"mean": (0.5071, 0.4867, 0.4408), "std": (0.2675, 0.2565, 0.2761)}
TOP_K = {"mini-imagenet": (10, 1), "tiered-imagenet": (2, 5), "cifar-fs": (1, 1)}  # 1-shot, 5-shot
CONTRAST = {  # weight, temperature, contrast temperature; CIFAR-FS was not published and takes miniImageNet's
    "mini-imagenet": ((0.01, 64.0, 64.0), (0.1, 64.0, 32.0)),
    "tiered-imagenet": ((0.1, 64.0, 64.0), (0.1, 32.0, 64.0)),
    "cifar-fs": ((0.01, 64.0, 64.0), (0.1, 64.0, 32.0)),
}
TIERED_CLASSES = 351


def published_name(form: Layout, ours: str) -> str:
    """The published name of a weight of the backbone."""
    stage, rest = ours.split(".", 1)
    if form.stage != SEQUENCE:
        return form.stage.format(stage, rest)
    module, weight = rest.split(".", 1)  # four modules per stage: convolution, batch norm, ReLU, pooling
    return f"{4 * (int(stage.removeprefix('layer')) - 1) + int(module)}.{weight}"


def images_of(form: Layout, dataset: str) -> dict[str, Any]:
    """TANE evaluates on the stored 84 or 32 pixels as they are, CIFAR-FS with a normalisation of its own."""
    if form.stage == SEQUENCE:
        return {"image_size": 84, "resize": None, "mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    if form.stage == ENCODER:
        return IMAGES[dataset]
    return IMAGES[dataset] | {"resize": None} | (TANE_CIFAR if dataset == "cifar-fs" else {})


def settings_of(form: Layout, dataset: str, shot: int, names: Iterable[str]) -> dict[str, Any]:
    at = (1, 5).index(shot)
    if form is LAYOUTS["gel-maps"]:
        return {"variant": "energy-maps"}
    if form.method == "gel":
        combined = any(name.startswith("EnergyLoss.") for name in names)  # only --ahead_combine makes any
        return {"variant": "ahead" if combined else "pixel", "top_k": TOP_K[dataset][at]}
    if form.stage == SEQUENCE:
        return {"temperature": 1.0}
    if form.method == "protonet":
        return {"distance": "cosine"} if form.stage == FEATURE else {}
    if form.method in ("att", "att-g"):
        mlp = {"negative": "mlp"} if any(name.startswith(TANE_HEAD["aggregate."]) for name in names) else {}
        return ({"memory": "single"} if form.method == "att" else {}) | mlp
    names = ("contrast_weight", "temperature", "contrast_temperature")
    return dict(zip(names, CONTRAST[dataset][at], strict=True))

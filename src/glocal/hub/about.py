"""What must be known about a network beside its weights: how photos are prepared, and what its outputs are.

Repositories say it in ``preprocessor_config.json``, ``config.json`` and the head of ``README.md``.  For other graphs
a user says it in a small TOML file:

    size = 224                      # pixels a side
    resize = 256                    # the short side before the centre is cut out
    mean = [0.485, 0.456, 0.406]
    std = [0.229, 0.224, 0.225]
    interpolation = "bicubic"
    vector = "pooler_output"        # the output that is the vector; without one, class token or mean of the map
    map = "last_hidden_state"       # the output that is a map or tokens
    leading = 1                     # tokens before those of patches
    name = "vit"
    licence = "apache-2.0"
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.common.errors import DataError, RecipeError
from glocal.common.validation import check_record, is_number
from glocal.recognizer.photos.images import Preprocess

PREPARATION = "preprocessor_config.json"
BILINEAR = (0, 2, 4, 5)  # Pillow's filters that bilinear is nearest to; the others are bicubic or sharper
# Networks with a last layer that is often untrained.
TANH_POOLED = ("vit", "deit", "beit", "vit_mae", "vit_msn", "data2vec-vision")
OWN_SCALE = 384  # pixels from which ConvNeXt cuts nothing off
LARGEST = 2**20  # bytes of such a file


@dataclass(frozen=True)
class About:
    """None where nothing is said."""

    size: int | None = None
    resize: int | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    interpolation: str = "bicubic"
    vector: str | None = None
    map: str | None = None
    leading: int | None = None
    name: str | None = None
    licence: str | None = None
    registers: int = 0
    tanh_pooled: bool = False

    def preprocess(self) -> Preprocess:
        missing = [name for name in ("size", "mean", "std") if getattr(self, name) is None]
        if missing:
            raise RecipeError(
                f"nothing says {' and '.join(missing)} of the photos that this network takes; write them into a TOML "
                "file and name it with --about",
                code="no-preparation",
            )
        fields = {name: getattr(self, name) for name in Preprocess.__dataclass_fields__}
        return Preprocess(**fields)


def read_about(path: Path) -> dict[str, Any]:
    """The fields that a user's TOML file sets."""
    try:
        fields = tomllib.loads(_text(path))
        known = About.__dataclass_fields__.keys() - {"registers", "tanh_pooled"}
        if odd := sorted(fields.keys() - known):
            raise ValueError(f"{odd[0]!r} is none of {', '.join(sorted(known))}")
        check_record(About, fields)
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(f"{path} cannot be used: {error}", code="bad-about") from error
    return fields


def about_folder(folder: Path) -> dict[str, Any]:
    """What the files of a repository say."""
    fields: dict[str, Any] = {}
    for name, read in READERS.items():
        if (folder / name).is_file():
            fields |= read(folder / name)
    return fields


def _preparation(path: Path) -> dict[str, Any]:
    """Photos that it would squash to a square are cut to one."""
    config = _json(path)
    whole, cut = _side(config.get("size")), _side(config.get("crop_size"))
    size = cut if cut and config.get("do_center_crop") is not False else whole
    if size is None:
        return {}
    resize = whole if whole and whole > size else None
    share: Any = config.get("crop_pct")
    if is_number(share) and 0.01 < share < 1 and size < OWN_SCALE:
        resize = round(size / share)
    scale: Any = config.get("rescale_factor", 1 / 255) if config.get("do_rescale") is not False else 1.0
    mean, std = config.get("image_mean"), config.get("image_std")
    if config.get("do_normalize") is False or mean is None or std is None:
        mean, std = (0.0,) * 3, (1.0,) * 3
    if not (isinstance(mean, list | tuple) and isinstance(std, list | tuple) and is_number(scale) and scale > 0):
        raise DataError(f"{PREPARATION} has a mean, std or scale that is no number", code="bad-preparation")
    mean, std = (tuple(each / (255 * scale) for each in values if is_number(each)) for values in (mean, std))
    filter_ = config.get("resample", 3)
    interpolation = "bilinear" if filter_ in BILINEAR else "bicubic"
    return {"size": size, "resize": resize, "mean": mean, "std": std, "interpolation": interpolation}


def _side(size: Any) -> int | None:
    """Pixels a side: 224, {"shortest_edge": 256} or {"height": 224, "width": 224}."""
    if isinstance(size, dict):
        sides = [size[name] for name in ("shortest_edge", "height", "width") if name in size]
        if not sides or sides.count(sides[0]) != len(sides):
            raise DataError(f"photos must be square, and {PREPARATION} has the size {size}", code="not-square")
        size = sides[0]
    return size if type(size) is int else None


def _network(path: Path) -> dict[str, Any]:
    """Of a model for pictures and text, the part for pictures."""
    config = _json(path)
    seen = config.get("vision_config")
    vision = seen if isinstance(seen, dict) else config
    registers = vision.get("num_register_tokens", 0)
    return {
        "tanh_pooled": vision.get("model_type") in TANH_POOLED,
        "registers": max(0, registers) if type(registers) is int else 0,
    }


def _licence(path: Path) -> dict[str, Any]:
    """The licence in the head of a model card."""
    head = re.match(r"---[ \t]*\n(.*?)\n---", _text(path, errors="replace"), re.DOTALL)
    named = dict(re.findall(r"^(license|license_name):[ \t]*(\S[^\n]*)$", head[1], re.MULTILINE)) if head else {}
    licence = named.get("license")
    return {"licence": named.get("license_name", licence) if licence == "other" else licence}


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(path))
        if not isinstance(value, dict):
            raise ValueError("it is no table")
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be used: {error}", code="bad-config") from error
    return value


def _text(path: Path, errors: str = "strict") -> str:
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path} is larger than {LARGEST} bytes and no such file", code="bad-config")
    return path.read_text("utf-8", errors)


READERS = {PREPARATION: _preparation, "config.json": _network, "README.md": _licence}

"""How a picture is cut and scaled before a backbone sees it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from glocal_runtime.errors import RecipeError

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

P = TypeVar("P", bound="Preprocess")


@dataclass(frozen=True)
class Preprocess:
    """How a picture becomes the tensor a backbone was trained on.  It belongs to the weights, not to the data.

    The short side is resized to ``resize`` (``size`` when None), the centre ``size`` x ``size`` is cut out,
    then x / 255 is normalised.  With ``resize`` None a picture of the right size stays as it is, pixel for pixel;
    with it even such a picture is enlarged and cut, because the published programs do that (CIFAR-FS: 40, then 32).
    """

    size: int
    resize: int | None = None
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"

    def __post_init__(self) -> None:
        for name, pixels in (("size", self.size), ("resize", self.resize)):
            if type(pixels) is not int and not (name == "resize" and pixels is None):
                raise RecipeError(f"preprocess.{name} must be a whole number of pixels, got {pixels!r}")
        try:
            object.__setattr__(self, "mean", tuple(map(float, self.mean)))  # lists come in from JSON and TOML
            object.__setattr__(self, "std", tuple(map(float, self.std)))
        except (TypeError, ValueError) as error:
            raise RecipeError(f"preprocess needs 3 means and 3 stds, got {self.mean!r} and {self.std!r}") from error
        if self.size < 1:
            raise RecipeError(f"preprocess.size must be at least 1 pixel, got {self.size}")
        if self.resize is not None and self.resize < self.size:
            raise RecipeError(f"preprocess.resize must be at least size = {self.size}, got {self.resize}")
        finite = all(map(math.isfinite, self.mean + self.std))
        if len(self.mean) != 3 or len(self.std) != 3 or not finite or min(self.std) <= 0:
            raise RecipeError(f"preprocess needs 3 finite means and 3 positive stds, got {self.mean} and {self.std}")
        if self.interpolation not in ("bilinear", "bicubic"):
            raise RecipeError(f"preprocess.interpolation must be bilinear or bicubic, got {self.interpolation!r}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls: type[P], fields: dict[str, Any]) -> P:
        known = cls.__dataclass_fields__.keys()
        if not isinstance(fields, dict) or "size" not in fields or not fields.keys() <= known:
            raise RecipeError(f"preprocess must be a table with a size and of {', '.join(known)} only, got {fields!r}")
        return cls(**fields)

    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

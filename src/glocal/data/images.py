"""The one place where a picture is decoded: ``glocal_runtime.images``, which machines without torch use too."""

from glocal_runtime.images import (
    IMAGE_SUFFIXES,
    MAX_PIXELS,
    MIN_SIDE,
    Pixels,
    UnusableImage,
    check_side,
    decode,
    fit,
    picture_size,
)

__all__ = [
    "IMAGE_SUFFIXES",
    "MAX_PIXELS",
    "MIN_SIDE",
    "Pixels",
    "UnusableImage",
    "check_side",
    "decode",
    "fit",
    "picture_size",
]

"""A run of training as a model of the recognizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glocal.cli.console import screen

if TYPE_CHECKING:
    from glocal.recognizer.converted import ConvertedModel


def model_of(source: str) -> str | ConvertedModel:
    """A file of ours, or the name of an encoder, as it is; a run, a checkpoint or a shipped model becomes graphs."""
    from glocal.recognizer.converted import is_converted
    from glocal.recognizer.encoders.builtin import ENCODERS
    from glocal.recognizer.file import holds_recognizer

    path = Path(source)
    if source in ENCODERS or is_converted(path) or (path.is_file() and holds_recognizer(path)):
        return source
    from glocal.research.convert import TIMM, convert
    from glocal.research.engine.checkpoint import find_checkpoint

    if not source.startswith(TIMM):
        find_checkpoint(source)  # a misspelt name is refused before anything is said
    screen().print(f"{source} becomes ONNX graphs; `glocal convert {source} -o FILE` keeps them.", highlight=False)
    return convert(source)

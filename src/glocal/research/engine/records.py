"""Shipped models and the records of checkpoints, without PyTorch: ``glocal list models`` answers at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import safe_open

from glocal.common.errors import WeightsError

SUFFIX = ".safetensors"
WEIGHTS = Path(str(resources.files("glocal.research"))) / "weights"  # what ships with this package
MODELS = "glocal_models"  # the data-only package with the research heads


def shipped_models() -> dict[str, Path]:
    """Their files by name, the path below a weights folder without its ending: of this package and of glocal-models."""
    spec = find_spec(MODELS)
    folders = [WEIGHTS, *map(Path, (spec and spec.submodule_search_locations) or [])]
    models = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for folder in folders
        for path in folder.rglob(f"*{SUFFIX}")
    }
    return dict(sorted(models.items()))


def read_record(path: Path) -> dict[str, Any]:
    """The record alone, in a moment; only the header is read."""
    with safe_open(path, framework="np") as file:
        return record_of(path, file.metadata() or {})


def record_of(path: str | Path, header: Mapping[str, str]) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(header["glocal"])
        if not {"format", "version", "sha256"} <= record.keys():
            raise KeyError("format")
        return record
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise WeightsError(
            f"{path} is a safetensors file, but not a checkpoint of glocal: its header has no record of ours",
            code="foreign",
        ) from error

"""Names, files and records of models, without PyTorch: a list, or the refusal of a wrong name, comes at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import safe_open

from glocal.common.errors import RecipeError, WeightsError
from glocal.common.words import meant

SUFFIX = ".safetensors"
WEIGHTS = Path(str(resources.files("glocal.research"))) / "weights"  # what ships with this package
BEST = f"best{SUFFIX}"  # of a run folder: the checkpoint that validation chose
LAST = f"last{SUFFIX}"  # of a run folder: where to resume
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


def find_checkpoint(source: str | Path) -> Path:
    path = Path(source)
    if path.is_dir():
        if not (path / BEST).is_file():
            raise WeightsError(
                f"{path} has no {BEST}: it is no run, or one that stopped before its first validation", code="no-best"
            )
        return path / BEST
    if path.is_file():
        return path
    shipped = shipped_models()
    if str(source) in shipped:
        return shipped[str(source)]
    message = (
        f"checkpoint {str(source)!r} is neither a file, nor a run folder, nor a shipped model; "
        f"{meant(str(source), shipped, see='glocal list models')}"
    )
    if find_spec(MODELS):
        raise WeightsError(message, code="no-model")
    raise WeightsError(
        f"{message}; the research heads (cifar-fs-cpu/..., tiered-64-cpu/...) are in the package glocal-models, which "
        "is not installed: pip install ./models in the repository, or its wheel",
        code="models-not-installed",
    )


def parse_name(text: str) -> tuple[str, str, tuple[str, ...]]:
    """LABEL=RUN:SCORE,SCORE -> label (the run's own name when left out), run, scores."""
    if _is_run(text):
        return _own_name(text), text, ()
    label, equals, rest = text.partition("=")
    if not equals:
        label, rest = "", text
    run, scores = rest, ""
    if not _is_run(rest) and ":" in rest:
        run, _, scores = rest.rpartition(":")
    wanted = tuple(score.strip() for score in scores.split(",") if score.strip())
    if not run or (":" in rest and run != rest and not wanted):
        raise RecipeError(f"a model is named as RUN, RUN:SCORE or LABEL=RUN:SCORE, got {text!r}", code="model-name")
    return label or _own_name(run), run, wanted


def _is_run(text: str) -> bool:
    try:
        return bool(text) and (Path(text).exists() or text in shipped_models())
    except OSError:  # too long to be the name of a file
        return False


def _own_name(run: str) -> str:
    path = Path(run).resolve() if run in (".", "..") else Path(run)
    if path.name in (BEST, LAST):
        return path.resolve().parent.name
    return path.name.removesuffix(".safetensors")

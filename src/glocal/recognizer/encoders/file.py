"""The ``.encoder`` file: one zip with a graph, how photos are prepared for it, and where both come from.

    encoder.json     name, source, licence, preparation, outputs, hashes.
    encoder.onnx     images (B, size, size, 3) uint8 -> vec (B, D), and local (B, C, h, w) where there are patches.

The graph holds all of its weights; normalisation, the choice of tokens and a whitening are steps of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from glocal.common.cache import cache_dir
from glocal.common.errors import DataError
from glocal.common.stored_zip import FAILURES, damaged, holds, read_stored, write_stored
from glocal.common.validation import check_record
from glocal.recognizer.photos.images import Preprocess

SUFFIX = ".encoder"
RECORD, GRAPH = "encoder.json", "encoder.onnx"
FORMAT, SCHEMA = "glocal encoder", 1


@dataclass(frozen=True)
class EncoderFile:
    """A graph and what is known about it."""

    name: str  # as messages name it
    source: str  # as the user named it
    licence: str  # as the source states it, or nothing
    preprocess: Preprocess
    outputs: Mapping[str, str]  # vec, local -> where the source has them
    weights: str  # sha256 of the graph that it was made from, with all weights
    graph: bytes = field(repr=False)
    precision: str = "float32"
    whitened_by: int = 0  # photos that the whitening was fitted to; 0 without one

    @cached_property
    def sha256(self) -> str:
        """Of the graph."""
        return hashlib.sha256(self.graph).hexdigest()

    def record(self) -> dict[str, Any]:
        """All but the graph, as JSON."""
        known = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "graph"}
        return known | {"preprocess": asdict(self.preprocess), "outputs": dict(self.outputs), "sha256": self.sha256}

    def write(self, path: str | Path, *, new: bool = False) -> None:
        """To one file; with ``new`` over no other."""
        head = json.dumps({"format": FORMAT, "schema_version": SCHEMA, **self.record()}, indent=1).encode()
        write_stored(Path(path), {RECORD: head, GRAPH: self.graph}, new=new)

    @classmethod
    def read(cls, path: str | Path) -> EncoderFile:
        """What ``write`` wrote; DataError for anything else."""
        path = Path(path)
        record = read_record(path)
        try:
            graph = read_stored(path)(GRAPH)
            if hashlib.sha256(graph).hexdigest() != record.pop("sha256"):
                raise ValueError(f"{GRAPH} is not what was written")
            record["preprocess"] = Preprocess.from_json(record["preprocess"])
            return cls(**record, graph=graph)
        except FAILURES as error:
            raise damaged(path, error) from error


def read_record(path: Path) -> dict[str, Any]:
    """All but the graph, in a moment."""
    if not is_encoder(path):
        raise DataError(f"{path} is no encoder; `glocal encoder SOURCE -o FILE` makes one", code="no-encoder")
    try:
        record: dict[str, Any] = json.loads(read_stored(path)(RECORD))
        if (record.pop("format"), schema := record.pop("schema_version")) != (FORMAT, SCHEMA):
            raise ValueError(f"its schema is {schema!r}, and this glocal reads {SCHEMA}")
        known = {each.name for each in fields(EncoderFile)} - {"graph"} | {"sha256"}
        if record.keys() != known:
            raise ValueError(f"its record is wrong or not complete: {sorted(record.keys() ^ known)[:3]}")
        check_record(EncoderFile, {name: record[name] for name in known - {"preprocess", "sha256"}})
        return record
    except FAILURES as error:
        raise damaged(path, error) from error


def is_encoder(path: str | Path) -> bool:
    return holds(path, RECORD)


def keep(made: EncoderFile) -> None:
    """In the cache, where recognizers that name its graph find it."""
    place = _cached(made.sha256)
    if not is_encoder(place):
        made.write(place)


def linked_graph(sha256: str, recognizer: Path) -> bytes:
    """That graph of an encoder beside the file of a recognizer, or in the cache."""
    for place in (*sorted(recognizer.parent.glob(f"*{SUFFIX}")), _cached(sha256)):
        with suppress(DataError):  # one that is damaged may be another
            if read_record(place)["sha256"] == sha256:
                return EncoderFile.read(place).graph
    raise DataError(
        f"its encoder {sha256[:16]} is not in {recognizer.name}, nor in a file beside it; put the {SUFFIX} file "
        "that it was enrolled with there",
        code="no-encoder",
    )


def _cached(sha256: str) -> Path:
    return cache_dir() / "encoders" / f"{sha256}{SUFFIX}"

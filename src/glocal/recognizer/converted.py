"""A trained method with its backbone as three ONNX graphs, in one file.

    embed.onnx    images (B, size, size, 3) uint8 -> vec (B, D), and local (B, C, h, w) of methods with maps.
    enroll.onnx   one-hot label (S, N), vec, local of the support -> state_0, state_1, ...
    score.onnx    the state, and vec, local of queries -> logits (Q, N), and (Q,) for each open score by its name.

The numbers of photos and classes are free.  A row of zeros is the label of a known unknown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from glocal.common.errors import DataError
from glocal.common.stored_zip import FAILURES, damaged, holds, read_stored, write_stored
from glocal.common.validation import check_kind
from glocal.recognizer.photos.images import Preprocess

EMBED, ENROLL, SCORE = GRAPHS = ("embed.onnx", "enroll.onnx", "score.onnx")
STATE = "state_"  # what enroll.onnx gives and score.onnx takes, with a number behind it
RECORD = "model.json"
FORMAT, SCHEMA = "glocal model", 1
FIELDS: dict[str, Any] = {
    "name": str,
    "method": str,
    "open_score": str,
    "score_names": list[str],
    "preprocess": dict,
    "min_way": int,
    "takes_unknown": bool,
    "precision": str,
    "sha256": dict[str, str],
}


@dataclass(frozen=True)
class ConvertedModel:
    """The graphs by file name, and what is known of the model that they come from."""

    name: str  # as the user named it
    method: str
    open_score: str  # the one it decides by
    score_names: tuple[str, ...]  # those it could decide by
    preprocess: Preprocess
    graphs: Mapping[str, bytes]
    min_way: int = 1  # fewest classes that the method is defined for
    takes_unknown: bool = False
    precision: str = "float32"  # of embed.onnx

    @cached_property
    def sha256(self) -> str:
        """Of what its answers depend on, but for the choice of the open score."""
        about = json.dumps([self.hashes, self.preprocess.to_json()], sort_keys=True)
        return hashlib.sha256(about.encode()).hexdigest()

    @cached_property
    def hashes(self) -> dict[str, str]:
        """Of each graph."""
        return {name: hashlib.sha256(self.graphs[name]).hexdigest() for name in GRAPHS}

    def record(self) -> dict[str, Any]:
        """All but the graphs, as JSON."""
        return {
            "name": self.name,
            "method": self.method,
            "open_score": self.open_score,
            "score_names": list(self.score_names),
            "preprocess": self.preprocess.to_json(),
            "min_way": self.min_way,
            "takes_unknown": self.takes_unknown,
            "precision": self.precision,
            "sha256": self.hashes,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], graphs: Mapping[str, bytes]) -> ConvertedModel:
        """The inverse of ``record``; ValueError when the two do not belong together."""
        check_kind(dict(record), FIELDS, "model")
        if record["open_score"] not in record["score_names"]:
            raise ValueError(f"its open score {record['open_score']!r} is none of its score_names")
        if not 1 <= record["min_way"] <= 1000:
            raise ValueError(f"its min_way is {record['min_way']}")
        for name in GRAPHS:
            if hashlib.sha256(graphs[name]).hexdigest() != record["sha256"].get(name):
                raise ValueError(f"{name} is not what was written")
        fields = {name: record[name] for name in FIELDS if name != "sha256"}
        fields |= {
            "preprocess": Preprocess.from_json(record["preprocess"]),
            "score_names": tuple(record["score_names"]),
        }
        return cls(**fields, graphs={name: graphs[name] for name in GRAPHS})

    def write(self, path: str | Path, *, new: bool = False) -> None:
        """To one file; with ``new`` over no other."""
        head = json.dumps({"format": FORMAT, "schema_version": SCHEMA, **self.record()}, indent=1).encode()
        write_stored(Path(path), {RECORD: head, **self.graphs}, new=new)

    @classmethod
    def read(cls, path: str | Path) -> ConvertedModel:
        """What ``write`` wrote; DataError for anything else."""
        path = Path(path)
        if not is_converted(path):
            raise DataError(f"{path} is no converted model; `glocal convert RUN -o FILE` makes one", code="no-model")
        try:
            member = read_stored(path)
            record = json.loads(member(RECORD))
            graphs = {name: member(name) for name in GRAPHS}
            if (record.pop("format"), schema := record.pop("schema_version")) != (FORMAT, SCHEMA):
                raise ValueError(f"its schema is {schema!r}, and this glocal reads {SCHEMA}")
            return cls.from_record(record, graphs)
        except FAILURES as error:
            raise damaged(path, error) from error


def is_converted(path: str | Path) -> bool:
    """Whether a file is a zip that holds a converted model."""
    return holds(path, RECORD)

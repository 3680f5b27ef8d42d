"""What one process does for a job: the photos of a batch in, a record batch out, one row per photo."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from glocal.bulk.addresses import URI, source_of
from glocal.bulk.job import ERROR
from glocal.common.errors import DataError
from glocal.recognizer.encoder import Batch, Encoder
from glocal.recognizer.features import LARGEST_HALF, Array, Views
from glocal.recognizer.photos.sources import Picture, Unreadable, take
from glocal.recognizer.recognizer import Decided, Recognizer, find_model

VECTOR, LOCAL, RECOGNIZER, ENCODER = "vector", "local", "recognizer", "encoder"
ABOUT = b"glocal"  # key of the metadata of a file of vectors
ANSWERS = pa.schema(
    [
        (URI, pa.string()), ("label", pa.string()), ("probability", pa.float64()), ("open_score", pa.float64()),
        ("threshold", pa.float64()), ("nearest", pa.string()), (ERROR, pa.string()), (RECOGNIZER, pa.string()),
    ]
)  # fmt: skip


class Look:
    """Loaded once per process; ``home`` as in ``source_of``."""

    schema: pa.Schema
    maker: str  # fingerprint of who answers: the last column

    def __init__(self, encoder: Encoder, home: str | None) -> None:
        self._encoder, self._home = encoder, home

    def take(self, uri: str) -> Picture | Unreadable:
        return take(source_of(uri, self._home), self._encoder.preprocess)

    def rows(self, uris: Sequence[str], pictures: Sequence[Picture | Unreadable]) -> pa.RecordBatch:
        raise NotImplementedError


class AnswerLook(Look):
    """Answers of a recognizer."""

    schema = ANSWERS

    def __init__(self, model: str, *, device: str = "auto", threads: int = 0, home: str | None = None) -> None:
        self._recognizer = Recognizer.load(model, device=device, threads=threads)
        super().__init__(self._recognizer.encoder, home)
        self.maker = self._recognizer.contents.identity

    def rows(self, uris: Sequence[str], pictures: Sequence[Picture | Unreadable]) -> pa.RecordBatch:
        batch = self._encoder.batch(pictures)
        return answer_rows(uris, _errors(batch), self._recognizer.decide(batch.views), self.maker)


class VectorLook(Look):
    """What the encoder of a model, or of a recognizer, sees in a photo."""

    def __init__(self, model: str, *, device: str = "auto", threads: int = 0, home: str | None = None) -> None:
        found = find_model(model, device=device, threads=threads)
        super().__init__(Encoder(found), home)
        self.maker, size = found.sha256, found.preprocess.size
        self.schema = vector_schema(found.embed(np.zeros((1, size, size, 3), np.uint8)), model)

    def rows(self, uris: Sequence[str], pictures: Sequence[Picture | Unreadable]) -> pa.RecordBatch:
        batch = self._encoder.batch(pictures)
        errors = _errors(batch)
        columns: list[pa.Array | Sequence[str | None]] = [uris, _halves(batch.views.vec, errors)]
        if batch.views.local is not None:
            columns.append(_halves(batch.views.local, errors))
        return pa.record_batch([*columns, errors, [self.maker] * len(uris)], schema=self.schema)


def answer_rows(uris: Sequence[str], errors: Sequence[str | None], found: Decided, maker: str) -> pa.RecordBatch:
    """``found`` has a row for each photo without an error."""
    readable = np.array([error is None for error in errors], dtype=bool)
    place = pa.array(np.where(readable, readable.cumsum() - 1, 0), mask=~readable)
    limits = pa.array(found.threshold, mask=~np.isfinite(found.threshold))  # calls nothing unknown: null, as in JSON
    columns = [found.label, found.probability.astype(np.float64), found.open_score.astype(np.float64), limits]
    taken = [pa.array(column).take(place) for column in (*columns, found.nearest)]
    if not readable.any():
        taken = [pa.nulls(len(uris), field.type) for field in list(ANSWERS)[1:6]]
    return pa.record_batch([uris, *taken, errors, [maker] * len(uris)], schema=ANSWERS)


def error_rows(schema: pa.Schema, uris: Sequence[str], error: str, maker: str) -> pa.RecordBatch:
    """Rows for photos that nobody can look at."""
    given = {URI: uris, ERROR: [error] * len(uris), schema.names[-1]: [maker] * len(uris)}
    return pa.record_batch([given.get(f.name, pa.nulls(len(uris), f.type)) for f in schema], schema=schema)


def vector_schema(views: Views, model: str) -> pa.Schema:
    """Half precision; a model that looks at patches has a second column with its local maps."""
    columns = {VECTOR: views.vec} | ({} if views.local is None else {LOCAL: views.local})
    fields = [(name, pa.list_(pa.float16(), int(np.prod(each.shape[1:])))) for name, each in columns.items()]
    about = {"model": model, "local_shape": None if views.local is None else list(views.local.shape[1:])}
    named = [(URI, pa.string()), *fields, (ERROR, pa.string()), (ENCODER, pa.string())]
    return pa.schema(named, metadata={ABOUT: json.dumps(about).encode()})


def _errors(batch: Batch) -> list[str | None]:
    return [each.error if isinstance(each, Unreadable) else None for each in batch.pictures]


def _halves(found: Array, errors: Sequence[str | None]) -> pa.Array:
    """(n, ...) rows of the readable photos -> a list of halves per photo, null where there is an error."""
    if found.size and float(np.abs(found).max()) >= LARGEST_HALF:
        raise DataError("the vectors of this model are too large for half precision; use another", code="too-large")
    flat = found.reshape(len(found), math.prod(found.shape[1:])).astype(np.float16)
    missing = np.array([error is not None for error in errors], dtype=bool)
    whole = np.zeros((len(errors), flat.shape[1]), np.float16)
    whole[~missing] = flat
    return pa.FixedSizeListArray.from_arrays(pa.array(whole.ravel()), whole.shape[1], mask=pa.array(missing))

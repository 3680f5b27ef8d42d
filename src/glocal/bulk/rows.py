"""Rows of results: a stretch of photos in, a table with one row per photo out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from glocal.bulk.addresses import URI, source_of
from glocal.bulk.job import ERROR, Job
from glocal.common.errors import DataError
from glocal.recognizer.batches import Batch, Embedder
from glocal.recognizer.features import LARGEST_HALF, Array, Features
from glocal.recognizer.photos.sources import Unreadable
from glocal.recognizer.recognizer import Decided, Recognizer, find_model

VECTOR, LOCAL, RECOGNIZER, ENCODER = "vector", "local", "recognizer", "encoder"
READERS = 4  # threads that read and decode photos
ABOUT = b"glocal"  # key of the metadata of a file of vectors
ANSWERS = pa.schema(
    [
        (URI, pa.string()), ("label", pa.string()), ("probability", pa.float64()), ("open_score", pa.float64()),
        ("threshold", pa.float64()), ("nearest", pa.string()), (ERROR, pa.string()), (RECOGNIZER, pa.string()),
    ]
)  # fmt: skip


class Rows:
    """Computes rows; ``maker`` is the fingerprint of the recognizer or encoder, and the value of the last column."""

    def __init__(self, encoder: Embedder, schema: pa.Schema, maker: str, home: str | None) -> None:
        self._encoder, self._schema, self.maker, self._home = encoder, schema, maker, home

    def of(self, uris: Sequence[str]) -> pa.Table:
        batches = self._encoder.batches(source_of(uri, self._home) for uri in uris)
        return pa.Table.from_batches(list(self._computed(iter(uris), batches)), self._schema)

    def errors(self, uris: Sequence[str], error: str) -> pa.Table:
        """Rows of photos that nothing is computed for."""
        return error_rows(self._schema, uris, error, self.maker)

    def _computed(self, uris: Iterator[str], batches: Iterator[Batch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            errors = [each.error if isinstance(each, Unreadable) else None for each in batch.pictures]
            yield self._rows([next(uris) for _ in errors], errors, batch.features)

    def _rows(self, uris: Sequence[str], errors: Sequence[str | None], features: Features) -> pa.RecordBatch:
        """``features`` has a row for each photo without an error."""
        raise NotImplementedError


class AnswerRows(Rows):
    """Answers of a recognizer."""

    def __init__(self, job: Job, home: str | None) -> None:
        self._recognizer = Recognizer.load(job.model, device=job.device, workers=READERS)
        super().__init__(self._recognizer.embedder, ANSWERS, self._recognizer.contents.identity, home)

    def _rows(self, uris: Sequence[str], errors: Sequence[str | None], features: Features) -> pa.RecordBatch:
        return answer_rows(uris, errors, self._recognizer.decide(features), self.maker)


class VectorRows(Rows):
    """Vectors of the encoder of a model, or of a recognizer."""

    def __init__(self, job: Job, home: str | None) -> None:
        encoder = find_model(job.model, device=job.device).encoder
        size = encoder.preprocess.size
        schema = vector_schema(encoder(np.zeros((1, size, size, 3), np.uint8)), job.model)
        super().__init__(Embedder(encoder, workers=READERS), schema, encoder.sha256, home)

    def _rows(self, uris: Sequence[str], errors: Sequence[str | None], features: Features) -> pa.RecordBatch:
        columns = [_halves(each, errors) for each in (features.vec, *features.local)]
        return pa.record_batch([uris, *columns, errors, [self.maker] * len(uris)], schema=self._schema)


def rows_of(job: Job, home: str | None) -> Rows:
    """A process may start hours after the job began: what has the name of the model may be another by then."""
    rows = {"answers": AnswerRows, "vectors": VectorRows}[job.kind](job, home)
    if rows.maker != job.maker:
        raise DataError(
            f"{job.model} is not what this job began with ({job.maker[:16]}, this is {rows.maker[:16]}); put that back "
            "and continue with --resume, or delete the results to start anew",
            code="changed-meanwhile",
        )
    return rows


def answer_rows(uris: Sequence[str], errors: Sequence[str | None], decided: Decided, maker: str) -> pa.RecordBatch:
    """``decided`` has a row for each photo without an error."""
    readable = np.array([error is None for error in errors], dtype=bool)
    place = pa.array(np.where(readable, readable.cumsum() - 1, 0), mask=~readable)
    # A threshold that calls nothing unknown is null, as in JSON.
    thresholds = pa.array(decided.threshold, mask=~np.isfinite(decided.threshold))
    columns = [decided.label, decided.probability.astype(np.float64), decided.open_score.astype(np.float64), thresholds]
    taken = [pa.array(column).take(place) for column in (*columns, decided.nearest)]
    if not readable.any():
        taken = [pa.nulls(len(uris), field.type) for field in list(ANSWERS)[1:6]]
    return pa.record_batch([uris, *taken, errors, [maker] * len(uris)], schema=ANSWERS)


def error_rows(schema: pa.Schema, uris: Sequence[str], error: str, maker: str) -> pa.Table:
    """The same error for all."""
    given = {URI: uris, ERROR: [error] * len(uris), schema.names[-1]: [maker] * len(uris)}
    return pa.table([given.get(f.name, pa.nulls(len(uris), f.type)) for f in schema], schema=schema)


def local_columns(members: int) -> list[str]:
    """Names of the columns with the maps of an encoder's members."""
    return [f"{LOCAL}_{i}" if i else LOCAL for i in range(members)]


def vector_schema(features: Features, model: str) -> pa.Schema:
    """Half precision; each member of the encoder that looks at patches has a column with its maps."""
    columns = {VECTOR: features.vec, **dict(zip(local_columns(len(features.local)), features.local, strict=True))}
    fields = [(name, pa.list_(pa.float16(), int(np.prod(each.shape[1:])))) for name, each in columns.items()]
    about = {"model": model, "local_shapes": [list(each.shape[1:]) for each in features.local]}
    named = [(URI, pa.string()), *fields, (ERROR, pa.string()), (ENCODER, pa.string())]
    return pa.schema(named, metadata={ABOUT: json.dumps(about).encode()})


def _halves(values: Array, errors: Sequence[str | None]) -> pa.Array:
    """(n, ...) rows of the readable photos -> a list of halves per photo, null where there is an error."""
    if values.size and float(np.abs(values).max()) >= LARGEST_HALF:
        raise DataError("the vectors of this model are too large for half precision; use another", code="too-large")
    flat = values.reshape(len(values), math.prod(values.shape[1:])).astype(np.float16)
    missing = np.array([error is not None for error in errors], dtype=bool)
    whole = np.zeros((len(errors), flat.shape[1]), np.float16)
    whole[~missing] = flat
    return pa.FixedSizeListArray.from_arrays(pa.array(whole.ravel()), whole.shape[1], mask=pa.array(missing))

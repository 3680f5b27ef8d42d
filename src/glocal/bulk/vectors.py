"""Stored vectors of many photos: answers of any recognizer on the same encoder, and the photos most like one.

No photo is read again, and no more than a block of rows is in memory.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from glocal.bulk.addresses import URI, source_of
from glocal.bulk.job import ERROR, SUCCESS, Job, JobFolder
from glocal.bulk.parquet import blocks, open_parquet, parquet_files
from glocal.bulk.rows import ABOUT, ENCODER, VECTOR, answer_rows, local_columns
from glocal.bulk.store import Store
from glocal.bulk.workers import Done
from glocal.common.errors import DataError
from glocal.recognizer.features import Array, Features, unit
from glocal.recognizer.photos.sources import Unreadable, take
from glocal.recognizer.recognizer import Recognizer, find_model

ROWS = 1024  # read at once: with local maps that is tens of MiB


class Vectors:
    """What ``glocal embed`` wrote, or a Parquet file with its columns."""

    def __init__(self, where: str) -> None:
        self.where = where
        store = Store(where)
        try:
            self._files = parquet_files(where)
            with open_parquet(self._files[0]) as first:
                self._about = json.loads((first.schema_arrow.metadata or {})[ABOUT])
                self._shapes: list[list[int]] = self._about["local_shapes"]
        except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"{where} holds no vectors; `glocal embed MODEL PHOTOS --out {where}` makes some", code="no-vectors"
            ) from error
        if self._files != [where] and SUCCESS not in store.names():
            raise DataError(f"{where} is not finished; continue `glocal embed` with --resume", code="not-finished")

    def size(self) -> int:
        total = 0
        for file in self._files:
            with open_parquet(file) as opened:
                total += opened.metadata.num_rows
        return total

    def encoder(self) -> str:
        """Fingerprint of what made them."""
        return str(next(self._blocks([ENCODER], 1)).column(0)[0])

    def answer(
        self, recognizer: Recognizer, folder: JobFolder, name: str, *, resume: bool = False, done: Done = lambda n: None
    ) -> None:
        """Answers into a folder of parts, as from pictures."""
        model, maker = recognizer.contents.model, recognizer.contents.identity
        if (made := self.encoder()) != model.encoder.sha256:
            raise DataError(
                f"{self.where} was made with another encoder ({made[:12]}) than that of {name} "
                f"({model.encoder.sha256[:12]}); embed the photos with this recognizer",
                code="other-encoder",
            )
        uris = (uri for block in self._blocks([URI]) for uri in block.column(URI).to_pylist())
        folder.begin(Job("answers", name, maker, (self.where,)), resume=resume, uris=uris)
        waiting = set(folder.waiting())
        listed = folder.photos(range(folder.parts()))
        rest = self._blocks([URI, ERROR, VECTOR, *local_columns(len(self._shapes))])
        for part, rows in _cut(rest, listed):
            if part in waiting:
                decided = recognizer.decide(self._features(rows))
                errors = rows.column(ERROR).to_pylist()
                answers = answer_rows(rows.column(URI).to_pylist(), errors, decided, maker)
                folder.write(part, pa.Table.from_batches([answers]))
            done(len(rows))

    def nearest(
        self, photo: str, count: int, *, model: str | None = None, device: str = "auto"
    ) -> list[tuple[str, float]]:
        """The photos with the largest cosine, and it."""
        encoder = find_model(model or self._about["model"], device=device).encoder
        if encoder.sha256 != self.encoder():
            raise DataError(
                f"{self.where} was made with another encoder than that of {model or self._about['model']}; name the "
                "right one with --model",
                code="other-encoder",
            )
        picture = take(source_of(photo), encoder.preprocess)
        if isinstance(picture, Unreadable):
            raise DataError(f"cannot use picture {picture.path}: {picture.error}", code="bad-picture")
        query = unit(encoder(picture.pixels[None]).vec[0])
        best: list[tuple[float, str]] = []
        for block in self._blocks([URI, VECTOR, ERROR]):
            similarity = unit(_numbers(block.column(VECTOR)).astype(np.float32)) @ query
            names = block.filter(block.column(ERROR).is_null()).column(URI)
            top = np.argsort(-similarity, kind="stable")[:count].tolist()
            best = heapq.nlargest(count, [*best, *((float(similarity[i]), str(names[i])) for i in top)])
        if not best:
            raise DataError(
                f"{self.where} has no vector to compare with: none of its photos could be read, its column {ERROR} "
                "says why; embed others",
                code="no-vectors",
            )
        return [(uri, value) for value, uri in best]

    def _blocks(self, columns: list[str], rows: int = ROWS) -> Iterator[pa.RecordBatch]:
        return (block for block in blocks(self._files, columns, rows) if len(block))

    def _features(self, rows: pa.Table) -> Features:
        """Of those rows that have some."""
        vec = _numbers(rows.column(VECTOR).combine_chunks()).astype(np.float32)
        columns = zip(local_columns(len(self._shapes)), self._shapes, strict=True)
        maps = (_numbers(rows.column(name).combine_chunks()).reshape(-1, *shape) for name, shape in columns)
        return Features(vec, tuple(maps))


def _cut(blocks: Iterator[pa.RecordBatch], parts: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each part, whatever blocks they come in."""
    rest: pa.Table | None = None
    for part, uris in parts:
        while rest is None or len(rest) < len(uris):
            block = pa.Table.from_batches([next(blocks)])
            rest = block if rest is None else pa.concat_tables([rest, block])
        rows = rest.slice(0, len(uris))
        if rows.column(URI).to_pylist() != uris:
            raise DataError("a file of vectors must have each photo once, and stay as it is", code="bad-list")
        yield part, rows
        rest = rest.slice(len(uris))


def _numbers(lists: pa.FixedSizeListArray) -> Array:
    """(n, D) of those that are not null."""
    there = lists.drop_null() if lists.null_count else lists
    numbers: Array = there.flatten().to_numpy(zero_copy_only=False).reshape(len(there), lists.type.list_size)
    return numbers

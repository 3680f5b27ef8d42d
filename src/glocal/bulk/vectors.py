"""The vectors of a collection: answers of any recognizer on the same encoder, and the photos most like one.

Nothing is looked at again, and no more than a block of rows is in memory.
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from glocal.bulk.addresses import URI, is_remote, source_of
from glocal.bulk.job import ERROR, SUCCESS, Job, JobFolder
from glocal.bulk.local import Done
from glocal.bulk.look import ABOUT, ENCODER, LOCAL, VECTOR, answer_rows
from glocal.bulk.store import Store
from glocal.common.errors import DataError
from glocal.recognizer.features import Array, Views, unit
from glocal.recognizer.photos.sources import Unreadable, take
from glocal.recognizer.recognizer import Recognizer, find_model

ROWS = 1024  # read at once: with local maps that is tens of MiB


class Vectors:
    """What ``glocal embed`` wrote, or a Parquet file with its columns."""

    def __init__(self, where: str) -> None:
        self.where = where
        store = Store(where)
        try:
            self._data = ds.dataset(store.path, filesystem=store.system, format="parquet")
            self._about = json.loads((self._data.schema.metadata or {})[ABOUT])
            self._shape: list[int] | None = self._about["local_shape"]
        except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"{where} holds no vectors; `glocal embed MODEL PHOTOS --out {where}` makes some", code="no-vectors"
            ) from error
        if (is_remote(where) or os.path.isdir(where)) and SUCCESS not in store.names():
            raise DataError(f"{where} is not finished; continue `glocal embed` with --resume", code="not-finished")

    def size(self) -> int:
        return int(self._data.count_rows())

    def encoder(self) -> str:
        """Fingerprint of what made them."""
        return str(self._data.head(1, columns=[ENCODER]).column(0)[0])

    def answer(
        self, recognizer: Recognizer, folder: JobFolder, name: str, *, resume: bool = False, done: Done = lambda n: None
    ) -> None:
        """Answers into a folder of parts, as from pictures."""
        model, maker = recognizer.contents.model, recognizer.contents.identity
        if (made := self.encoder()) != model.sha256:
            raise DataError(
                f"{self.where} was made with another encoder ({made[:12]}) than that of {name} ({model.sha256[:12]}); "
                "embed the photos with this recognizer",
                code="other-encoder",
            )
        uris = (uri for block in self._blocks([URI]) for uri in block.column(URI).to_pylist())
        folder.begin(Job("answers", name, maker, (self.where,)), resume=resume, uris=uris)
        waiting = set(folder.waiting())
        listed = folder.photos(range(folder.parts()))
        rest = self._blocks([URI, ERROR, VECTOR, *([LOCAL] if self._shape else [])])
        for part, rows in _cut(rest, listed):
            if part in waiting:
                found = recognizer.decide(self._views(rows))
                errors = rows.column(ERROR).to_pylist()
                answers = answer_rows(rows.column(URI).to_pylist(), errors, found, maker)
                folder.write(part, pa.Table.from_batches([answers]))
            done(len(rows))

    def nearest(
        self, photo: str, count: int, *, model: str | None = None, device: str = "auto"
    ) -> list[tuple[str, float]]:
        """The photos with the largest cosine, and it."""
        encoder = find_model(model or self._about["model"], device=device)
        if encoder.sha256 != self.encoder():
            raise DataError(
                f"{self.where} was made with another encoder than that of {model or self._about['model']}; name the "
                "right one with --model",
                code="other-encoder",
            )
        seen = take(source_of(photo), encoder.preprocess)
        if isinstance(seen, Unreadable):
            raise DataError(f"cannot use picture {seen.path}: {seen.error}", code="bad-picture")
        asked = unit(encoder.embed(seen.pixels[None]).vec[0])
        best: list[tuple[float, str]] = []
        for block in self._blocks([URI, VECTOR, ERROR]):
            alike = unit(_numbers(block.column(VECTOR)).astype(np.float32)) @ asked
            names = block.filter(block.column(ERROR).is_null()).column(URI)
            top = np.argsort(-alike, kind="stable")[:count].tolist()
            best = heapq.nlargest(count, [*best, *((float(alike[i]), str(names[i])) for i in top)])
        if not best:
            raise DataError(
                f"{self.where} has no vector to compare with: none of its photos could be read, its column {ERROR} "
                "says why; embed others",
                code="no-vectors",
            )
        return [(uri, value) for value, uri in best]

    def _blocks(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """In the order of the files; little is read ahead."""
        some = self._data.to_batches(columns=columns, batch_size=ROWS, batch_readahead=2, fragment_readahead=1)
        return (block for block in some if len(block))

    def _views(self, rows: pa.Table) -> Views:
        """Of those rows that have some."""
        vec = _numbers(rows.column(VECTOR).combine_chunks()).astype(np.float32)
        if self._shape is None:
            return Views(vec)
        return Views(vec, _numbers(rows.column(LOCAL).combine_chunks()).reshape(-1, *self._shape))


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

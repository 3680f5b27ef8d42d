"""A folder of results in parts, which can be worked on, left, and taken up again.

    _photos.parquet       the uri of every photo, each once; a group of its rows is one part.
    _job.json             the task and the recognizer; written when the list is whole.
    part-00000.parquet    the rows of one part, in the order of the list.
    _SUCCESS              written last: how many photos, answers, errors.

The list is made once: a photo that vanishes afterwards is an error in the results, and a continued job cuts its parts
as before.  A part is whole or absent.  Its rows follow from the list, so two processes may make the same part.
Readers of Parquet leave out names that begin with an underscore.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glocal.bulk.addresses import URI, addresses, named
from glocal.bulk.parquet import blocks, open_parquet, read_group
from glocal.bulk.store import Store
from glocal.common.errors import DataError
from glocal.recognizer.batches import BATCH

PHOTOS, JOB, SUCCESS = "_photos.parquet", "_job.json", "_SUCCESS"
ERROR = "error"  # the column that is null where there is an answer
PART = 1024  # rows of a part; fewer in a short list, so that work can be shared and continued
PARTS = 32
_part = "part-{:05d}.parquet".format


@dataclass(frozen=True)
class Job:
    """What is done with each photo; ``maker`` is the fingerprint of the recognizer or encoder that does it."""

    kind: str  # answers or vectors
    model: str  # as the user named it
    maker: str
    given: tuple[str, ...]
    device: str = "auto"


@dataclass(frozen=True)
class Counts:
    photos: int
    errors: int
    parts: int

    @property
    def answered(self) -> int:
        return self.photos - self.errors


class JobFolder:
    def __init__(self, store: Store) -> None:
        self.store = store

    def begin(self, job: Job, *, resume: bool, uris: Iterator[str] | None = None) -> None:
        """Write the list of photos, or find it; refuse to mix two jobs in one folder.

        ``uris``: the photos, where they are not those below what is given.
        """
        names, where = self.store.names(), self.store.where
        if names & {JOB, SUCCESS} and not resume:
            what = "holds finished results" if SUCCESS in names else "is what an interrupted run left"
            raise DataError(f"{where} {what}; continue it with --resume, or delete it", code="interrupted-run")
        if JOB in names:
            self._same(job)
            return
        if foreign := sorted(name for name in names if not name.startswith((".", "_photos"))):
            raise DataError(f"{where} holds {foreign[0]}, which is no result; name another folder", code="bad-target")
        self._write_list(addresses(job.given) if uris is None else uris)
        self.store.write(JOB, json.dumps(asdict(job), indent=1).encode())

    def waiting(self) -> list[int]:
        """Parts that are not there yet."""
        done = self.store.names()
        return [part for part in range(self.parts()) if _part(part) not in done]

    def parts(self) -> int:
        return int(self._listed().num_row_groups)

    def size(self, parts: Iterable[int]) -> int:
        """How many photos these parts have."""
        listed = self._listed()
        return sum(listed.row_group(part).num_rows for part in parts)

    def photos(self, parts: Iterable[int]) -> Iterator[tuple[int, list[str]]]:
        """The uris of these parts, one part in memory at a time."""
        with open_parquet(self.store.address(PHOTOS)) as listed:
            for part in parts:
                yield part, read_group(listed, part, URI).column(URI).to_pylist()

    def write(self, part: int, rows: pa.Table) -> None:
        with self.store.writing(_part(part)) as file:
            pq.write_table(rows, file, compression="zstd")

    def finish(self) -> Counts:
        """Count what is there, by the footers of the parts; all of it must be."""
        listed = self._listed()
        sizes = [listed.row_group(i).num_rows for i in range(listed.num_row_groups)]
        errors = 0
        for part, size in enumerate(sizes):
            rows, bad = self._counted(part)
            if rows != size:
                raise DataError(f"{_part(part)} holds {rows} rows of {size}; delete it and --resume", code="part")
            errors += bad
        counts = Counts(sum(sizes), errors, len(sizes))
        self.store.sweep()
        self.store.write(SUCCESS, json.dumps(asdict(counts) | {"answered": counts.answered}).encode())
        return counts

    def first_error(self) -> str:
        """A sentence about the first photo without an answer, or nothing."""
        for part in range(self.parts()):
            if self._counted(part)[1]:
                files = [self.store.address(_part(part))]
                rows = (row for block in blocks(files, [URI, ERROR], PART) for row in block.to_pylist())
                return next(f"cannot use picture {row[URI]}: {row[ERROR]}" for row in rows if row[ERROR] is not None)
        return ""

    def _listed(self) -> pq.FileMetaData:
        with open_parquet(self.store.address(PHOTOS)) as listed:
            return listed.metadata

    def _counted(self, part: int) -> tuple[int, int]:
        """How many rows a part has, and how many of them are errors."""
        with open_parquet(self.store.address(_part(part))) as file:
            about = file.metadata
        groups = [about.row_group(i).column(about.schema.names.index(ERROR)) for i in range(about.num_row_groups)]
        return about.num_rows, sum(each.num_values - each.statistics.null_count for each in groups)

    def _same(self, job: Job) -> None:
        where = self.store.where
        try:
            before = json.loads(self.store.read(JOB))
            made, given = (before["kind"], before["maker"]), tuple(before["given"])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise DataError(f"{where}/{JOB} is damaged; delete the folder to start anew", code="damaged-job") from error
        if made != (job.kind, job.maker):
            raise DataError(
                f"{where} was begun with another recognizer or threshold ({made[0]} by {made[1]}, this "
                f"is {job.kind} by {job.maker}); delete it to start anew",
                code="other-recognizer",
            )
        if given != job.given:
            raise DataError(
                f"{where} was begun with other photos ({', '.join(map(str, given[:3]))}); name the same, or another "
                "folder for the results",
                code="other-photos",
            )

    def _write_list(self, uris: Iterator[str]) -> None:
        first = list(islice(uris, PART * PARTS))
        rows = part_rows(len(first))
        hashes = array("q")
        self._write_groups(_noted(chain(first, uris), hashes), rows)
        ordered = np.sort(np.frombuffer(hashes, np.int64))
        repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
        if repeated:  # written once more without them; the set holds what repeats, not all of a long list
            listed = (uri for _, group in self.photos(range(self.parts())) for uri in group)
            self._write_groups(_once(listed, repeated), part_rows(len(set(first))) if rows < PART else rows)

    def _write_groups(self, uris: Iterator[str], rows: int) -> None:
        schema = pa.schema([(URI, pa.string())])
        group = list(islice(uris, rows))  # before there is a new file: they may come from the one that it replaces
        with self.store.writing(PHOTOS) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            while group:
                writer.write_table(pa.table({URI: group}, schema), row_group_size=rows)
                group = list(islice(uris, rows))


def part_rows(photos: int) -> int:
    """Whole batches, so that no batch depends on how a list is cut."""
    return min(PART, max(1, -(-photos // (PARTS * BATCH))) * BATCH)


def _noted(uris: Iterator[str], hashes: array[int]) -> Iterator[str]:
    for uri in uris:
        hashes.append(hash(named(uri)))
        yield uri


def _once(uris: Iterator[str], repeated: set[int]) -> Iterator[str]:
    """Without the repetitions of those that have one of these hashes."""
    before: set[str] = set()
    for uri in uris:
        if hash(uri) not in repeated:
            yield uri
        elif uri not in before:
            before.add(uri)
            yield uri

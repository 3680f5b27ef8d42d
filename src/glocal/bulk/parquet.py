"""Parquet files, read by one thread: a thread of Arrow's that holds a Python file aborts when the interpreter ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from glocal.bulk.addresses import is_remote, local_path, names_in, seekable


@contextmanager
def open_parquet(address: str) -> Iterator[pq.ParquetFile]:
    with seekable(address) if is_remote(address) else pa.OSFile(local_path(address)) as file:
        yield pq.ParquetFile(file, pre_buffer=False)


def read_group(file: pq.ParquetFile, group: int, *columns: str) -> pa.Table:
    return file.read_row_group(group, columns=list(columns), use_threads=False)


def blocks(files: Iterable[str], columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """At most so many rows at a time, in order."""
    for file in files:
        with open_parquet(file) as opened:
            yield from opened.iter_batches(rows, columns=list(columns), use_threads=False)


def parquet_files(address: str) -> list[str]:
    """The file itself, or those of a folder but for names that begin with an underscore or dot."""
    names = names_in(address)
    if names is None:
        return [address]
    folder = address.rstrip("/")
    return sorted(f"{folder}/{name}" for name in names if name.endswith(".parquet") and name[0] not in "_.")

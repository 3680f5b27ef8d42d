"""Parquet files, read by one thread: a thread of Arrow's that holds a Python file aborts when the interpreter ends."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from glocal.bulk.addresses import OURS, client, is_remote, local_path, seekable


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
    if address.startswith(OURS):
        return [address]
    system, path = (None, local_path(address)) if not is_remote(address) else client(address)
    if not (os.path if system is None else system).isdir(path):
        return [address]
    if system is None:
        names = [os.path.join(path, name) for name in os.listdir(path)]
    else:
        names = [system.unstrip_protocol(name) for name in system.ls(path, detail=False)]
    return sorted(name for name in names if name.endswith(".parquet") and os.path.basename(name)[0] not in "_.")

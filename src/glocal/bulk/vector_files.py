"""Vectors with their labels from any program: an .npz of numpy, or a Parquet file.

vectors    (n, D) in .npz, lists of D numbers in Parquet (``vector`` is understood too)
labels     the class of each, ``unknown`` for those of other things (``label``)
names      what to call each, if wanted (``name``, ``uri``)
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glocal.bulk.parquet import open_parquet
from glocal.common.errors import DataError
from glocal.common.words import listed

COLUMNS = {"vectors": ("vectors", "vector"), "labels": ("labels", "label"), "names": ("names", "name", "uri")}


class VectorFile(NamedTuple):
    vectors: Any  # (n, D), checked where they are used
    labels: list[str] | None
    names: list[str] | None


def read_vectors(path: Path) -> VectorFile:
    try:
        columns = _npz(path) if path.suffix == ".npz" else _parquet(path)
    except (OSError, ValueError, EOFError, LookupError, zipfile.BadZipFile, pa.ArrowException) as error:
        line = str(error).partition("\n")[0][:200]
        raise DataError(f"{path} holds no vectors that can be read: {line}", code="no-vectors") from error
    chosen = {name: next((columns[each] for each in some if each in columns), None) for name, some in COLUMNS.items()}
    if chosen["vectors"] is None:
        raise DataError(
            f"{path} has no column 'vectors' but {listed(list(columns)) or 'nothing'}; name it so", code="no-vectors"
        )
    labels, names = (None if (some := chosen[each]) is None else list(map(str, some)) for each in ("labels", "names"))
    return VectorFile(chosen["vectors"], labels, names)


def _npz(path: Path) -> Mapping[str, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _parquet(path: Path) -> Mapping[str, Any]:
    with open_parquet(str(path)) as file:
        wanted = [name for some in COLUMNS.values() for name in some if name in file.schema_arrow.names]
        table = file.read(columns=wanted, use_threads=False)
    return {name: _rows(table.column(name).combine_chunks()) for name in wanted}


def _rows(column: pa.Array) -> Any:
    """Lists of numbers as an array (n, D)."""
    if not pa.types.is_list(column.type) and not pa.types.is_fixed_size_list(column.type):
        return column.to_pylist()
    if column.null_count or len(set(pc.list_value_length(column).to_pylist())) > 1:
        raise ValueError("its vectors differ in length")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)

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
LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)


class VectorFile(NamedTuple):
    vectors: Any  # (n, D), checked where they are used
    labels: list[str] | None
    names: list[str] | None


def read_vectors(path: Path) -> VectorFile:
    try:
        columns = _npz(path) if path.suffix == ".npz" else _parquet(path)
        chosen = {name: next((columns[one] for one in some if one in columns), None) for name, some in COLUMNS.items()}
        labels, names = _texts(chosen["labels"]), _texts(chosen["names"])
    except Exception as error:  # readers of damaged bytes fail in many ways
        line = str(error).partition("\n")[0][:200]
        raise DataError(f"{path} holds no vectors that can be read: {line}", code="no-vectors") from error
    if chosen["vectors"] is None:
        raise DataError(
            f"{path} has no column 'vectors' but {listed(list(columns)) or 'nothing'}; name it so", code="no-vectors"
        )
    vectors = chosen["vectors"]
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind not in "fiu":
        raise DataError(f"{path} must have numbers (n, D) as vectors; write them so", code="no-vectors")
    for what, column in (("labels", labels), ("names", names)):
        if column is not None and len(column) != len(vectors):
            raise DataError(
                f"{path} has {len(vectors)} vectors and {len(column)} {what}; give each vector one", code="bad-vectors"
            )
    return VectorFile(vectors, labels, names)


def _texts(column: Any) -> list[str] | None:
    if column is not None and (np.ndim(column) != 1 or any(each is None or each != each for each in column)):
        raise ValueError("each vector needs one label and one name")
    return None if column is None else list(map(str, column))


def _npz(path: Path) -> Mapping[str, Any]:
    with zipfile.ZipFile(path), path.open("rb") as file:  # no zip: numpy would read an array alone too
        arrays = np.load(file, allow_pickle=False)
        return {name: arrays[name] for name in arrays.files}


def _parquet(path: Path) -> Mapping[str, Any]:
    with open_parquet(str(path)) as file:
        wanted = [name for some in COLUMNS.values() for name in some if name in file.schema_arrow.names]
        table = file.read(columns=wanted, use_threads=False)
    return {name: _rows(table.column(name).combine_chunks()) for name in wanted}


def _rows(column: pa.Array) -> Any:
    """Lists of numbers as an array (n, D)."""
    if not isinstance(column.type, LISTS):
        return column.to_pylist()
    if column.null_count or len(set(pc.list_value_length(column).to_pylist())) > 1:
        raise ValueError("its vectors differ in length")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)

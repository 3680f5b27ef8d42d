"""What runs in a worker process: the rows of a stretch of photos.

This module imports little, because ``begin`` must set the number of threads before numpy is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from glocal.common.errors import GlocalError
from glocal.common.memory import keep_freed_memory

if TYPE_CHECKING:
    import pyarrow as pa

    from glocal.bulk.rows import Rows

_loaded: Rows | None = None  # once per process


def begin() -> None:
    """Compute with one thread: there is a process for each core."""
    os.environ["OMP_NUM_THREADS"] = "1"
    keep_freed_memory()


def run(load: Callable[[], Rows], uris: Sequence[str], error: str) -> pa.Table:
    """A row for each photo; with an ``error``, the row of a photo that no process survives."""
    global _loaded
    try:
        if _loaded is None:
            _loaded = load()
        return _loaded.errors(uris, error) if error else _loaded.of(uris)
    except GlocalError as failure:  # some kinds are made from more than a sentence, and would not travel
        raise GlocalError(str(failure), code=failure.code) from None

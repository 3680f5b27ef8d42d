"""A look that needs no model, for processes that start in a moment; some "photos" end the process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from glocal.common.errors import DataError

SCHEMA = pa.schema([("uri", pa.string()), ("length", pa.int64()), ("error", pa.string()), ("maker", pa.string())])


class LengthLook:
    """The length of a uri.  Names with "kills" end the process; "kills-once" does so unless the folder knows it."""

    schema, maker = SCHEMA, "tests"

    def __init__(self, folder: str, pause: float = 0.0) -> None:
        self._folder, self._pause = Path(folder), pause
        (self._folder / f"pid-{os.getpid()}").touch()
        if (self._folder / "refuse").exists():
            raise DataError("nothing to look with", code="no-look")
        if (self._folder / "die").exists():
            os._exit(3)

    def take(self, uri: str) -> Any:
        mark = self._folder / f"seen-{uri.replace('/', '_')}"
        if "kills" in uri and not ("once" in uri and mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return uri

    def rows(self, uris: Sequence[str], pictures: Sequence[Any]) -> pa.RecordBatch:
        time.sleep(self._pause)
        n = len(uris)
        return pa.record_batch([uris, list(map(len, pictures)), [None] * n, [self.maker] * n], schema=SCHEMA)

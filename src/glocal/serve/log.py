"""The log of the server: nobody fills the disk with it, and nothing in it moves the cursor of a terminal."""

from __future__ import annotations

import logging
import time

from glocal.common.words import printable

EVERY = 60.0  # seconds between two lines of one kind


class Filter(logging.Filter):
    """Passes one line of each kind a minute, made printable."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[object, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.levelno, str(record.msg)[:60], record.exc_info and record.exc_info[0])
        now = time.monotonic()
        if now - self._last.get(kind, -EVERY) < EVERY:
            return False
        self._last[kind] = now
        record.msg, record.args = printable(" ".join(record.getMessage().splitlines())), ()
        if record.exc_info:
            record.exc_text = printable(logging.Formatter().formatException(record.exc_info))
        return True


def install() -> None:
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every form that is refused
    for name in ("asyncio", "uvicorn.error", "glocal.serve"):
        logger = logging.getLogger(name)
        if not any(isinstance(each, Filter) for each in logger.filters):
            logger.addFilter(Filter())

"""Waiting for what happens, not for a time: on a busy machine everything takes longer."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 120.0  # seconds after which it will not happen any more


def wait_for(come: Callable[[], object], *, every: float = 0.01) -> None:
    until = time.monotonic() + PATIENCE
    while not come():
        assert time.monotonic() < until, "it never happened"
        time.sleep(every)

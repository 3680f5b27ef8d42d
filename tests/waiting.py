"""Waiting for what happens, not for a time: on a busy machine everything takes longer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

PATIENCE = 120.0  # seconds after which it will not happen any more


def wait_for(come: Callable[[], object], *, every: float = 0.01) -> None:
    until = time.monotonic() + PATIENCE
    while not come():
        assert time.monotonic() < until, "it never happened"
        time.sleep(every)


def wait_until_closed(place: tuple[str, int]) -> None:
    """Until nobody new is let in."""

    def is_closed() -> bool:
        try:
            socket.create_connection(place, timeout=PATIENCE).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_for(is_closed)

"""How many threads compute: the order in which they add up decides the last digits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def computing_with(number: int | None) -> Iterator[None]:
    """Compute with that many meanwhile; None leaves it as it is."""
    before = torch.get_num_threads()
    try:
        if number is not None:
            torch.set_num_threads(number)
        yield
    finally:
        if number is not None:
            torch.set_num_threads(before)

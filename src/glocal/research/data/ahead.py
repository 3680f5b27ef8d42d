"""What training needs next is made while it works with what it has."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """``ahead(i)`` is ``make(i)``; meanwhile a thread makes ``make(i + stride)``, unless that reaches ``end``.

    ``make`` must be a pure function of i.  The last result is kept: asking for it again costs nothing.

    >>> squares = Ahead(lambda i: i * i, end=10)
    >>> squares(3), squares(4), squares(4), squares(9)
    (9, 16, 16, 81)
    """

    def __init__(self, make: Callable[[int], T], *, end: int, stride: int = 1):
        self._make, self._end, self._stride = make, end, stride
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._now: tuple[int, T] | None = None
        self._next: tuple[int, Future[T]] | None = None

    def __call__(self, i: int) -> T:
        if self._now is not None and self._now[0] == i:
            return self._now[1]
        expected = self._next is not None and self._next[0] == i
        made = self._next[1].result() if expected and self._next is not None else self._make(i)
        self._now, following = (i, made), i + self._stride
        self._next = (following, self._thread.submit(self._make, following)) if following < self._end else None
        return made

"""What every head does: enroll features with their labels, compare others with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.features import Array, Features, Labels

PARTS = ("E_c", "E_f")  # open scores of a part of the photo: the whole, and its patches


class Scores(NamedTuple):
    """Queries compared with the classes."""

    logits: Array  # (Q, N)
    open_score: Array  # (Q,) larger = more unknown
    parts: Mapping[str, Array]  # by name of PARTS, (Q,) each


Asked = Callable[[Labels], Scores]  # rows of the features that may be asked about
Trial = Callable[[Labels, Labels], Asked]  # rows of a support that are enrolled, and their labels


class Head(Protocol):
    """Compares photos by their features."""

    name: str
    min_way: int  # fewest classes it is defined for
    takes_unknown: bool  # whether it learns from known unknowns
    score_names: tuple[str, ...]  # the open scores to choose from
    open_score: str  # the one it decides by

    def enroll(self, support: Features, label: Labels) -> Any: ...  # a label of UNKNOWN is a photo of no class

    def compare(self, state: Any, query: Features) -> Scores: ...

    def trials(self, support: Features, asked: Features) -> Trial: ...  # to enroll and ask about rows many times

    def record(self) -> dict[str, Any]: ...  # what a file says about it

    def graphs(self) -> tuple[Graph, ...]: ...  # those it runs


def trials(head: Head, support: Features, asked: Features) -> Trial:
    """For a head that begins anew each time."""

    def trial(rows: Labels, label: Labels) -> Asked:
        state = head.enroll(support.rows(rows), label)
        return lambda query: head.compare(state, asked.rows(query))

    return trial

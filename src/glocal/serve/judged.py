"""The remembered pictures as the recognizer of today sees them: their answers, and the groups of the unknown ones."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from glocal.recognizer import Prediction
from glocal.recognizer.eye import BATCH, Batch
from glocal.recognizer.support import join
from glocal.serve.groups import group, group_id, likeness
from glocal.serve.remembered import Query, Remembered
from glocal.serve.snapshot import Snapshot


@dataclass(frozen=True)
class Recent:
    query: Query
    answer: Prediction


@dataclass(frozen=True)
class Group:
    id: str
    suggestion: str  # the class nearest to most of them
    members: tuple[Recent, ...]


class Judged:
    """Answers are computed once for each version, when somebody looks; safe to use from any thread."""

    def __init__(self, queries: Remembered) -> None:
        self._queries = queries
        self._lock = threading.Lock()
        self._version = -1
        self._answers: dict[str, Prediction] = {}
        self._grouped: tuple[tuple[int, int], list[Group]] | None = None

    def recent(self, now: Snapshot) -> list[Recent]:
        """Newest first."""
        if now.recognizer is None:
            return []
        with self._lock:
            if now.version != self._version:
                self._version, self._answers = now.version, {}
            queries = self._queries.newest_first()
            new = [each for each in queries if each.id not in self._answers]
            for start in range(0, len(new), BATCH):
                some = new[start : start + BATCH]
                batch = Batch(tuple(each.picture for each in some), join([each.views for each in some]))
                for query, answer in zip(some, now.recognizer.answer(batch), strict=True):
                    assert isinstance(answer, Prediction)
                    self._answers[query.id] = answer
            kept = {each.id for each in queries}
            self._answers = {id_: answer for id_, answer in self._answers.items() if id_ in kept}
            return [Recent(each, self._answers[each.id]) for each in queries]

    def groups(self, now: Snapshot) -> list[Group]:
        """Of what is called unknown and was not enrolled since; the largest first."""
        stamp = (now.version, self._queries.stamp)
        if self._grouped is not None and self._grouped[0] == stamp:
            return self._grouped[1]
        found = self._group(now)
        self._grouped = (stamp, found)
        return found

    def _group(self, now: Snapshot) -> list[Group]:
        unknown = [each for each in self.recent(now) if each.answer.is_unknown and each.query.id not in now.photos]
        if now.recognizer is None or not unknown:
            return []
        support = now.recognizer.contents.support
        level = likeness(support.views().vec.numpy(), support.label.numpy())
        vectors = join([each.query.views for each in unknown]).vec.numpy()
        return [_named([unknown[i] for i in rows]) for rows in group(vectors, level)]


def _named(members: list[Recent]) -> Group:
    nearest = [each.answer.nearest for each in members]
    return Group(group_id([each.query.id for each in members]), max(nearest, key=nearest.count), tuple(members))

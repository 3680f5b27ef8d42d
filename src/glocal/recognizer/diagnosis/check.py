"""What a person runs before trusting a recognizer: labelled pictures, and how many of them it gets right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from glocal.common.errors import DataError
from glocal.common.words import nearest
from glocal.recognizer.batches import Progress
from glocal.recognizer.calibration.threshold import compute_threshold
from glocal.recognizer.diagnosis.rate import Rate
from glocal.recognizer.photos.sources import Labelled, Unreadable, labelled_sources
from glocal.recognizer.prediction import Prediction
from glocal.recognizer.recognizer import Recognizer
from glocal.recognizer.support import UNKNOWN_NAME

WORST = 10
TARGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Checked:
    truth: str  # an enrolled class, or "unknown"
    folder: str  # what the picture was filed under
    answer: Prediction

    @property
    def right(self) -> bool:
        return self.answer.label == self.truth

    @property
    def sureness(self) -> float:
        """How probable it called its answer."""
        return self.answer.probability


@dataclass(frozen=True)
class Traded:
    """What a target rate leads to on labelled pictures."""

    target: float
    threshold: float
    false_unknown: Rate
    caught: Rate

    def to_json(self) -> dict[str, Any]:
        rates = {"false_unknown": self.false_unknown.to_json(), "caught": self.caught.to_json()}
        return {"target": self.target, "threshold": self.threshold, **rates}


@dataclass(frozen=True)
class Check:
    classes: tuple[str, ...]
    pictures: tuple[Checked, ...]
    unreadable: tuple[Unreadable, ...]
    not_enrolled: Mapping[str, str]  # folder -> what is said about it
    trade_off: tuple[Traded, ...] = ()  # one of each of ``TARGETS``
    loose: Sequence[str] = ()  # pictures beside the class folders, which were not asked about

    @property
    def accuracy(self) -> Rate:
        """Pictures of enrolled classes that got their name."""
        return self._rate(lambda each: each.right)

    @property
    def named_right(self) -> Rate:
        """The same, had no picture been called unknown."""
        return self._rate(lambda each: each.answer.nearest == each.truth)

    @property
    def false_unknown(self) -> Rate:
        """Pictures of enrolled classes that were called unknown."""
        return self._rate(lambda each: each.answer.is_unknown)

    @property
    def caught(self) -> Rate:
        """Pictures of no enrolled class that were called unknown."""
        return self._rate(lambda each: each.answer.is_unknown, known=False)

    @property
    def taught(self) -> int:
        """Pictures that are (nearly) support photos, of which an answer proves little."""
        return sum(bool(each.answer.warning) for each in self.pictures)

    def confusion(self) -> dict[str, dict[str, int]]:
        """Truth -> answer -> pictures; rows and columns are the classes and "unknown", those that occur."""
        table: dict[str, dict[str, int]] = {}
        for each in self.pictures:
            row = table.setdefault(each.truth, {})
            row[each.answer.label] = row.get(each.answer.label, 0) + 1
        order = (*self.classes, UNKNOWN_NAME)
        return {truth: {a: table[truth][a] for a in order if a in table[truth]} for truth in order if truth in table}

    def worst(self, n: int = WORST) -> list[Checked]:
        """The wrong answers, the surest first."""
        wrong = [each for each in self.pictures if not each.right]
        return sorted(wrong, key=lambda each: -each.sureness)[:n]

    def to_json(self) -> dict[str, Any]:
        rates = ("accuracy", "named_right", "false_unknown", "caught")
        return {
            "pictures": len(self.pictures),
            **{name: getattr(self, name).to_json() for name in rates},
            "trade_off": [each.to_json() for each in self.trade_off],
            "confusion": self.confusion(),
            "worst": [{"truth": each.truth, **each.answer.to_json()} for each in self.worst()],
            "not_enrolled": dict(self.not_enrolled),
            "unreadable": [vars(each) for each in self.unreadable],
        }

    def above(self, threshold: float, *, known: bool) -> Rate:
        """Pictures of enrolled classes, or of none, that another threshold would call unknown."""
        return self._rate(lambda each: each.answer.open_score > threshold, known=known)

    def _rate(self, good: Callable[[Checked], bool], *, known: bool = True) -> Rate:
        some = [each for each in self.pictures if (each.truth != UNKNOWN_NAME) == known]
        return Rate(sum(map(good, some)), len(some))


def check(recognizer: Recognizer, labelled: Labelled, *, progress: Progress | None = None) -> Check:
    """Ask about every picture of ``labelled``: class folders as for enroll, and ``unknown`` for other things.

    A folder that is no enrolled class counts as unknown.  The result names it: it may be misspelt.
    """
    folders, _, loose = labelled_sources(labelled, check_names=False)
    filed = [folder for folder, sources in folders.items() for _ in sources]
    answers: list[Prediction | Unreadable] = []
    for answer in recognizer.stream(chain.from_iterable(folders.values())):
        answers.append(answer)
        if progress is not None:
            progress(len(answers), len(filed))
    checked = judged(recognizer.classes, filed, answers)
    if not checked.pictures:
        bad = checked.unreadable
        raise DataError(
            f"none of the {len(bad)} pictures can be used; the first: {bad[0].path}: {bad[0].error}", code="no-photos"
        )
    return replace(checked, trade_off=trade_off(recognizer, checked), loose=loose)


def trade_off(recognizer: Recognizer, checked: Check) -> tuple[Traded, ...]:
    """False and caught unknowns among the labelled pictures at each target rate; empty where no rate can be set."""
    now = recognizer.contents
    rows = []
    for target in TARGETS:
        threshold = compute_threshold(
            replace(now.promise, target_rate=target, with_unknown=None), now.support.shots, now.decision.measured
        )
        if threshold.expected is None:
            return ()
        false, caught = (checked.above(threshold.value, known=known) for known in (True, False))
        rows.append(Traded(target, threshold.value, false, caught))
    return tuple(rows)


def best_target(checked: Check) -> float | None:
    """The target rate with which false and missed unknowns are fewest together; None without labelled unknowns."""
    rows = [each for each in checked.trade_off if each.caught.n and each.false_unknown.n]
    return min(rows, key=lambda each: each.false_unknown.value - each.caught.value).target if rows else None


def learn(recognizer: Recognizer, checked: Check) -> int:
    """Let the labelled pictures of the classes join the leave-one-out scores; how many did."""
    before = len(recognizer.contents.decision.measured.confirmed)
    recognizer.confirm((each.answer, each.truth) for each in checked.pictures)
    return len(recognizer.contents.decision.measured.confirmed) - before


def judged(classes: tuple[str, ...], filed: Sequence[str], answers: Iterable[Prediction | Unreadable]) -> Check:
    """Answers about pictures that were filed under these folders, one for each."""
    names = {name.casefold(): name for name in classes}
    truth = {folder: names.get(folder.casefold(), UNKNOWN_NAME) for folder in filed}
    pictures, bad = [], []
    for folder, answer in zip(filed, answers, strict=True):
        if isinstance(answer, Unreadable):
            bad.append(answer)
        else:
            pictures.append(Checked(truth[folder], folder, answer))
    others = [each for each in truth if truth[each] == UNKNOWN_NAME and each.casefold() != UNKNOWN_NAME]
    return Check(classes, tuple(pictures), tuple(bad), {each: _remark(each, classes) for each in others})


def row_in_words(truth: str, row: Mapping[str, int]) -> str:
    """A row of a confusion: how many are right, and the mistakes by name."""
    wrong = ", ".join(f"{n} {name}" for name, n in row.items() if name != truth)
    return f"{truth}: {row.get(truth, 0)} of {sum(row.values())} right" + (f"; {wrong}" if wrong else "")


def _remark(folder: str, classes: Sequence[str]) -> str:
    near = nearest(folder, classes)
    hint = f"; or is it {near!r} misspelt?" if near else ""
    return f"folder {folder!r} is no enrolled class: its pictures count as unknown{hint}"

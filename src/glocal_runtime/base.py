"""What every recognizer does with its classes, wherever its model computes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from glocal_runtime.checkup import Finding, check_up, tidy
from glocal_runtime.decision import Promise
from glocal_runtime.errors import DataError, RecipeError
from glocal_runtime.eye import AnyEye, Batch, Image_, Source, Unreadable, as_source
from glocal_runtime.gather import Photos, sources_of
from glocal_runtime.judge import Judge
from glocal_runtime.look import Progress
from glocal_runtime.naming import check_class_name
from glocal_runtime.prediction import Prediction
from glocal_runtime.support import Classes, carried_over
from glocal_runtime.threshold import Threshold, check_promise
from glocal_runtime.views import Views


class Answered(NamedTuple):
    """A batch of pictures with their answers, in the order of the input."""

    batch: Batch[Any]
    answers: list[Prediction | Unreadable]


class AnyRecognizer:
    """Enrolled classes, the model that judges pictures by them, and a threshold with a promise.

    What changes it returns what the check-up has to say about the change.  A subclass knows how its model looks at
    photos (``_look``), how a support is enrolled (``_judge_of``) and how many classes it needs (``_check_way``).
    """

    contents: Any  # support, unknown, promise, decision and probes; replaced as a whole
    eye: AnyEye[Any]
    _judge: Judge
    _found: Sequence[Finding] = ()

    def _look(
        self, sources: list[Source], *, skip_bad: bool, progress: Progress | None
    ) -> tuple[Any, dict[int, Unreadable]]:
        """The bank of these photos, and the unreadable ones by their place."""
        raise NotImplementedError

    def _judge_of(self, support: Any) -> Judge:
        raise NotImplementedError

    def _check_way(self, way: int) -> None:
        raise NotImplementedError

    @property
    def classes(self) -> tuple[str, ...]:
        names: tuple[str, ...] = self.contents.support.names
        return names

    @property
    def threshold(self) -> Threshold:
        threshold: Threshold = self.contents.decision.threshold
        return threshold

    def findings(self) -> list[Finding]:
        """The check-up of the support: duplicates, strays, classes that will be confused, too few photos."""
        return [*self._found, *check_up(self.contents.support, self.contents.decision)]

    def predict(self, images: Photos) -> list[Prediction]:
        """One answer per picture; a picture that cannot be used is an error.  A folder stands for all in it."""
        found = []
        for answer in self.stream(sources_of(images)):
            if isinstance(answer, Unreadable):
                raise DataError(f"cannot use picture {answer.path}: {answer.error}")
            found.append(answer)
        return found

    def stream(self, images: Iterable[Image_]) -> Iterator[Prediction | Unreadable]:
        """Answers as they come, for any number of pictures; a bad picture is one of them and stops nothing."""
        for answered in self.batches(images):
            yield from answered.answers

    def batches(self, images: Iterable[Image_]) -> Iterator[Answered]:
        """The same, batch by batch, with what was seen of the pictures."""
        for batch in self.eye.batches(as_source(image, f"(picture {i})") for i, image in enumerate(images)):
            yield Answered(batch, self.answer(batch))

    def answer(self, batch: Batch[Any]) -> list[Prediction | Unreadable]:
        """Answers about pictures that were looked at before, in the order of the batch."""
        return self._judge.answer(batch, self.contents.decision)

    def scores(self, views: Any) -> tuple[list[float], list[list[float]]]:
        """Open scores (Q,) and logits (Q, N) of views."""
        return self._judge.scores(views)

    def row(self, batch: Batch[Any], i: int) -> Views:
        """Views of the i-th readable picture of a batch, as they would be stored."""
        return self._judge.plain(batch.views).rows(slice(i, i + 1)).stored()

    def matching_patches(self, views: Any, name: str) -> set[int] | None:
        """Of one picture's patches those that match the class; None for a method that does not look at patches."""
        return self._judge.matching_patches(views, name)

    def add_class(
        self, name: str, photos: Photos, *, skip_bad: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        if check_class_name(name) in self.classes:
            raise DataError(f"there is a class {name!r} already; add photos to it, or choose another name")
        return self._extend(name, photos, skip_bad, progress)

    def add_photos(
        self, name: str, photos: Photos, *, skip_bad: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        return self._extend(self.contents.support.having(name), photos, skip_bad, progress)

    def add_seen(self, name: str, seen: Any) -> list[Finding]:
        """Photos that were looked at before, to a class that is there or a new one: nothing is encoded again."""
        name = check_class_name(name)
        old = self.contents.support.classes.get(name)
        support, doubles = tidy(self.contents.support.with_class(name, seen if old is None else old + seen))
        return doubles + self._change(support, {name})

    def remove_photo(self, digest: str) -> list[Finding]:
        """The photo with this digest, of a class that has others."""
        name, support = self.contents.support.without_photo(digest)
        return self._change(support, {name})

    def remove_class(self, name: str) -> list[Finding]:
        support = self.contents.support.without(name)
        self._check_way(len(support.names))
        return self._change(support, ())

    def rename_class(self, old: str, new: str) -> list[Finding]:
        return self._change(self.contents.support.renamed(old, new), ())

    def set_threshold(
        self, value: float | None = None, *, max_false_unknown: float | None = None, per_class: bool | None = None
    ) -> Threshold:
        """By hand to ``value``, kept until the next call; or computed anew for a promise."""
        now = self.contents
        if value is not None and (max_false_unknown is not None or per_class is not None):
            raise RecipeError("a threshold is set by hand or computed for a promise; give one of the two")
        promise = now.promise
        if value is not None:
            threshold = Threshold(float(value), promise.max_false_unknown, None, None, "user")
        else:
            share = promise.max_false_unknown if max_false_unknown is None else check_promise(max_false_unknown)
            promise = Promise(share, promise.per_class if per_class is None else per_class)
            threshold = self._judge.threshold(now, promise, now.decision.left_out)
        self.contents = replace(now, promise=promise, decision=replace(now.decision, threshold=threshold))
        return threshold

    def _extend(self, name: str, photos: Photos, skip_bad: bool, progress: Progress | None) -> list[Finding]:
        sources = sources_of(photos, f"{name}/")
        if not sources:
            raise DataError(f"class {name!r} needs at least one photo to add, got none")
        new, bad = self._look(sources, skip_bad=skip_bad, progress=progress)
        if not len(new):
            first = next(iter(bad.values()))
            raise DataError(f"none of the {len(bad)} photos can be used; the first: {first.path}: {first.error}")
        return [Finding.unreadable(each.path, each.error) for each in bad.values()] + self.add_seen(name, new)

    def _change(self, support: Classes[Any], touched: Collection[str]) -> list[Finding]:
        """To the new support, or, when anything goes wrong on the way, nothing at all."""
        now = self.contents
        before = carried_over(now.decision.left_out, now.support, support)
        judge = self._judge_of(support)
        contents = judge.settled(now, changed={support.names.index(name) for name in touched}, before=before)
        self.contents, self._judge = contents, judge
        found = [each for each in check_up(support, contents.decision) if each.concerns(touched)]
        return [*found, Finding.by_hand(self.threshold.value)] if contents.decision.by_hand else found


def first_of(flat: Sequence[Source], owner: Sequence[str], bad: Collection[int]) -> list[Source]:
    """The first readable photo of each class."""
    readable = [source for i, source in enumerate(flat) if i not in bad]
    return list({name: source for source, name in zip(reversed(readable), reversed(owner), strict=True)}.values())


NEEDS_RIVALS = ("entropy", "doubt", "margin")  # open scores that compare classes with each other


def check_way(
    way: int,
    *,
    method: str,
    min_way: int,
    score: str,
    other_model: str = "another model",
    other_score: str = "export another one",
) -> None:
    """Refuse a number of classes that the method, or its open score, is not defined for."""
    if way < min_way:
        raise RecipeError(f"{method} needs at least {min_way} classes, got {way}; add one, or use {other_model}")
    if way == 1 and score in NEEDS_RIVALS:
        raise RecipeError(
            f"the open score {score!r} compares classes with each other and says nothing with a single one; "
            f"add a class or {other_score}"
        )

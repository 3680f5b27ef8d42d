"""A folder of photos in, a name or "unknown" out.

>>> recognizer = Recognizer.enroll("photos")                                             # doctest: +SKIP
>>> recognizer.predict("new.jpg")[0].label                                               # doctest: +SKIP
'bolt'
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from glocal.engine.calibrate import Threshold
from glocal.engine.checkpoint import Model
from glocal.engine.device import pick_device
from glocal.engine.threshold import check_promise
from glocal.errors import DataError, RecipeError
from glocal.recognizer.brain import DEFAULT, load_brain
from glocal.recognizer.checkup import Finding, check_up, tidy
from glocal.recognizer.contents import Contents, carried_over
from glocal.recognizer.decision import Decision, Promise
from glocal.recognizer.eye import Batch, Eye, Image_, Source, Unreadable, as_source, take
from glocal.recognizer.file import read_contents, write_contents
from glocal.recognizer.gather import Labelled, Photos, labelled_sources, nested_folders, sources_of
from glocal.recognizer.judge import Judge
from glocal.recognizer.look import Progress, look, probes_of
from glocal.recognizer.naming import check_class_name
from glocal.recognizer.prediction import Prediction
from glocal.recognizer.support import Bank, Support, on_cpu
from glocal.types import Views


class Answered(NamedTuple):
    """A batch of pictures with their answers, in the order of the input."""

    batch: Batch
    answers: list[Prediction | Unreadable]


class Recognizer:
    """Enrolled classes, the model that judges pictures by them, and a threshold with a promise.

    Build it with ``enroll`` or ``load``.  What changes it returns what the check-up has to say about the change.
    """

    def __init__(self, contents: Contents, eye: Eye, judge: Judge, findings: Sequence[Finding] = ()) -> None:
        self.contents, self.eye, self._judge, self._found = contents, eye, judge, list(findings)

    @classmethod
    def enroll(
        cls,
        photos: Labelled,
        *,
        model: str | Path | Model = DEFAULT,
        score: str | None = None,
        max_false_unknown: float = 0.05,
        per_class: bool = False,
        unknown: Photos | None = None,
        skip_bad: bool = False,
        device: str = "auto",
        workers: int = 2,
        progress: Progress | None = None,
    ) -> Recognizer:
        """From ``folder/<class>/*.jpg``, a zip of that, or a mapping of class names to photos.

        ``unknown``: photos of other things, which make the threshold better.  ``score``: another open score.
        """
        promise = Promise(check_promise(max_false_unknown), per_class)
        classes = labelled_sources(photos)
        others = [] if unknown is None else sources_of(unknown, "unknown/")
        brain = load_brain(model, score=score)
        brain.check_way(len(classes))
        eye = Eye(brain.model, device=pick_device(device), workers=workers)
        flat = [source for some in classes.values() for source in some]
        bank, bad = look(eye, flat + others, skip_bad=skip_bad, progress=progress)
        owner = [name for name, some in classes.items() for _ in some]
        owner = [name for i, name in enumerate(owner) if i not in bad]
        rows = {name: [row for row, each in enumerate(owner) if each == name] for name in classes}
        if empty := [name for name, some in rows.items() if not some]:
            raise DataError(f"class {empty[0]!r} has no usable photo; add some or remove the class")
        support, doubles = tidy(Support({name: bank.rows(some) for name, some in rows.items()}))
        aside = bank.rows(list(range(len(owner), len(bank)))) if others else None
        pending = Decision(Threshold(math.inf, max_false_unknown, None, None, "none"), ())
        judge = Judge(brain, support, eye.device)
        contents = Contents(brain, support, aside, promise, pending, probes_of(eye, _first_of(flat, owner, bad)))
        findings = [Finding.unreadable(each.path, each.error) for each in bad.values()]
        findings += [Finding.nested(name, below) for name, below in nested_folders(photos).items()]
        return cls(judge.settled(contents, changed=None), eye, judge, findings + doubles)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", workers: int = 2) -> Recognizer:
        contents = read_contents(Path(path))
        eye = Eye(contents.brain.model, device=pick_device(device), workers=workers)
        return cls(contents, eye, Judge(contents.brain, contents.support, eye.device))

    def save(self, path: str | Path) -> None:
        """One file, the old one or the new one at any moment."""
        write_contents(Path(path), self.contents)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.contents.support.names

    @property
    def threshold(self) -> Threshold:
        return self.contents.decision.threshold

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
            yield Answered(batch, self._judge.answer(batch, self.contents.decision))

    def embed(self, images: Iterable[Image_]) -> Views:
        """Views of a few pictures, as they would be stored."""
        return on_cpu(self.eye.batch(take(as_source(image), self.eye.preprocess) for image in images).views)

    def scores(self, views: Views) -> tuple[list[float], list[list[float]]]:
        """Open scores (Q,) and logits (Q, N) of views."""
        return self._judge.scores(views)

    def matching_patches(self, views: Views, name: str) -> set[int] | None:
        """Of one picture's patches those that match the class; None for a method that does not look at patches."""
        return self._judge.matching_patches(views, name)

    def add_class(self, name: str, photos: Photos, *, progress: Progress | None = None) -> list[Finding]:
        if check_class_name(name) in self.classes:
            raise DataError(f"there is a class {name!r} already; add photos to it, or choose another name")
        return self._extend(name, None, photos, progress)

    def add_photos(self, name: str, photos: Photos, *, progress: Progress | None = None) -> list[Finding]:
        name = self.contents.support.having(name)
        return self._extend(name, self.contents.support.classes[name], photos, progress)

    def remove_class(self, name: str) -> list[Finding]:
        support = self.contents.support.without(name)
        self.contents.brain.check_way(len(support.names))
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

    def _extend(self, name: str, old: Bank | None, photos: Photos, progress: Progress | None) -> list[Finding]:
        sources = sources_of(photos, f"{name}/")
        if not sources:
            raise DataError(f"class {name!r} needs at least one photo to add, got none")
        new, _ = look(self.eye, sources, progress=progress)
        support, doubles = tidy(self.contents.support.with_class(name, new if old is None else old + new))
        return doubles + self._change(support, {check_class_name(name)})

    def _change(self, support: Support, touched: Collection[str]) -> list[Finding]:
        """To the new support, or, when anything goes wrong on the way, nothing at all."""
        now = self.contents
        before = carried_over(now.decision.left_out, now.support, support)
        judge = Judge(now.brain, support, self.eye.device)
        contents = judge.settled(now, changed={support.names.index(name) for name in touched}, before=before)
        self.contents, self._judge = contents, judge
        found = [each for each in check_up(support, contents.decision) if each.concerns(touched)]
        return [*found, Finding.by_hand(self.threshold.value)] if contents.decision.by_hand else found


def _first_of(flat: Sequence[Source], owner: Sequence[str], bad: Collection[int]) -> list[Source]:
    """The first readable photo of each class."""
    readable = [source for i, source in enumerate(flat) if i not in bad]
    return list({name: source for source, name in zip(reversed(readable), reversed(owner), strict=True)}.values())

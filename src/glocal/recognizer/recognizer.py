"""A folder of photos in, a name or "unknown" out.

>>> recognizer = Recognizer.enroll("photos")                                             # doctest: +SKIP
>>> recognizer.predict("new.jpg")[0].label                                               # doctest: +SKIP
'bolt'
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from glocal.common.errors import DataError, RecipeError
from glocal.common.files import Stamp, stamp, still_free
from glocal.common.hub import PREFIX, recognizer_of
from glocal.common.markup import Html, rows_table, small_picture, text
from glocal.common.words import listed
from glocal.recognizer.batches import PROBES, Batch, Embedder, Progress
from glocal.recognizer.calibration.leave_one_out import LeftOut
from glocal.recognizer.calibration.probability import probabilities
from glocal.recognizer.calibration.threshold import compute_threshold
from glocal.recognizer.converted import ConvertedModel, is_converted
from glocal.recognizer.decision import Decision, Promise, Threshold
from glocal.recognizer.diagnosis.advice import Finding, advice, threshold_moved, without_duplicates
from glocal.recognizer.diagnosis.outlook import Outlook, outlook
from glocal.recognizer.encoders.builtin import ENCODERS
from glocal.recognizer.encoders.encoder import VECTORS
from glocal.recognizer.encoders.file import is_encoder
from glocal.recognizer.enrolled import Contents, Enrolled, Probes, Verified, carried_over, relative
from glocal.recognizer.explanation import explain
from glocal.recognizer.features import Array, Features
from glocal.recognizer.file import read_contents, write_contents
from glocal.recognizer.groups import Unknowns
from glocal.recognizer.heads.head import Scores
from glocal.recognizer.model import DEFAULT, DEFAULT_HEAD, Model, build_model, converted_model
from glocal.recognizer.photos.sources import (
    Image_,
    Labelled,
    Photos,
    Unreadable,
    as_source,
    is_unknown,
    labelled_sources,
    sources_of,
)
from glocal.recognizer.prediction import Prediction
from glocal.recognizer.suggest import choose
from glocal.recognizer.support import UNKNOWN_NAME, Bank, Support, check_class_name
from glocal.recognizer.vectors import vector_batch

CHECKPOINT = ".safetensors"  # ending of what training writes
SHOWN = 5  # classes, and photos of each, in what a notebook shows


ModelSource: TypeAlias = "Model | ConvertedModel | Recognizer | str | Path"


class Answered(NamedTuple):
    """A batch of pictures with their answers, in the order of the input."""

    batch: Batch
    answers: list[Prediction | Unreadable]


class Decided(NamedTuple):
    """Answers as columns, for many pictures at once; (Q,) each."""

    label: list[str]  # the class, or "unknown"
    probability: Array  # of the label
    open_score: Array
    threshold: Array
    nearest: list[str]


class Recognizer:
    """Enrolled classes, the model that compares photos with them, and a threshold with a target rate.

    Build it with ``enroll`` or ``load``.  What changes it returns the advice about the change.

    Parameters
    ----------
    contents : Contents
        All that a file holds.
    embedder : Embedder
        Turns photos into features.
    enrolled : Enrolled
        The enrolled classes.
    findings : sequence of Finding
        Advice about the photos.

    Examples
    --------
    >>> recognizer = Recognizer.enroll("photos")  # doctest: +SKIP
    >>> recognizer.predict("new.jpg")[0].label  # doctest: +SKIP
    'washer'
    """

    def __init__(
        self, contents: Contents, embedder: Embedder, enrolled: Enrolled, findings: Sequence[Finding] = ()
    ) -> None:
        self.contents, self.embedder, self.enrolled, self._findings = contents, embedder, enrolled, list(findings)
        self._read_from: tuple[str, Stamp | None] | None = None  # the file, and as it was then

    @classmethod
    def enroll(
        cls,
        photos: Labelled,
        *,
        encoder: str | Path = DEFAULT,
        head: str = DEFAULT_HEAD,
        model: ModelSource | None = None,
        score: str | None = None,
        target_rate: float = 0.05,
        unknown: Photos | None = None,
        with_unknown: float | None = None,
        skip_bad: bool = False,
        link_encoder: bool = False,
        device: str = "auto",
        workers: int = 2,
        progress: Progress | None = None,
    ) -> Recognizer:
        """Enroll classes from ``folder/<class>/*.jpg``, a zip of that, or a mapping of class names to photos.

        Parameters
        ----------
        photos : path or mapping of str to photos
            Photos of each class.  A class ``unknown`` holds photos of other things, as the argument ``unknown`` does.
        encoder : str or Path
            fast, better, an .encoder file, or the file of a converted model.
        head : str
            ridge, prototypes or gel.
        model : path or model, optional
            In place of encoder and head: a converted model, a recognizer, or the file of one.
        score : str, optional
            Another open score than the head's own.
        target_rate : float
            Target rate of false unknowns.
        unknown : photos, optional
            Photos of other things, which the head learns to tell from the classes.
        with_unknown : float, optional
            Rate of false unknowns that catching more unknowns may cost.
        skip_bad : bool
            Leave unreadable photos out instead of stopping.
        link_encoder : bool
            Leave the graph of an .encoder file out of the file, which then needs it beside itself or in the cache.
        device : str
            auto, cpu or cuda.
        workers : int
            Threads that read photos.
        progress : callable, optional
            Called with the number of encoded photos and the total.

        Returns
        -------
        Recognizer
            With a threshold computed from the photos.
        """
        promise = Promise(target_rate, with_unknown)
        classes, nested, loose = labelled_sources(photos)
        aside = classes.pop(UNKNOWN_NAME, [])
        if not classes:
            raise DataError(
                "there is no class, only photos of other things in unknown/; give at least one class with a photo"
            )
        others = aside + ([] if unknown is None else sources_of(unknown, "unknown/"))
        if model is None:
            chosen = build_model(encoder, head, score=score, device=device, linked=link_encoder)
        else:
            chosen = find_model(model, score=score, device=device)
        chosen.check_way(len(classes))
        embedder = Embedder(chosen.encoder, workers=workers)
        flat = [source for some in classes.values() for source in some]
        bank, bad = embedder.bank(flat + others, skip_bad=skip_bad, progress=progress)
        owner = [name for name, some in classes.items() for _ in some]
        owner = [name for i, name in enumerate(owner) if i not in bad]
        usable = Counter(owner)
        if empty := [name for name in classes if not usable[name]]:
            raise DataError(f"class {empty[0]!r} has no usable photo; add some or remove the class")
        shots = {name: usable[name] for name in classes}
        readable = [source for i, source in enumerate(flat) if i not in bad]
        images = embedder.probe_images([readable[start] for start in np.cumsum([0, *shots.values()][:-1])])
        probes = Probes(images, embedder.embed(images))
        contents, enrolled, doubles = _taught(chosen, shots, bank, promise, probes)
        in_folder = sum(len(flat) + i not in bad for i in range(len(aside)))
        findings = [Finding.known_unknowns(in_folder)] if in_folder else []
        findings += [Finding.unreadable(each.path, each.error) for each in bad.values()]
        findings += [Finding.nested(name, below) for name, below in nested.items()]
        findings += [Finding.loose(loose)] if loose else []
        return cls(enrolled.settled(contents), embedder, enrolled, findings + doubles)

    @classmethod
    def enroll_vectors(
        cls,
        vectors: ArrayLike,
        labels: Sequence[str],
        *,
        names: Sequence[str] | None = None,
        head: str = DEFAULT_HEAD,
        score: str | None = None,
        target_rate: float = 0.05,
        with_unknown: float | None = None,
    ) -> Recognizer:
        """Enroll classes from vectors of any program: of photos, sound or text.

        Parameters
        ----------
        vectors : array (B, D)
            They are compared by their directions.
        labels : sequence of str
            The class of each; ``unknown`` for those of other things.
        names : sequence of str, optional
            What to call each vector.
        head : str
            ridge or prototypes.
        score : str, optional
            Another open score than the head's own.
        target_rate : float
            Target rate of false unknowns.
        with_unknown : float, optional
            Rate of false unknowns that catching more unknowns may cost.

        Returns
        -------
        Recognizer
            It answers vectors of the same program.
        """
        promise, chosen = Promise(target_rate, with_unknown), build_model(VECTORS, head, score=score)
        batch = vector_batch(vectors, names)
        if len(labels) != len(batch.pictures):
            raise DataError(
                f"each vector needs a label, got {len(batch.pictures)} vectors and {len(labels)} labels",
                code="bad-vectors",
            )
        rows: dict[str, list[int]] = {}
        for row, label in enumerate(map(str, labels)):
            rows.setdefault(UNKNOWN_NAME if is_unknown(label) else label, []).append(row)
        aside = rows.pop(UNKNOWN_NAME, [])
        if not rows:
            raise DataError("there is no class, only vectors of other things; label one at least", code="bad-vectors")
        chosen.check_way(len(rows))
        bank = batch.bank().rows([*chain(*rows.values()), *aside])
        first = [some[0] for some in rows.values()][:PROBES]
        probes = Probes((), batch.features.rows(first).stored())
        shots = {name: len(some) for name, some in rows.items()}
        contents, enrolled, doubles = _taught(chosen, shots, bank, promise, probes)
        return cls(enrolled.settled(contents), Embedder(chosen.encoder), enrolled, doubles)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", workers: int = 2, threads: int = 0) -> Recognizer:
        """Read a .glocal file.

        Parameters
        ----------
        path : str or Path
            The file, or hf:ORG/NAME, a repository of a hub that holds it.
        device : str
            auto, cpu or cuda.
        workers : int
            Threads that read photos.
        threads : int
            Threads of onnxruntime, 0 for one per core.

        Returns
        -------
        Recognizer
            As it was saved.
        """
        path = recognizer_of(str(path)) if str(path).startswith(PREFIX) else path
        seen = os.path.realpath(path), stamp(path)
        contents = read_contents(Path(path), device=device, threads=threads)
        recognizer = cls(
            contents,
            Embedder(contents.model.encoder, workers=workers),
            Enrolled(contents.model, contents.support, contents.unknown),
        )
        recognizer._read_from = seen
        return recognizer

    def save(self, path: str | Path, *, new: bool = False) -> None:
        """Write one file, which holds the old content or the new content at any moment.

        Over the file that it was read from, it is written only while that file is as it was, so that no change is lost.

        Parameters
        ----------
        path : str or Path
            The .glocal file.
        new : bool
            Refuse to write over a file.
        """
        place, seen = self._read_from or ("", None)
        if new:
            write_contents(Path(path), self.contents, is_current=still_free(Path(path)))
            return
        if place != os.path.realpath(path):
            write_contents(Path(path), self.contents)
            return
        write_contents(Path(path), self.contents, is_current=lambda: stamp(path) == seen)
        self._read_from = place, stamp(path)

    def __repr__(self) -> str:
        names, n_photo = self.classes, len(self.contents.support.photos)
        return f"<Recognizer of {len(names)} classes ({listed(names)}), {n_photo} photos, {self.contents.model.name}>"

    def _repr_html_(self) -> str:
        """For notebooks: what to expect, and the classes with their first photos."""
        small = partial(small_picture, kind="image/jpeg", height=48)
        lines = "".join(f"<li>{text(line)}</li>" for line in self.outlook().lines())
        rows = [
            (name, len(bank), Html("".join(small(each.thumbnail, alt=each.name) for each in bank.photos[:SHOWN])))
            for name, bank in self.contents.support.classes.items()
        ]
        if self.contents.unknown is not None:
            rows.append(("(known unknowns)", len(self.contents.unknown), Html()))
        table = rows_table(("class", "photos", ""), rows)
        return f"<div><p>{text(repr(self)[1:-1])}</p><ul>{lines}</ul>{table}</div>"

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order they were enrolled in."""
        return self.contents.support.names

    @property
    def n_numbers(self) -> int:
        """How many numbers the vector of a photo has."""
        return int(self.contents.support.bank.features.vec.shape[1])

    @property
    def threshold(self) -> Threshold:
        """Where "unknown" begins, what it promises, and how far to trust that."""
        return self.contents.decision.threshold

    def outlook(self) -> Outlook:
        """Estimate what to expect: how often it names right, calls known photos unknown, and catches unknown ones.

        Returns
        -------
        Outlook
            Rates with their intervals.
        """
        return outlook(self.contents.support.shots, self.contents.decision)

    def findings(self) -> list[Finding]:
        """Look through the support: duplicates, strays, classes that will be confused, too few photos.

        Returns
        -------
        list of Finding
            Advice about the photos.
        """
        return [*self._findings, *advice(self.contents.support, self.contents.decision), *_unused(self.contents)]

    def predict(self, images: Photos) -> list[Prediction]:
        """Answer photos; one that cannot be used is an error.

        Parameters
        ----------
        images : path, image or iterable of them
            A folder stands for all photos in it.

        Returns
        -------
        list of Prediction
            One for each photo.
        """
        return [_readable(answer) for answered in self.batches(sources_of(images)) for answer in answered.answers]

    def predict_vectors(self, vectors: ArrayLike, names: Sequence[str] | None = None) -> list[Prediction]:
        """Answer vectors of the program that made those that were enrolled.

        Parameters
        ----------
        vectors : array (B, D)
            As for ``enroll_vectors``.
        names : sequence of str, optional
            What to call each vector.

        Returns
        -------
        list of Prediction
            One for each vector.
        """
        answers = self.answer(vector_batch(vectors, names, length=self.n_numbers))
        return [_readable(answer) for answer in answers]

    def group(self, images: Photos) -> list[list[Prediction]]:
        """Put photos that are called unknown into groups of the same thing; one that cannot be used is an error.

        Parameters
        ----------
        images : path, image or iterable of them
            A folder stands for all photos in it.

        Returns
        -------
        list of list of Prediction
            The largest group first; a photo that is like no other is a group of one.
        """
        unknowns = Unknowns()
        for batch, answers in self.batches(sources_of(images)):
            unknowns.add(batch, map(_readable, answers))
        return unknowns.groups(self.contents.support)

    def suggest(self, images: Photos, n: int = 10) -> list[Prediction]:
        """Choose the photos whose labels would help most; one that cannot be used is an error.

        Parameters
        ----------
        images : path, image or iterable of them
            A folder stands for all photos in it.
        n : int
            How many.

        Returns
        -------
        list of Prediction
            The most useful photo first.
        """
        answered = list(self.batches(sources_of(images)))
        answers = [_readable(answer) for each in answered for answer in each.answers]
        return [
            answers[i] for i in self.rank(answers, np.concatenate([each.batch.features.vec for each in answered]), n)
        ]

    def rank(self, answers: Sequence[Prediction], vec: Array, n: int) -> list[int]:
        """Places of the answered photos whose labels would help most.

        Parameters
        ----------
        answers : sequence of Prediction
            Of the photos.
        vec : array
            Their vectors.
        n : int
            How many.

        Returns
        -------
        list of int
            The most useful photo first.
        """
        known, aside = self.contents.support.bank.features.vec, self.contents.unknown
        labelled = known if aside is None else np.concatenate([known, aside.features.vec])
        shares = np.array([each.probabilities[UNKNOWN_NAME] for each in answers])
        return choose(vec, n, weight=1 - shares, labelled=labelled)

    def stream(self, images: Iterable[Image_]) -> Iterator[Prediction | Unreadable]:
        """Answer any number of photos, one after the other; an unreadable one stops nothing.

        Parameters
        ----------
        images : iterable of images
            Photos.

        Yields
        ------
        Prediction or Unreadable
            In the order of the photos.
        """
        for answered in self.batches(images):
            yield from answered.answers

    def batches(self, images: Iterable[Image_]) -> Iterator[Answered]:
        """Answer any number of photos, batch by batch, with the features of each.

        Parameters
        ----------
        images : iterable of images
            Photos.

        Yields
        ------
        Answered
            A batch and its answers.
        """
        for batch in self.embedder.batches(as_source(image, f"(picture {i})") for i, image in enumerate(images)):
            yield Answered(batch, self.enrolled.answer(batch, self.contents.decision))

    def answer(self, batch: Batch) -> list[Prediction | Unreadable]:
        """Answer photos that were encoded before.

        Parameters
        ----------
        batch : Batch
            From the embedder.

        Returns
        -------
        list of Prediction or Unreadable
            In the order of the batch.
        """
        return self.enrolled.answer(batch, self.contents.decision)

    def decide(self, features: Features) -> Decided:
        """Answer from features alone, without reasons.

        Parameters
        ----------
        features : Features
            Of the photos.

        Returns
        -------
        Decided
            Answers as columns.
        """
        decision, names = self.contents.decision, (*self.classes, UNKNOWN_NAME)
        compared = self.compare(features)
        best = compared.logits.argmax(axis=1)
        score, threshold = decision.threshold.levelled(compared.open_score, best), decision.threshold.value
        label = np.where(score > threshold, len(self.classes), best)
        p = probabilities(compared, decision.threshold)
        return Decided(
            [names[n] for n in label.tolist()],
            p[np.arange(len(label)), label],
            score,
            np.full(len(score), threshold),
            [names[n] for n in best.tolist()],
        )

    def compare(self, features: Features) -> Scores:
        """Compare features with the classes.

        Parameters
        ----------
        features : Features
            Of the photos.

        Returns
        -------
        Scores
            Logits (Q, N) and open scores (Q,).
        """
        return self.enrolled.compare(features)

    def explain(self, image: Image_) -> Image.Image:
        """Draw the answer to one photo: what matched in which photo.

        Parameters
        ----------
        image : image
            A path, bytes, a Pillow image or an array.

        Returns
        -------
        Image
            A drawing.
        """
        [answered] = self.batches([image])
        return explain(self, answered.batch, 0, _readable(answered.answers[0]))

    def verify(self) -> list[Verified]:
        """Answer the probe photos again, to see whether this machine gives the recorded answers.

        Returns
        -------
        list of Verified
            Recorded and new score of each.
        """
        probes = self.contents.probes
        scores = self.compare(self.embedder.embed(probes.images) if probes.images else probes.features)
        verified = []
        for i, expected in enumerate(probes.open_score):
            here = float(scores.open_score[i])
            pairs = [(expected, here), *zip(probes.logits[i], scores.logits[i].tolist(), strict=True)]
            verified.append(Verified(expected, here, max(relative(a, b) for a, b in pairs)))
        return verified

    def add_class(
        self, name: str, photos: Photos, *, skip_bad: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        """Enroll a new class.

        Parameters
        ----------
        name : str
            Of the class.
        photos : path, image or iterable of them
            One photo, several, or all below a folder.
        skip_bad : bool
            Leave unreadable photos out instead of stopping.
        progress : callable, optional
            Called with the number of encoded photos and the total.

        Returns
        -------
        list of Finding
            Advice about the change.
        """
        if check_class_name(name) in self.classes:
            raise DataError(
                f"there is a class {name!r} already; add photos to it, or choose another name", code="class-exists"
            )
        return self._extend(name, photos, skip_bad, progress)

    def add_photos(
        self, name: str, photos: Photos, *, skip_bad: bool = False, progress: Progress | None = None
    ) -> list[Finding]:
        """Enroll more photos of a class that is there.

        Parameters
        ----------
        name : str
            Of the class.
        photos : path, image or iterable of them
            One photo, several, or all below a folder.
        skip_bad : bool
            Leave unreadable photos out instead of stopping.
        progress : callable, optional
            Called with the number of encoded photos and the total.

        Returns
        -------
        list of Finding
            Advice about the change.
        """
        return self._extend(self.contents.support.having(name), photos, skip_bad, progress)

    def add_bank(self, name: str, bank: Bank) -> list[Finding]:
        """Enroll photos that were encoded before, in a class that is there or a new one.

        Parameters
        ----------
        name : str
            Of the class.
        bank : Bank
            Of the photos.

        Returns
        -------
        list of Finding
            Advice about the change.
        """
        name = check_class_name(name)
        old = self.contents.support.classes.get(name)
        grown = self.contents.support.with_class(name, bank if old is None else Bank.join([old, bank]))
        support, doubles = without_duplicates(grown)
        return doubles + self._change(support, {name})

    def remove_photo(self, digest: str) -> list[Finding]:
        """Remove a photo of a class that has others.

        Parameters
        ----------
        digest : str
            Of the photo.

        Returns
        -------
        list of Finding
            Advice about the change.
        """
        name, support = self.contents.support.without_photo(digest)
        return self._change(support, {name})

    def remove_class(self, name: str) -> list[Finding]:
        """Remove a class with all its photos; the threshold is computed anew.

        Parameters
        ----------
        name : str
            Of the class.

        Returns
        -------
        list of Finding
            Advice about the change.
        """
        support = self.contents.support.without(name)
        self.contents.model.check_way(len(support.names))
        return self._change(support, ())

    def rename_class(self, old: str, new: str) -> list[Finding]:
        """Give a class another name; nothing else changes.

        Parameters
        ----------
        old : str
            The name it has.
        new : str
            The name it gets.

        Returns
        -------
        list of Finding
            Advice about the change.
        """
        return self._change(self.contents.support.renamed(old, new), ())

    def set_threshold(
        self,
        value: float | None = None,
        *,
        target_rate: float | None = None,
        with_unknown: float | None = None,
    ) -> Threshold:
        """Set the threshold by hand, or compute it anew for a target rate.

        Parameters
        ----------
        value : float, optional
            Open score above which the answer is "unknown"; kept until the next call.
        target_rate : float, optional
            Target rate of false unknowns.
        with_unknown : float, optional
            Rate of false unknowns that catching more unknowns may cost.

        Returns
        -------
        Threshold
            The new one.
        """
        now = self.contents
        if value is not None and (target_rate, with_unknown) != (None, None):
            raise RecipeError("a threshold is set by hand or computed for a promise; give one of the two")
        promise = now.promise
        if value is not None:
            threshold = replace(
                now.decision.threshold,
                value=float(value),
                expected=None,
                interval=None,
                source="user",
                n_scores=0,
                warnings=(),
            )
        else:
            promise = Promise(
                promise.target_rate if target_rate is None else target_rate,
                promise.with_unknown if with_unknown is None else with_unknown,
            )
            threshold = compute_threshold(promise, now.support.shots, now.decision.measured)
        self.contents = replace(now, promise=promise, decision=replace(now.decision, threshold=threshold))
        return threshold

    def confirm(self, answers: Iterable[tuple[Prediction, str]]) -> Threshold:
        """Learn from answers with the class that a person gave each.

        The scores of photos of the classes join the leave-one-out scores until the classes change.  Nothing is
        enrolled, and photos that are nearly support photos do not count.

        Parameters
        ----------
        answers : iterable of tuple of Prediction and str
            Answers and the true class of each.

        Returns
        -------
        Threshold
            The new one.
        """
        now, names, shots = self.contents, self.classes, self.contents.support.shots
        levels = now.decision.threshold.levels or (0.0,) * len(names)
        confirmed = {(each.label, each.score): each for each in now.decision.measured.confirmed}
        for answer, name in answers:
            if name in names and not answer.warning:
                label, nearest = names.index(name), names.index(answer.nearest)
                score = answer.open_score + levels[nearest]
                confirmed[label, score] = LeftOut(label, shots[label], score, nearest=nearest)
        measured = replace(now.decision.measured, confirmed=tuple(confirmed.values()))
        threshold = now.renewed_threshold(measured)
        self.contents = replace(now, decision=replace(now.decision, threshold=threshold, measured=measured))
        return threshold

    def add_unknown(self, photos: Photos, *, skip_bad: bool = False, progress: Progress | None = None) -> list[Finding]:
        """Enroll known unknowns: photos of other things, beside those that are there.

        Parameters
        ----------
        photos : path, image or iterable of them
            One photo, several, or all below a folder.
        skip_bad : bool
            Leave unreadable photos out instead of stopping.
        progress : callable, optional
            Called with the number of encoded photos and the total.

        Returns
        -------
        list of Finding
            Advice about the change.
        """
        new, findings = self._encoded("unknown/", photos, skip_bad, progress)
        return findings + self.add_unknown_bank(new)

    def add_unknown_bank(self, bank: Bank) -> list[Finding]:
        """Enroll known unknowns that were encoded before.

        Parameters
        ----------
        bank : Bank
            Of the photos.

        Returns
        -------
        list of Finding
            Advice about the change.
        """
        there = self.contents.unknown
        joined = _aside(bank if there is None else Bank.join([there, bank]), self.contents.support)
        return [*self._change(self.contents.support, (), unknown=joined), *_unused(self.contents)]

    def _extend(self, name: str, photos: Photos, skip_bad: bool, progress: Progress | None) -> list[Finding]:
        new, findings = self._encoded(f"{name}/", photos, skip_bad, progress)
        return findings + self.add_bank(name, new)

    def _encoded(
        self, prefix: str, photos: Photos, skip_bad: bool, progress: Progress | None
    ) -> tuple[Bank, list[Finding]]:
        sources = sources_of(photos, prefix)
        if not sources:
            raise DataError(f"{prefix.rstrip('/')!r} needs at least one photo to add, got none", code="no-photos")
        new, bad = self.embedder.bank(sources, skip_bad=skip_bad, progress=progress)
        if not len(new):
            first = next(iter(bad.values()))
            raise DataError(
                f"none of the {len(bad)} photos can be used; the first: {first.path}: {first.error}", code="no-photos"
            )
        return new, [Finding.unreadable(each.path, each.error) for each in bad.values()]

    def _change(self, support: Support, touched: Collection[str], *, unknown: Bank | None = None) -> list[Finding]:
        """To the new support, or, when anything goes wrong on the way, nothing at all."""
        now = self.contents
        aside = _still_unknown(now.unknown if unknown is None else unknown, support)
        changed = None if aside is not now.unknown else {support.names.index(name) for name in touched}
        before = carried_over(now.decision.left_out, now.support, support)
        enrolled = Enrolled(now.model, support, aside)
        contents = enrolled.settled(replace(now, unknown=aside), changed=changed, before=before)
        self.contents, self.enrolled = contents, enrolled
        findings = [each for each in advice(support, contents.decision) if not each.classes.isdisjoint(touched)]
        moved = threshold_moved(now.support.names, now.decision, support.names, contents.decision)
        if now.decision.measured.confirmed:
            moved.append(Finding.unconfirmed(len(now.decision.measured.confirmed)))
        by_hand = [Finding.by_hand(self.threshold.value)] if contents.decision.by_hand else []
        return [*findings, *moved, *by_hand]


def _unused(now: Contents) -> list[Finding]:
    """Known unknowns that change no answer."""
    nothing = now.unknown is not None and not now.model.head.takes_unknown and now.promise.with_unknown is None
    return [Finding.unknown_unused(now.model.name)] if nothing and now.decision.measured.left_out else []


def _taught(
    model: Model, shots: Mapping[str, int], bank: Bank, promise: Promise, probes: Probes
) -> tuple[Contents, Enrolled, list[Finding]]:
    """The photos of the classes come first in the bank; the rest are known unknowns."""
    n = sum(shots.values())
    support, doubles = without_duplicates(Support(tuple(shots), list(shots.values()), bank.rows(slice(n))))
    undecided = Decision(Threshold(math.inf, promise.target_rate, None, None, "none"))
    unknown = _aside(bank.rows(slice(n, None)), support)
    contents = Contents(model, support, unknown, promise, undecided, probes)
    return contents, Enrolled(model, support, unknown), doubles


def _aside(bank: Bank, support: Support) -> Bank | None:
    """Known unknowns, each once; one that is also a photo of a class is refused."""
    known = {photo.digest: name for name, own in support.classes.items() for photo in own.photos}
    rows: dict[str, int] = {}
    for i, photo in enumerate(bank.photos):
        if photo.digest in known:
            raise DataError(
                f"{photo.name} is a support photo of {known[photo.digest]!r} and cannot be unknown too; remove one of "
                "the two",
                code="photo-in-two-classes",
            )
        rows.setdefault(photo.digest, i)
    return bank.rows(list(rows.values())) if rows else None


def _still_unknown(aside: Bank | None, support: Support) -> Bank | None:
    """Known unknowns but for those that became photos of a class."""
    if aside is None:
        return None
    taught = {photo.digest for photo in support.photos}
    keep = [i for i, photo in enumerate(aside.photos) if photo.digest not in taught]
    if len(keep) == len(aside):
        return aside
    return aside.rows(keep) if keep else None


def find_model(source: ModelSource, *, score: str | None = None, device: str = "auto", threads: int = 0) -> Model:
    """A model in memory or in a file; of an encoder by its name that with the default head.

    ``device`` and ``threads`` as in ``Recognizer.load``.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if str(source) in ENCODERS or not path.exists() or is_encoder(path):
            return build_model(source, score=score, device=device, threads=threads)
        if is_converted(path):
            source = ConvertedModel.read(path)
        elif path.is_dir() or path.suffix == CHECKPOINT:
            raise RecipeError(
                f"{path} is a run or a checkpoint; `glocal convert {path} -o FILE` makes a model of it",
                code="not-converted",
            )
        else:
            source = read_contents(path, device=device, threads=threads).model
    if isinstance(source, ConvertedModel):
        return converted_model(source, score=score, device=device, threads=threads)
    model = source.contents.model if isinstance(source, Recognizer) else source
    if score not in (None, model.head.open_score):
        raise RecipeError(
            f"the open score of this model is {model.head.open_score!r} and cannot be changed to {score!r}"
        )
    return model


def _readable(answer: Prediction | Unreadable) -> Prediction:
    if isinstance(answer, Unreadable):
        raise DataError(f"cannot use picture {answer.path}: {answer.error}", code="bad-picture")
    return answer

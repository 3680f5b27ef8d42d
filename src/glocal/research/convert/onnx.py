"""``glocal export``: the same recognizer with ONNX graphs as its model, written only if it gives the same answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glocal.common.errors import RecipeError, WeightsError
from glocal.common.files import still_free
from glocal.recognizer.calibration.leave_one_out import Trials, leave_one_out, strangers
from glocal.recognizer.diagnosis.check import Check, check
from glocal.recognizer.encoder import Encoder
from glocal.recognizer.enrolled import TOLERANCE, Contents, Enrolled, relative
from glocal.recognizer.file import check_target, write_contents
from glocal.recognizer.model import EMBED, OnnxModel
from glocal.recognizer.photos.images import Pixels
from glocal.recognizer.photos.sources import Labelled, Picture, as_source, take
from glocal.recognizer.recognizer import Recognizer
from glocal.recognizer.support import UNKNOWN_NAME
from glocal.research.convert.precision import int8_layers
from glocal.research.convert.tracing import trace
from glocal.research.metrics.openset import auroc
from glocal.research.torch_model import TorchModel


@dataclass(frozen=True)
class Measured:
    """Share of known pictures named right, whatever the threshold, and how well unknown ones are told from them."""

    acc: float | None
    auroc: float | None  # None where there is nothing to tell apart


@dataclass(frozen=True)
class Agreement:
    """Two recognizers on the same pictures."""

    pictures: int
    same_label: int
    at_threshold: int  # of the others, those whose score is so near the threshold that rounding decides
    largest_difference: float  # of open scores, relative to max(1, |score|)


@dataclass(frozen=True)
class Exported:
    """What was found out on the way."""

    precision: str
    bytes: dict[str, int]  # of each graph
    difference: float  # of the probes' scores to those of the file, relative to max(1, |score|)
    measured_on: str = ""  # what the next three come from; "" when nothing was measured
    before: Measured | None = None  # the file
    after: Measured | None = None  # the export
    agreement: Agreement | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def export(
    recognizer: Recognizer,
    path: str | Path,
    *,
    int8: bool = False,
    labelled: Labelled | None = None,
    new: bool = False,
) -> Exported:
    """Write the file, or refuse when any score of a probe differs by more than 1e-4 * max(1, |score|).

    ``int8`` is exempt from that and measured instead: on ``labelled`` pictures, else on thumbnails of the support.
    With ``new`` no file is written over.
    """
    check_target(Path(path))
    source = recognizer.contents.model
    if not isinstance(source, TorchModel):
        raise RecipeError("this recognizer holds ONNX graphs already; export the file it was made from", code="is-onnx")
    _check_size(recognizer.contents, source)
    model = OnnxModel(
        source.name,
        source.method,
        source.open_score,
        source.min_way,
        source.preprocess,
        trace(source.model),
        source.takes_unknown,
    )
    exact = found = with_model(_scored_probes(recognizer), model)
    difference = _difference(exact)
    if not difference <= TOLERANCE:
        raise WeightsError(
            f"{path} is not written: the exported graphs score a probe picture {difference:.1e} away from the model, "
            f"more than {TOLERANCE:g} of its score; report this with the versions of torch and onnxruntime",
            code="other-answers",
        )
    if int8:
        small = int8_layers(model.graphs[EMBED], np.stack(_calibration_pictures(exact)))
        model = replace(model, graphs={**model.graphs, EMBED: small}, precision="int8")
        found = with_model(exact.contents, model)
        difference = _difference(found)
        found = with_model(_scored_probes(found), model)  # verified by its own scores
    report = Exported(model.precision, {name: len(data) for name, data in model.graphs.items()}, difference)
    if labelled is not None:
        theirs, ours = check(recognizer, labelled), check(found, labelled)
        report = replace(
            report,
            measured_on=f"{len(ours.pictures)} labelled pictures",
            before=measured(theirs),
            after=measured(ours),
            agreement=agreement(theirs, ours),
        )
    elif int8:
        report = replace(
            report,
            measured_on=f"thumbnails of the {len(found.contents.support.photos)} support photos, each without itself",
            before=_on_thumbnails(exact),
            after=_on_thumbnails(found),
        )
    contents = replace(found.contents, model=replace(model, report=report.to_json()))
    write_contents(Path(path), contents, is_current=still_free(Path(path)) if new else None)
    return report


def _check_size(contents: Contents, source: TorchModel) -> None:
    """Before the graphs are made and tried: of 50,000 photos that would take more memory than there is."""
    photos, most = len(contents.support.photos) + len(contents.unknown or ()), source.model.method.most_exported
    if most is not None and photos > most:
        raise RecipeError(
            f"an export of {source.method} is for at most {most} enrolled photos, and this recognizer has {photos}: "
            "beyond, classes are told apart in another way, which the graphs do not know; enroll fewer photos of each "
            "class, or with another model, such as photos-protonet",
            code="too-many-photos",
        )


def with_model(contents: Contents, model: OnnxModel) -> Recognizer:
    """The same classes and threshold under a model that makes the same views."""
    return Recognizer(
        replace(contents, model=model), Encoder(model), Enrolled(model, contents.support, contents.unknown)
    )


def measured(found: Check) -> Measured:
    """On class folders and ``unknown``."""
    known = [each.truth != UNKNOWN_NAME for each in found.pictures]
    scores = [each.answer.open_score for each in found.pictures]
    acc = found.named_right.value if any(known) else None
    return Measured(acc, auroc(scores, known) if 0 < sum(known) < len(known) else None)


def agreement(ours: Check, theirs: Check) -> Agreement:
    pairs = [(a.answer, b.answer) for a, b in zip(ours.pictures, theirs.pictures, strict=True)]
    others = [(a, b) for a, b in pairs if a.label != b.label]
    at = sum(relative(a.threshold, a.open_score) <= TOLERANCE for a, _ in others)
    largest = max((relative(a.open_score, b.open_score) for a, b in pairs), default=0.0)
    return Agreement(len(pairs), len(pairs) - len(others), at, largest)


def _on_thumbnails(recognizer: Recognizer) -> Measured:
    """Without labelled pictures: every support photo, as its thumbnail, asked of the classes without it; unknown are
    the photos of each class to the classes without it."""
    model, support = recognizer.contents.model, recognizer.contents.support
    views, label = support.views(), support.class_of
    asked = recognizer.encoder.embed(photo.thumbnail for photo in support.photos).full()
    trials = Trials(model, views, label, asked=asked)
    known, strange = leave_one_out(trials), [each.score for each in strangers(trials)]
    acc = float(np.mean([each.nearest == each.label for each in known])) if known else None
    scores = [each.score for each in known] + strange
    both = bool(known) and bool(strange)
    return Measured(acc, auroc(scores, [True] * len(known) + [False] * len(strange)) if both else None)


def _scored_probes(recognizer: Recognizer) -> Contents:
    """With the scores that the recognizer gives its probe pictures now."""
    contents = recognizer.contents
    found = recognizer.compare(recognizer.encoder.embed(contents.probes.images))
    return replace(contents, probes=contents.probes.scored(found))


def _difference(recognizer: Recognizer) -> float:
    return max((each.difference for each in recognizer.verify()), default=0.0)


def _calibration_pictures(recognizer: Recognizer) -> list[Pixels]:
    """What is left of the support photos, cut as the encoder wants them: the probes, and every thumbnail."""
    contents = recognizer.contents
    files = [*contents.probes.images, *(photo.thumbnail for photo in contents.support.photos)]
    taken = [take(as_source(each), contents.model.preprocess) for each in files]
    return [each.pixels for each in taken if isinstance(each, Picture)]

"""The answer about one picture, and why: in words, from the scores and where they usually lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glocal.common.markup import Html, rows_table, text
from glocal.recognizer.decision import Range
from glocal.recognizer.photos.boxes import Box

SHOWN = 5  # answers in a notebook
KINDS = {"E_c": "global", "E_f": "local"}  # what the parts of an open score look at


@dataclass(frozen=True)
class Prediction:
    """The answer about one picture: a class or "unknown", with the numbers and the reason behind it."""

    path: str
    label: str  # the class, or "unknown"
    is_unknown: bool
    open_score: float  # larger = more unknown
    threshold: float  # above it a picture is unknown
    probabilities: Mapping[str, float]  # of every class and of "unknown"; they add up to 1
    nearest: str  # the class it is most like, also when it is unknown
    reason: str
    warning: str = ""  # that it is (nearly) one of the support photos, of which an answer proves little
    box: Box | None = None  # of a region of a picture: x, y, width and height in pixels

    @property
    def probability(self) -> float:
        """Of the label."""
        return self.probabilities[self.label]

    def __repr__(self) -> str:
        near = f", nearest {self.nearest}" if self.is_unknown else ""
        return f"<Prediction {self.path}: {self.label}, {100 * self.probability:.0f} %{near}>"

    def _repr_html_(self) -> str:
        """For notebooks: the answer, the likeliest others, and why."""
        likely = sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:SHOWN]
        rows = [(name, f"{100 * share:.0f} %") for name, share in likely]
        head = Html(f"<p><strong>{text(self.label)}</strong> {text(self.path)}</p>")
        warned = f"<p>{text(self.warning)}</p>" if self.warning else ""
        return f"<div>{head}{rows_table(('answer', 'share'), rows)}<p>{text(self.reason)}</p>{warned}</div>"

    def to_json(self) -> dict[str, Any]:
        """Plain values; a threshold that calls nothing unknown is null, because JSON has no infinity."""
        finite = self.threshold if math.isfinite(self.threshold) else None
        box = None if self.box is None else list(self.box)
        return {**vars(self), "threshold": finite, "probabilities": dict(self.probabilities), "box": box}


@dataclass(frozen=True)
class Evidence:
    """What speaks for and against one answer."""

    nearest: str
    probability: float  # of the nearest class
    is_unknown: bool
    open_score: float
    threshold: float
    parts: Mapping[str, float]  # energies, larger = less alike
    patches: tuple[int, int] | None  # matching the nearest class, of how many


def reason(evidence: Evidence, usual: Mapping[str, Range]) -> str:
    """One line: "nearest class bolt (41 %), but local match is weak: 3 of 49 patches match (usually 20 to 45)"."""
    unknown, parts = evidence.is_unknown, evidence.parts
    head = f"{'nearest class ' if unknown else ''}{evidence.nearest} ({100 * evidence.probability:.0f} %)"
    judged = [name for name in parts if name in usual]
    weak = [name for name in judged if parts[name] > usual[name][1]]
    patches, few = _patches(evidence, usual)
    if weak:
        head += f", {'but' if unknown else 'though'} {' and '.join(KINDS[name] for name in weak)} match "
        head += f"{'are' if len(weak) > 1 else 'is'} weak{f': {patches}' if few and 'E_f' in weak else ''}"
    elif unknown:
        head += ", but it is not like it enough: "
        head += f"open score {evidence.open_score:.3g}, above the threshold {evidence.threshold:.3g}"
    else:
        head += f": {' and '.join(KINDS[name] for name in judged)} match as usual" if judged else ": it matches"
        head += f", {patches}" if patches and not few else ""
    if not parts and unknown:
        known = [f"known photos score {_span(usual['open_score'])}"] if "open_score" in usual else []
        return "; ".join([head, *known])
    numbers = [(name, f"{KINDS[name]} energy", value) for name, value in parts.items()]
    numbers = numbers or [("open_score", "open score", evidence.open_score)]
    ranges = {name: f" (usually {_span(range_)})" for name, range_ in usual.items()}
    return "; ".join([head, *(f"{what} {value:.3g}{ranges.get(name, '')}" for name, what, value in numbers)])


def _patches(evidence: Evidence, usual: Mapping[str, Range]) -> tuple[str, bool]:
    """The patches in words, and whether fewer match than usual.

    Only then do they speak for a weak match, and only then not for a good one.  A number without a range says nothing.
    """
    if evidence.patches is None or "patches" not in usual:
        return "", False
    (matched, total), (low, high) = evidence.patches, map(round, usual["patches"])
    range_ = f"{low} to {high}" if high > low else f"{low}"
    return f"{matched} of {total} patches match (usually {range_})", matched < low


def _span(range_: Range) -> str:
    return f"{range_[0]:.3g} to {range_[1]:.3g}"

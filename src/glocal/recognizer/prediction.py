"""The answer about one picture, and why: in words, from the scores and where they usually lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from glocal.common.markup import Html, rows_table, text
from glocal.recognizer.decision import Range

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
        return {**vars(self), "threshold": finite, "probabilities": dict(self.probabilities)}


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
    percent = f"{100 * evidence.probability:.0f} %"
    weak = [name for name, value in evidence.parts.items() if name in usual and value > usual[name][1]]
    head = f"{'nearest class ' if evidence.is_unknown else ''}{evidence.nearest} ({percent})"
    if weak:
        head += f", {'but' if evidence.is_unknown else 'though'} {_weak(weak, evidence, usual)}"
    elif evidence.is_unknown:
        numbers = f"open score {evidence.open_score:.3g}, above the threshold {evidence.threshold:.3g}"
        head += f", but it is not like it enough: {numbers}"
    else:
        head += f": {_good(evidence, usual)}"
    return "; ".join([head, *_details(evidence, usual)])


def _good(evidence: Evidence, usual: Mapping[str, Range]) -> str:
    judged = [KINDS[name] for name in evidence.parts if name in usual]
    match = f"{' and '.join(judged)} match as usual" if judged else "it matches"
    return f"{match}{'' if _few(evidence, usual) else _patches(evidence, usual, ', ')}"


def _weak(weak: list[str], evidence: Evidence, usual: Mapping[str, Range]) -> str:
    verb = "are" if len(weak) > 1 else "is"
    patches = _patches(evidence, usual, ": ") if "E_f" in weak and _few(evidence, usual) else ""
    return f"{' and '.join(KINDS[name] for name in weak)} match {verb} weak{patches}"


def _few(evidence: Evidence, usual: Mapping[str, Range]) -> bool:
    """Whether fewer patches match than usual: only then do they speak for a weak match, and only then not for a good
    one."""
    return evidence.patches is not None and "patches" in usual and evidence.patches[0] < round(usual["patches"][0])


def _patches(evidence: Evidence, usual: Mapping[str, Range], lead: str) -> str:
    if evidence.patches is None or "patches" not in usual:  # a number without a range says nothing
        return ""
    low, high = (round(end) for end in usual["patches"])
    range_ = f"{low} to {high}" if high > low else f"{low}"
    return f"{lead}{evidence.patches[0]} of {evidence.patches[1]} patches match (usually {range_})"


def _details(evidence: Evidence, usual: Mapping[str, Range]) -> list[str]:
    """Each energy against its usual range; for a method without parts that of the open score."""
    if evidence.parts:
        return [f"{KINDS[n]} energy {value:.3g}{_usually(usual.get(n))}" for n, value in evidence.parts.items()]
    if evidence.is_unknown:
        return [f"known photos score {_span(usual['open_score'])}"] if "open_score" in usual else []
    return [f"open score {evidence.open_score:.3g}{_usually(usual.get('open_score'))}"]


def _usually(range_: Range | None) -> str:
    return "" if range_ is None else f" (usually {_span(range_)})"


def _span(range_: Range) -> str:
    return f"{range_[0]:.3g} to {range_[1]:.3g}"

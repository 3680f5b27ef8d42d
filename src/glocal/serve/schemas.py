"""Requests and answers of the HTTP API, for OpenAPI and for programs that ask it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from glocal.recognizer.decision import LEAST_SHARE

Score = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]  # no open score is that far out
Share = Annotated[float, Field(ge=LEAST_SHARE, le=1 - LEAST_SHARE, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewThreshold(_In):
    """By hand (``value``), or for a target rate (any of the others; what is not given stays as it is)."""

    value: Score | None = None
    target_rate: Share | None = None
    with_unknown: Share | None = None  # what catching known unknowns may raise the share to


class Rename(_In):
    name: Name


class NameGroup(Rename):
    items: list[Digest] | None = Field(None, min_length=1, max_length=1000)


class Items(_In):
    items: list[Digest] = Field(min_length=1, max_length=1000)


class Correct(_In):
    class_: Name = Field(alias="class")


class ProblemBody(BaseModel):
    type: str
    title: str
    status: int
    detail: str
    code: str


class FindingBody(BaseModel):
    kind: str
    text: str
    classes: list[str]


class RateBody(BaseModel):
    k: int
    n: int
    value: float | None
    interval: tuple[float, float]


class OutlookBody(BaseModel):
    """What to expect of it; ``lines`` says the same to people."""

    named_right: RateBody | None
    named_right_expected: float | None
    false_unknown: float | None
    false_unknown_interval: tuple[float, float] | None
    caught: RateBody | None
    usable: bool | None
    verdict: str
    lines: list[str]


class ThresholdBody(BaseModel):
    value: float | None
    target_rate: float
    expected: float | None
    interval: tuple[float, float] | None
    source: str
    levels: list[float]
    warnings: list[str]
    n_scores: int
    spread: float | None


class Histogram(BaseModel):
    edges: list[float]
    support: list[int]
    recent: list[int]


class ThresholdView(ThresholdBody):
    with_unknown: float | None
    histogram: Histogram
    range: tuple[float, float]


class PhotoBody(BaseModel):
    id: str
    name: str
    thumbnail: str


class WouldChange(PhotoBody):
    from_: str = Field(alias="from")
    to: str


class ChangedBody(BaseModel):
    """``answers_changed`` are those of the ``n_recent`` recent photos whose answer is another one now."""

    version: int
    findings: list[FindingBody]
    message: str
    answers_changed: list[WouldChange]
    n_recent: int


class Preview(BaseModel):
    value: float | None
    expected_false_unknown: float | None
    would_change: list[WouldChange]
    n_recent: int
    support_rejected: int
    n_support: int


class ClassBody(BaseModel):
    name: str
    photos: list[PhotoBody]


class ClassCount(BaseModel):
    name: str
    n_photos: int


class LimitsBody(BaseModel):
    bytes: int
    request_bytes: int
    pixels: int
    images: int


class SeenBody(BaseModel):
    """What the model sees of a photo: the square in its middle."""

    pixels: int  # its side, when the model gets it
    share: float  # its side, of the short side of the photo


class State(BaseModel):
    version: int
    file: str
    sees: SeenBody | None
    example: bool
    can_undo: bool
    can_redo: bool
    undo_label: str | None
    redo_label: str | None
    model: str | None
    outlook: OutlookBody | None
    classes: list[ClassBody]
    known_unknowns: list[PhotoBody]
    findings: list[FindingBody]
    threshold: ThresholdBody | None
    limits: LimitsBody


class DecisionAnswer(BaseModel):
    label: str
    is_unknown: bool
    open_score: float
    threshold: float | None
    probabilities: dict[str, float]
    nearest: str
    reason: str
    warning: str


class Answer(DecisionAnswer):
    name: str
    ok: Literal[True]
    id: str | None


class NoAnswer(BaseModel):
    name: str
    ok: Literal[False]
    error: str


class AnswerList(BaseModel):
    version: int
    answers: list[Answer | NoAnswer]


class Mistake(DecisionAnswer):
    path: str
    truth: str


class UnreadableBody(BaseModel):
    path: str
    error: str


class TradedBody(BaseModel):
    """What a target rate leads to on labelled photos."""

    target: float
    threshold: float
    false_unknown: RateBody
    caught: RateBody


class CheckBody(BaseModel):
    """Of labelled photos; rates of several requests add up by their k and n."""

    version: int
    pictures: int
    accuracy: RateBody
    named_right: RateBody
    false_unknown: RateBody
    caught: RateBody
    trade_off: list[TradedBody]
    confusion: dict[str, dict[str, int]]
    worst: list[Mistake]
    not_enrolled: dict[str, str]
    unreadable: list[UnreadableBody]


class Item(PhotoBody):
    label: str
    is_unknown: bool
    open_score: float
    nearest: str
    probability: float
    enrolled: bool
    known_unknown: bool
    reason: str


class GroupBody(BaseModel):
    id: str
    n: int
    suggestion: str
    items: list[Item]


class Review(BaseModel):
    version: int
    drift: str  # a sentence while the share of unknowns is outside of the range that the target rate allows
    groups: list[GroupBody]
    next: list[Item]  # to label next, the most useful first
    recent: list[Item]


class Health(BaseModel):
    status: Literal["ok"]
    version: int
    classes: int
    model: str
    file: str
    uptime: float


STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503)


def problems() -> dict[int | str, dict[str, Any]]:
    """The errors that a request may meet."""
    content = {"application/problem+json": {"schema": ProblemBody.model_json_schema()}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in STATUSES}


def binary(kind: str) -> dict[int | str, dict[str, Any]]:
    """An answer that is a file."""
    return {200: {"description": "A file.", "content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}

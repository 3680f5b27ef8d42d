"""What goes over the wire, for OpenAPI and for whoever writes a client."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from glocal_runtime.threshold import LEAST_SHARE

Score = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]  # no open score is that far out
Share = Annotated[float, Field(ge=LEAST_SHARE, le=1 - LEAST_SHARE, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewThreshold(_In):
    """By hand (``value``) or for a promise (``max_false_unknown`` and ``per_class``)."""

    value: Score | None = None
    max_false_unknown: Share | None = None
    per_class: bool | None = None


class Rename(_In):
    name: Name


class NameGroup(Rename):
    items: list[Digest] | None = Field(None, min_length=1, max_length=1000)


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


class ChangedBody(BaseModel):
    version: int
    findings: list[FindingBody]
    message: str


class ThresholdBody(BaseModel):
    value: float | None
    max_false_unknown: float
    expected: float | None
    interval: tuple[float, float] | None
    source: str
    per_class: list[float] | None
    warnings: list[str]
    n_scores: int
    spread: float | None


class Histogram(BaseModel):
    edges: list[float]
    support: list[int]
    recent: list[int]


class ThresholdView(ThresholdBody):
    histogram: Histogram
    range: tuple[float, float]


class PhotoBody(BaseModel):
    id: str
    name: str
    thumbnail: str


class WouldChange(PhotoBody):
    from_: str = Field(alias="from")
    to: str


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


class State(BaseModel):
    version: int
    can_undo: bool
    can_redo: bool
    undo_label: str | None
    redo_label: str | None
    model: str | None
    classes: list[ClassBody]
    findings: list[FindingBody]
    threshold: ThresholdBody | None
    limits: LimitsBody


class Answer(BaseModel):
    name: str
    ok: Literal[True]
    id: str | None
    label: str
    is_unknown: bool
    open_score: float
    threshold: float | None
    probabilities: dict[str, float]
    nearest: str
    reason: str
    warning: str


class NoAnswer(BaseModel):
    name: str
    ok: Literal[False]
    error: str


class Answers(BaseModel):
    version: int
    answers: list[Answer | NoAnswer]


class Item(PhotoBody):
    label: str
    is_unknown: bool
    open_score: float
    nearest: str
    probability: float
    enrolled: bool
    reason: str


class GroupBody(BaseModel):
    id: str
    n: int
    suggestion: str
    items: list[Item]


class Review(BaseModel):
    version: int
    groups: list[GroupBody]
    recent: list[Item]


class Health(BaseModel):
    status: Literal["ok"]
    version: int
    classes: int
    model: str
    file: str
    uptime: float


def problems() -> dict[int | str, dict[str, Any]]:
    """The errors that a request may meet."""
    content = {"application/problem+json": {"schema": ProblemBody.model_json_schema()}}
    return {status: {"description": text, "content": content} for status, text in STATUSES.items()}


def binary(kind: str) -> dict[int | str, dict[str, Any]]:
    """An answer that is a file."""
    return {200: {"description": "A file.", "content": {kind: {"schema": {"type": "string", "format": "binary"}}}}}


STATUSES = {
    400: "The request cannot be read.",
    401: "A token is needed.",
    403: "Not from this page.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    409: "Another version than If-Match says, or no class yet.",
    413: "Too large, or too many pictures.",
    415: "Not a form with pictures.",
    422: "It does not make sense, or breaks a rule.",
    429: "Too much at once; Retry-After says when to come back.",
}

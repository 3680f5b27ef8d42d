"""Files that follow a pydantic model; what pydantic says about a wrong one becomes the end of a sentence here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from glocal.common.validation import shown

Model = TypeVar("Model", bound=BaseModel)


class Record(BaseModel):
    """A file, or a part of one: exactly its fields, of exactly their types, with finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def parsed(model: type[Model], content: str | bytes, refuse: Callable[[str], Exception]) -> Model:
    """The record in a JSON text; raises ``refuse(reason)`` when it is not one."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise refuse(sentence(error.errors(include_url=False)[0])) from error


def sentence(problem: Any) -> str:
    """One of pydantic's errors: where, which rule, what came."""
    place = ".".join(map(str, problem["loc"]))
    rule = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{place} is required and missing"
    if problem["type"] == "extra_forbidden":
        return f"{place} is unknown"
    return f"{place} {rule}, got {shown(problem['input'])}" if place else rule

"""Files that follow a pydantic model; what pydantic says about a wrong one becomes the end of a sentence here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

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
        raise refuse(reason(error)) from error


def reason(error: ValidationError) -> str:
    """The first thing that is wrong: where, which rule, what came."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    rule = first["msg"][:1].lower() + first["msg"][1:]
    return f"{place}: {rule}, got {shown(first['input'])}" if place else rule

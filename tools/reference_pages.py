"""Write ``docs/reference``: the command line, the recipes and the HTTP API, each from the code that answers for it.

    python tools/reference_pages.py docs/reference

Commands come from typer, keys of recipes from pydantic and the comments beside them, requests from OpenAPI.
``tests/unit/test_reference_pages.py`` fails while the pages are out of date.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from field_comments import comments_of
from glocal.common.files import write_text
from glocal.research import plugins
from glocal.research.engine.recipe import Component, Recipe, load_recipe, shipped_recipes

COMMAND = "python tools/reference_pages.py docs/reference"
BOUNDS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}


def pages() -> dict[str, str]:
    return {"cli.md": command_page(), "recipes.md": recipe_page(), "http.md": http_page()}


def _generated(instead: str) -> str:
    return f"<!-- Written by {COMMAND}; change {instead} instead. -->"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are Markdown already; a pipe in one would end it."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """One line, with what Markdown would read as HTML or emphasis made harmless outside of code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if i % 2 else re.sub(r"([<*_])", r"\\\1", part) for i, part in enumerate(parts))


# The command line


def command_page() -> str:
    """What typer writes of itself, under our head."""
    typer = [sys.executable, "-m", "typer", "glocal.cli.main", "utils", "docs", "--name", "glocal"]
    written = subprocess.run(typer, capture_output=True, text=True, check=True).stdout
    written = html.unescape(written.partition("\n\n")[2]).replace("```console\n$ ", "```text\n")
    parts = [
        "# Commands",
        _generated("the options in src/glocal/cli"),
        "Every command, its arguments and its options; `glocal COMMAND --help` says the same. "
        "[The walk](../walk.md) shows them in use.",
        "A mistake that you can mend ends with one sentence and exit code 2. When some pictures of many cannot be "
        "used, the exit code is 1.",
        written.replace("<class>", "&lt;class&gt;").strip(),
    ]
    return "\n\n".join(parts) + "\n"


# Recipes


def recipe_page() -> str:
    keys = comments_of(Recipe)
    top = {n: f for n, f in Recipe.model_fields.items() if _section(f.annotation) is None}
    parts = [
        "# Recipes",
        _generated("src/glocal/research/engine/recipe.py"),
        "A training stage is a TOML file of these keys. What they are for: [training](../research.md#train). "
        "An unknown key, a wrong type and a value out of bounds are refused with a sentence.",
        "`extends` names another recipe, shipped or by path from where the file lies, and the file then has only what "
        "differs. On the command line `--set optimizer.lr=0.05` overrides one key.",
        "## At the top",
        _keys(top, keys),
    ]
    for name, field in Recipe.model_fields.items():
        section = _section(field.annotation)
        if section is Component:
            said = keys.get(name, "")
            parts += [f"## [{name}]", _plain(said[:1].upper() + said[1:] + "." if said else "")]
            own = "its page in [Methods](../methods/README.md)" if name == "method" else "[Backbones](backbones.md)"
            parts += [f"`name`, one of `glocal list`, and the keyword arguments of that class: see {own}."]
        elif section is not None:
            parts += [f"## [{name}]", _doc(section), _keys(section.model_fields, comments_of(section))]
    parts += ["## Recipes in the box", _table(["Name", "Stage", "What its file says of itself"], list(_shipped()))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(annotation: Any) -> type[BaseModel] | None:
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel):
            return each
    return None


def _doc(section: type[BaseModel]) -> str:
    own = section.__dict__.get("__doc__") or ""
    return _plain(own)


def _keys(fields: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    rows = []
    for name, field in fields.items():
        if field.default is PydanticUndefined:
            value = "required"
        else:
            value = "nothing" if field.default is None else f"`{_toml(field.default)}`"
        bounds = [BOUNDS[k].format(_number(v)) for m in field.metadata for k, v in _bounds(m)]
        kind = "; ".join([_kind(field.annotation), *([" and ".join(bounds)] if bounds else [])])
        rows.append([f"`{name}`", kind, value, _plain(comments.get(name, ""))])
    return _table(["Key", "Value", "Default", "What"], rows)


def _bounds(metadata: Any) -> list[tuple[str, Any]]:
    return [(k, getattr(metadata, k)) for k in BOUNDS if getattr(metadata, k, None) is not None]


def _number(value: float) -> str:
    return f"{value:g}"


def _toml(value: Any) -> str:
    return json.dumps(value if not isinstance(value, tuple) else list(value))


def _kind(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [BOUNDS[k].format(_number(v)) for m in inner[1:] for each in _flat(m) for k, v in _bounds(each)]
        return _kind(inner[0]) + (f" {' and '.join(bounds)}" if bounds else "")
    if origin is Literal:
        return " or ".join(f'`"{each}"`' for each in inner)
    if origin in (Union, UnionType):
        return " or ".join(_kind(each) for each in inner if each is not NoneType)
    if origin is tuple:
        return f"list of {_kind(inner[0])}"
    return {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}[annotation]


def _flat(metadata: Any) -> list[Any]:
    return [metadata, *getattr(metadata, "metadata", [])]


def _shipped() -> Iterator[list[str]]:
    for name in shipped_recipes():
        origin, path = plugins.recipes()[name]
        if origin == "glocal":
            text = path.read_text("utf-8")
            said = " ".join(line.removeprefix("#").strip() for line in re.match(r"(?:#.*\n)*", text)[0].splitlines())
            stage = tomllib.loads(text).get("stage") or load_recipe(name, ["init='...'"]).stage
            yield [f"`{name}`", stage, _plain(said)]


# The HTTP API


def http_page() -> str:
    schema = openapi()
    models = schema["components"]["schemas"]
    parts = [
        "# HTTP API",
        _generated("src/glocal/serve/routes.py or schemas.py"),
        "What `glocal serve` answers. [Serve the page and the API](../how-to/serve.md) explains it with examples; the "
        "running server has the same as `GET /openapi.json`.",
        "Every problem is `application/problem+json` with `detail`, a sentence, and `code`, which stays the same when "
        "the sentence is reworded. Any request can end with 401 (no token), 403 (a foreign host or page), 413 (too "
        "much) or 429 (busy; `Retry-After` says when to come back).",
    ]
    for path, verbs in schema["paths"].items():
        for verb, about in verbs.items():
            parts.append(f"## {verb.upper()} {path}")
            parts.append(_plain(about.get("description") or ""))
            parts += [*_request(about), _answer(about)]
    parts += ["## Bodies", "Fields marked * are always there."]
    for name in sorted(models):
        parts += [f"### {name}", _plain(models[name].get("description", "")), _fields(models[name])]
    return "\n\n".join(part for part in parts if part) + "\n"


def openapi() -> dict[str, Any]:
    """Of a server with a new file."""
    from glocal.serve.app import create_app
    from glocal.serve.security import Settings
    from glocal.serve.workspace import Workspace

    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder) / "new.glocal", model="fast", device="cpu")
        try:
            return create_app(workspace, Settings()).openapi()
        finally:
            workspace.close()


def _request(about: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        [f"`{each['name']}`", each["in"], _type(each["schema"]) + ("" if each.get("required") else "; may be left out")]
        for each in about.get("parameters", [])
    ]
    if rows:
        yield _table(["Parameter", "In", "Value"], rows)
    for kind, body in about.get("requestBody", {}).get("content", {}).items():
        form = kind == "multipart/form-data"
        yield f"Body: `{kind}`." if form else f"Body: `{kind}`, {_type(body['schema'])}."
        yield _fields(body["schema"]) if form else ""


def _answer(about: Mapping[str, Any]) -> str:
    status, answer = next((status, each) for status, each in about["responses"].items() if status.startswith("2"))
    bodies = {kind: body.get("schema", {}) for kind, body in answer.get("content", {}).items()}
    kinds = [f"`{kind}`" + (f", {_type(schema)}" if "$ref" in schema else "") for kind, schema in bodies.items()]
    return f"Answer {status}: {' or '.join(kinds) or 'nothing'}."


def _fields(schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", [])
    rows = [
        [f"`{name}`{'*' if name in needed else ''}", _type(field), _plain(field.get("description", ""))]
        for name, field in schema.get("properties", {}).items()
    ]
    if not any(row[2] for row in rows):
        return _table(["Field", "Value"], [row[:2] for row in rows]) if rows else ""
    return _table(["Field", "Value", "What"], rows)


def _type(schema: Mapping[str, Any]) -> str:
    """In words: "number, at least 0", "list of [ClassBody](#classbody)", "text or null"."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"table of {_type(schema['additionalProperties'])}"
    if schema.get("format") == "binary" or "contentMediaType" in schema:
        return "file"
    words = {"string": "text", "integer": "whole number", "boolean": "true or false", "object": "table"}
    name = words.get(str(kind), str(kind or "anything"))
    bounds = [
        f"{told} {_number(schema[key])}"
        for key, told in (("minimum", "at least"), ("maximum", "at most"))
        if key in schema
    ]
    return ", ".join([name, *bounds])


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(f"usage: {COMMAND}", file=sys.stderr)
        return 2
    for name, text in pages().items():
        write_text(Path(arguments[0]) / name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

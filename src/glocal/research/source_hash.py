"""Hash of the source code that computes something: what is kept on disk under it is computed again after an edit."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

FORMULAS = tuple(f"research.{name}" for name in ("ops", "metrics", "methods", "backbones", "types"))  # compute numbers


def source_hash(values: Iterable[Any]) -> str:
    """Of the files that these modules (of a network) and functions are written in, and of the files those import.

    Packages of a plugin count like our own; torch and timm do not.
    """
    packages, waiting = set[str](), set[str]()
    for value in values:
        named = value if hasattr(value, "__qualname__") else type(value)  # a function or class has a module itself
        packages.add(named.__module__.partition(".")[0])
        parts = [type(part) for part in value.modules()] if hasattr(value, "modules") else [named]
        waiting |= {kind.__module__ for part in parts for kind in getattr(part, "__mro__", [part])}
    sources: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        top, _, rest = name.partition(".")
        if name in sources or top not in packages or (top == "glocal" and not rest.startswith(FORMULAS)):
            continue
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and Path(file).is_file():
            stat = Path(file).stat()
            sources[name], imported = _source(name, Path(file), stat.st_mtime_ns, stat.st_size)
            waiting |= imported
    return hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=1000)
def _source(module: str, file: Path, mtime_ns: int, size: int) -> tuple[str, frozenset[str]]:
    """The hash of a source file, and the names of the modules it imports and of what may be a module.

    What is imported for a type checker alone computes nothing, and is there in some processes and not in others.
    """
    source, names = file.read_bytes(), set[str]()
    parents = module.split(".") if file.stem == "__init__" else module.split(".")[:-1]
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return hashlib.sha256(source).hexdigest(), frozenset(names)

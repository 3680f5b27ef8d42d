"""What is in the box, and what is in the cache."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from glocal.cli.console import Json, show


def inventory(json: Json = False) -> None:
    """List methods, backbones, datasets, recipes and shipped models."""
    from glocal.backbones import BACKBONES
    from glocal.data import DATASETS
    from glocal.engine.checkpoint import shipped_models
    from glocal.engine.recipe import shipped_recipes
    from glocal.methods import METHODS

    found = {
        "methods": sorted(METHODS),
        "backbones": sorted(BACKBONES),
        "datasets": sorted(DATASETS),
        "recipes": shipped_recipes(),
        "models": list(shipped_models()),
    }
    show(found, as_json=json, otherwise=lambda: _listing(found))


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all feature banks; they are built again.")] = False,
    json: Json = False,
) -> None:
    """Show where maps of encoded pictures are kept and how much room they take."""
    from glocal.data.cache import cache_dir
    from glocal.data.features import bank_sizes, clear_banks

    if clear:
        clear_banks()
    sizes = bank_sizes()
    total = sum(sizes.values())
    show(
        {"folder": str(cache_dir()), "banks": len(sizes), "bytes": total},
        as_json=json,
        otherwise=lambda: f"{len(sizes)} feature banks, {total / 2**20:.1f} MiB, in {cache_dir()}",
    )


def _listing(found: dict[str, list[str]]) -> Any:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for kind, names in found.items():
        table.add_row(kind, ", ".join(names))
    return table

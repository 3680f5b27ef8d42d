"""What is in the box, and what is in the cache."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from glocal.cli.console import Json, show


def inventory(json: Json = False) -> None:
    """List methods, backbones, data sets, metrics, recipes and shipped models; what a plugin brings with its origin."""
    from glocal import plugins
    from glocal.engine.checkpoint import shipped_models
    from glocal.engine.recipe import shipped_recipes

    found: dict[str, list[str]] = {}
    origins: dict[str, dict[str, str]] = {}
    for kind, registry in _registries().items():
        plugins.load_all(f"glocal.{kind}", registry)
        found[kind] = sorted(registry)
        origins[kind] = {name: plugins.origin(f"glocal.{kind}", name, registry[name]) for name in found[kind]}
    found |= {"recipes": shipped_recipes(), "models": list(shipped_models())}
    origins["recipes"] = plugins.recipe_origins()
    from_plugins = {kind: {name: origin for name, origin in names.items() if origin} for kind, names in origins.items()}
    show(found | {"plugins": from_plugins}, as_json=json, otherwise=lambda: _listing(found, from_plugins))


def _registries() -> dict[str, dict[str, Any]]:
    from glocal.backbones import BACKBONES
    from glocal.data import DATASETS
    from glocal.methods import METHODS
    from glocal.metrics import METRICS

    return {"methods": METHODS, "backbones": BACKBONES, "datasets": DATASETS, "metrics": METRICS}


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all feature banks; they are built again.")] = False,
    json: Json = False,
) -> None:
    """Show where maps of encoded pictures are kept and how much room they take."""
    from glocal.data.cache import bank_sizes, cache_dir, clear_banks

    if clear:
        clear_banks()
    sizes = bank_sizes()
    total = sum(sizes.values())
    show(
        {"folder": str(cache_dir()), "banks": len(sizes), "bytes": total},
        as_json=json,
        otherwise=lambda: f"{len(sizes)} feature banks, {total / 2**20:.1f} MiB, in {cache_dir()}",
    )


def _listing(found: dict[str, list[str]], from_plugins: dict[str, dict[str, str]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for kind, names in found.items():
        origins = from_plugins.get(kind, {})
        shown = (f"{name} (from {origins[name]})" if name in origins else name for name in names)
        table.add_row(kind, escape(", ".join(shown)))
    return table

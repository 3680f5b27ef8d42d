"""What the last digits of a training depend on beside its recipe: the order in which this machine adds up numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from glocal.engine.distributed import world

TITLES = {
    "threads": "threads",
    "processes": "processes",
    "cpu": "CPU features",
    "torch": "torch",
    "build": "build of torch",
    "device": "device",
}


def machine(device: torch.device | str | None = None, threads: int | None = None) -> dict[str, Any]:
    """No name of a machine or path is in it.  ``threads``: those that a recipe names."""
    where = torch.device(device or "cpu")
    named = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    return {
        "threads": threads or torch.get_num_threads(),
        "processes": world().size,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "torch": str(torch.__version__),
        "build": hashlib.sha256(torch.__config__.show().encode()).hexdigest()[:12],
        "device": named,
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In a few words each: what was otherwise, as far as it was recorded."""
    return [
        f"{title} {before[key]} instead of {now[key]}"
        for key, title in TITLES.items()
        if key in before and before[key] != now.get(key)
    ]


def text(found: Mapping[str, Any]) -> str:
    return f"{found['device']}, {found['threads']} threads, {found['cpu']}, torch {found['torch']} ({found['build']})"

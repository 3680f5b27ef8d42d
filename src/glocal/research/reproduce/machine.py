"""What the last digits of a training depend on beside its recipe: the order in which this machine adds up numbers."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from typing import Any

import torch

from glocal.research.engine.distributed import world
from glocal.research.same_sums import as_words, sums_alike

ALIKE, OWN = "alike on all processors", "in the order of the device"

TITLES = {
    "threads": "threads",
    "processes": "processes",
    "processor": "processor",
    "cpu": "CPU features",
    "sums": "sums",
    "torch": "torch",
    "compiled": "build of torch",
    "device": "device",
}


def machine(device: torch.device | str | None = None, threads: int | None = None) -> dict[str, Any]:
    """No name of a machine or path is in it.  ``threads``: those that a recipe names."""
    where = torch.device(device or "cpu")
    named = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    return {
        "threads": threads or torch.get_num_threads(),
        "processes": world().size,
        "processor": _processor(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "sums": ALIKE if where.type == "cpu" and sums_alike() else OWN,
        "torch": str(torch.__version__),
        "compiled": _compiled(),
        "device": named,
    }


def _processor() -> str:
    """By the name it has: with equal features MKL sums in another order on another maker's."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.7 has none
    return str(known.get("cpu_name") or platform.processor() or platform.machine())


def _compiled() -> str:
    """What torch was built of and how, without the line about the processor that it runs on now."""
    lines = [line for line in torch.__config__.show().splitlines() if "CPU capability usage" not in line]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In a few words each: what was otherwise, as far as it was recorded and can move a digit."""
    if not before:
        return []
    before, now = ({"sums": OWN, **each} for each in (before, now))  # as all were before it was recorded
    alike = before.get("sums") == now.get("sums") == ALIKE
    return [
        f"{title} {before[key]} instead of {now[key]}"
        for key, title in TITLES.items()
        if key in before and before[key] != now.get(key) and not (alike and key == "processor")
    ]


def way_back(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """A sentence: how this processor computes as the one of ``before`` did, where it can."""
    if before.get("sums") != ALIKE or now.get("sums") == ALIKE:
        return ""
    return f"With {as_words()} before the command a processor with AVX2 or more sums in that order, too."


def text(found: Mapping[str, Any]) -> str:
    threads = f"{found['threads']} thread{'s' if found['threads'] != 1 else ''}"
    processor, torch_ = f"{found['processor']} with {found['cpu']}", f"torch {found['torch']} ({found['compiled']})"
    return f"{found['device']}, {threads}, {processor}, sums {found['sums']}, {torch_}"

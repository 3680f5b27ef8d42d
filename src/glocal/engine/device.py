"""Where to compute."""

from __future__ import annotations

import torch

from glocal_runtime.errors import RecipeError


def pick_device(name: str = "auto") -> torch.device:
    """``auto`` takes CUDA, then Apple's MPS, then the CPU; a device asked for by name must be there."""
    there = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available()), "cpu": 1}
    if name == "auto":
        return torch.device(next(device for device, count in there.items() if count))
    kind, _, index = name.partition(":")
    if kind not in there or (index and not index.isdecimal()) or name.endswith(":"):
        raise RecipeError(f"device must be auto, cpu, cuda or mps, or one of several such as cuda:1, got {name!r}")
    if int(index or 0) >= there[kind]:
        usable = ", ".join(f"{device} ({count})" for device, count in there.items() if count)
        raise RecipeError(f"device {name} is not available on this machine; usable here: {usable}")
    return torch.device(name)

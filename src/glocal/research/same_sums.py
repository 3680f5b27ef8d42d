"""One order of summation on every x86 processor with AVX2, on Linux: a training comes out the same on each of them.

The libraries under torch take what the processor has: AVX-512 adds up sixteen numbers at a time where AVX2 adds up
eight, and MKL has another order for each maker's.  A first rounding error grows ten thousand times within twenty steps
of a small training, so all of that shows in a table.  Told by three variables, each keeps to what all have.  They read
them when they start, so this imports no torch.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

ORDER = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "COMPATIBLE"}
CPU = Path("/proc/cpuinfo")


def sum_alike(cpu: Path = CPU) -> bool:
    """Whether all sums of this process are taken in that order from now on.

    Not where torch has started already, where the processor has no AVX2 (torch would not ask again before it uses it)
    or is not known, nor where the user told one of the libraries something else.
    """
    if not sums_alike(cpu):
        told_otherwise = any(os.environ.get(name, value) != value for name, value in ORDER.items())
        if "torch" in sys.modules or told_otherwise or not _has_avx2(cpu):
            return False
        os.environ.update(ORDER)
    return True


def sums_alike(cpu: Path = CPU) -> bool:
    """Whether this process was told so, by itself or from outside."""
    return all(os.environ.get(name) == value for name, value in ORDER.items()) and _has_avx2(cpu)


def as_words() -> str:
    """To be put before a command."""
    return " ".join(f"{name}={value}" for name, value in ORDER.items())


def _has_avx2(cpu: Path) -> bool:
    return platform.machine() == "x86_64" and cpu.exists() and "avx2" in cpu.read_text().split()

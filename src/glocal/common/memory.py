"""Memory that is given back is fetched again a moment later: a network frees and asks for the same blocks per batch.

The C library returns each large block to the kernel, which fills it with zeros before it hands it out again.  On a CPU
that was 40 % of the time of `glocal predict`; told to keep what is freed, it is gone.
"""

from __future__ import annotations

import ctypes
import os

KEPT = 1 << 30  # bytes: a larger block, or that much free at the end, still goes back
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_OWN_WORD = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")  # who sets one of these has decided otherwise


def keep_freed_memory() -> bool:
    """Tell the allocator of this process; False where it is another one than glibc's, or the user told it something."""
    if any(name.startswith(_OWN_WORD) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, Windows, musl
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT) and mallopt(_TRIM_THRESHOLD, KEPT))

"""What is freed is kept, seen from the kernel: its page faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from glocal.common.memory import keep_freed_memory
if "keep" in sys.argv:
    print(keep_freed_memory())
for _ in range(2):
    np.ones(1 << 23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(1 << 23)  # 64 MiB: 16,384 pages
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(*words: str, **environment: str) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "LD_PRELOAD"))}
    command = [sys.executable, "-c", SCRIPT, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=clean | environment).stdout.split()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is asked")
def test_blocks_are_not_fetched_again() -> None:
    [plain] = run()
    done, kept = run("keep")
    if done == "False":
        pytest.skip("the C library here is not glibc")
    assert int(kept) < int(plain) / 10


def test_the_users_own_setting_stands() -> None:
    assert run("keep", MALLOC_ARENA_MAX="2")[0] == "False"

"""Files that somebody made to do harm, or that came to harm: name of the file -> a function that writes it to a path.

``WORDS`` has what the refusal of each must say, as a pattern.  Files that would run a program make a folder ``RAN``
beside themselves.  ``hostile_archives``, ``hostile_arrays`` and ``hostile_pickles`` enter theirs when imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RAN = "ran"
HOSTILE: dict[str, Callable[[Path], None]] = {}
WORDS: dict[str, str] = {}
PIXELS = np.arange(2 * 8 * 8 * 3, dtype=np.uint8).reshape(2, 8, 8, 3)
_Writer = Callable[[Path], None]


def hostile(name: str, words: str) -> Callable[[_Writer], _Writer]:
    def enter(write: _Writer) -> _Writer:
        HOSTILE[name], WORDS[name] = write, words
        return write

    return enter


class Runs:
    def __init__(self, path: Path) -> None:
        self.target = str(path.with_name(RAN))

    def __reduce__(self) -> Any:
        return os.mkdir, (self.target,)

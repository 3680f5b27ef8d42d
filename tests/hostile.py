"""Files and folders that somebody made to do harm, or that came to harm: what ``glocal data prepare`` must refuse.

``KINDS`` has kind -> label -> input.  An input writes itself below a folder and returns the path to pass to ``--from``.
Single files are ``HOSTILE`` too, by name; those that would run a program make a folder ``RAN`` beside themselves.
``hostile_archives``, ``hostile_arrays``, ``hostile_files``, ``hostile_packings`` and ``hostile_pickles`` enter theirs
when imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RAN = "ran"
PIXELS = np.arange(2 * 8 * 8 * 3, dtype=np.uint8).reshape(2, 8, 8, 3)
Write = Callable[[Path], Path]


class Input(NamedTuple):
    write: Write
    words: str  # a pattern in the refusal
    name: str  # of the data set
    shares: str


KINDS: dict[str, dict[str, Input]] = {}
HOSTILE: dict[str, Callable[[Path], object]] = {}


def hostile_inputs(kind: str, *cases: tuple[str, str, Write], name: str = "mine", shares: str = "1,0,0") -> None:
    """Cases of (label, words, write); ``shares`` that put every class into train let only the fault be refused."""
    inputs = KINDS.setdefault(kind, {})
    for label, words, write in cases:
        assert label not in inputs, (kind, label)
        inputs[label] = Input(write, words, name, shares)


def hostile(name: str, words: str, *, beside: Callable[[Path], object] = lambda folder: None, given: str = "") -> Any:
    """Enter a file, perhaps with others ``beside`` it; ``given`` is what to pass on in place of it."""

    def enter(write: Callable[[Path], object]) -> None:
        def written(root: Path) -> Path:
            root.mkdir(parents=True)
            write(root / name)
            beside(root)
            return root / (given or name)

        HOSTILE[name] = write
        hostile_inputs(name.partition(".")[2], (name, words, written))

    return enter


class Runs:
    def __init__(self, path: Path) -> None:
        self.target = str(path.with_name(RAN))

    def __reduce__(self) -> Any:
        return os.mkdir, (self.target,)

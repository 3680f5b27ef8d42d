"""``glocal data prepare`` on what people made to do harm, or that came to harm: refused, and nothing is left behind."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

# Importing them enters their inputs.
import hostile_archives  # noqa: F401
import hostile_arrays  # noqa: F401
import hostile_files  # noqa: F401
import hostile_packings  # noqa: F401
import hostile_pickles  # noqa: F401
from hostile import KINDS, RAN


def test_there_are_many_of_many_kinds() -> None:
    assert len(KINDS) >= 20
    assert sum(map(len, KINDS.values())) >= 200


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_in_one_sentence_and_nothing_is_left(
    glocal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    scratch = tmp_path / "scratch"  # where the program may put what it needs for a while
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    for i, (label, case) in enumerate(KINDS[kind].items()):
        source, home = case.write(tmp_path / f"{i}" / "in"), tmp_path / f"{i}" / "home"
        home.mkdir(parents=True)
        command = ("data", "prepare", case.name, "--from", source, "--out", home / "out", "--shares", case.shares)
        code, out, err = glocal(*command)
        assert (code, out, err.count("\n"), err[:8]) == (2, "", 1, "glocal: "), (label, out, err)
        assert re.search(case.words, err[:-1]), (label, err)
        assert len(err) < 500 + 2 * len(str(source))
        assert not [*home.iterdir(), *scratch.iterdir(), *tmp_path.rglob(RAN)], label

"""``glocal data prepare`` on what people made to do harm, or that came to harm: refused, and nothing is left behind."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

# Importing them enters their inputs.
import hostile_files  # noqa: F401
import hostile_packings  # noqa: F401
from fuzzed import FORMS, UNCHECKED, change_bytes
from glocal.data.prepared import read_index
from hostile import RAN
from hostile_inputs import KINDS, Input

ROUNDS = 12  # of fuzzing, for each form


def test_there_are_many_of_many_kinds() -> None:
    assert len(KINDS) >= 25
    assert sum(map(len, KINDS.values())) >= 200


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program may put what it needs for a while."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_refused_in_one_sentence_and_nothing_is_left(
    glocal: Any, tmp_path: Path, scratch: Path, kind: str
) -> None:
    for i, (label, case) in enumerate(KINDS[kind].items()):
        told = refusal(glocal, tmp_path / f"{i}", case)
        assert re.search(case.words, told), (label, told)
        assert not [*scratch.iterdir()], label
        assert not [*tmp_path.rglob(RAN)], label


def refusal(glocal: Any, root: Path, case: Input) -> str:
    """The one line that the command says, with nothing written."""
    source, home = case.write(root / "in"), root / "home"
    home.mkdir(parents=True)
    command = ("data", "prepare", case.name, "--from", source, "--out", home / "out", "--shares", case.shares)
    code, out, err = glocal(*command)
    assert (code, out, err.count("\n")) == (2, "", 1), (source, out, err)
    assert err.startswith("glocal: ")
    assert len(err) < 500 + 2 * len(str(source))
    assert [*home.iterdir()] == []
    return err[:-1]


@pytest.mark.parametrize("form", FORMS)
def test_a_changed_file_is_refused_or_gives_what_it_says(glocal: Any, tmp_path: Path, scratch: Path, form: str) -> None:
    outcomes = set()
    for seed in range(ROUNDS):
        home, out = tmp_path / f"{seed}", tmp_path / f"{seed}" / "home" / "out"
        source = FORMS[form].write(home / "in")
        change_bytes(source / FORMS[form].file, seed)
        out.parent.mkdir()
        code, _, err = glocal("data", "prepare", "mine", "--from", source, "--out", out, "--shares", "1,0,0")
        outcomes.add(code)
        if code == 0:
            manifest = FORMS[form].manifest(source / FORMS[form].file)
            assert manifest in (None, read_index(out).splits["train"].manifest), seed
        else:
            assert (code, err.count("\n"), err[:8]) == (2, 1, "glocal: "), (seed, err)
            assert [*out.parent.iterdir()] == [], seed
        assert not [*scratch.iterdir()], seed
    assert outcomes >= ({0, 2} if form in UNCHECKED else {2})

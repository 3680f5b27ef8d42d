"""Embedded data: what may be a class, that the fonts really draw it, and that the same seed gives the same pixels."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from matplotlib.ft2font import FT2Font
from sklearn.datasets import load_digits

from glocal.research.data.embedded import TRAIN_SCRIPTS, VAL_SCRIPTS, alphabet, draw, fonts, render, write
from refusal import refused

DIGITS = "0123456789"


def classes_by_font():
    for number in range(len(fonts())):
        yield number, "".join(glyph.character for glyph in alphabet() if number in glyph.fonts)


def test_there_are_hundreds_of_classes_from_many_scripts_and_none_is_a_number():
    train = [glyph for glyph in alphabet() if glyph.script in TRAIN_SCRIPTS]
    val = [glyph for glyph in alphabet() if glyph.script in VAL_SCRIPTS]
    assert len(train) >= 270
    assert len(val) >= 40
    assert len({glyph.script for glyph in train}) >= 8
    assert all(len(glyph.fonts) >= 2 for glyph in alphabet())
    assert {number for glyph in train for number in glyph.fonts} == set(range(len(fonts())))
    assert len({glyph.character for glyph in alphabet()}) == len(train) + len(val) == len(alphabet())
    for glyph in alphabet():
        assert unicodedata.numeric(glyph.character, None) is None, glyph
        assert unicodedata.category(glyph.character)[0] in "LS", glyph
        assert not unicodedata.decomposition(glyph.character), glyph


def test_every_glyph_is_really_in_its_font():
    for number, characters in classes_by_font():
        font = FT2Font(str(fonts()[number].path))
        missing = draw("\U0010ffff", number)  # a noncharacter: no font has it, this is what .notdef looks like
        for character in characters:
            assert font.get_char_index(ord(character)) != 0, (fonts()[number].name, character)
            ink = draw(character, number)
            assert ink.max() > 128, (fonts()[number].name, character)
            assert not np.array_equal(ink, missing), (fonts()[number].name, character)


def test_same_seed_same_pixels_whoever_asks_for_how_many():
    glyph = alphabet()[0]
    three, seven = write(glyph, 3, seed=5), write(glyph, 7, seed=5)
    assert np.array_equal(three, seven[:3])
    assert not np.array_equal(three, write(glyph, 3, seed=6))
    assert len({image.tobytes() for image in seven}) == 7


def test_drawn_twice_and_read_from_the_cache(own_cache: Path):
    first = render("val", per_class=2)
    [kept] = (own_cache / "embedded").iterdir()
    made = kept.stat()
    again = render("val", per_class=2)
    assert kept.stat().st_mtime_ns == made.st_mtime_ns, "read and not drawn again"
    assert np.array_equal(first.images, again.images)
    assert np.array_equal(first.labels, again.labels)
    assert first.class_names == again.class_names
    kept.write_bytes(kept.read_bytes()[:1000])
    mended = render("val", per_class=2)
    assert np.array_equal(first.images, mended.images)
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_a_folder_that_cannot_be_written_and_what_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("GLOCAL_CACHE", str(file))
    assert len(render("val", per_class=1).images) >= 40
    with refused("data", "train, val and test, got 'dev'"):
        render("dev")
    with refused("data", "at least 1 image, got 0"):
        render("train", per_class=0)


def test_test_classes_are_the_digits_of_scikit_learn():
    test, digits = render("test"), load_digits()
    assert test.images.shape == (1797, 32, 32, 3)
    assert np.array_equal(test.labels, digits.target)
    assert test.class_names == tuple(DIGITS)
    blocks = test.images[..., 0].reshape(1797, 8, 4, 8, 4).mean((2, 4)) / 255
    assert np.corrcoef(blocks.ravel(), digits.images.ravel())[0, 1] > 0.98
    assert test.images.max() == 255
    assert test.images.min() == 0

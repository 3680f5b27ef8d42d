"""FeatureBank when files are damaged or foreign, the disk is full, or a picture goes bad."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from banks import BATCH, Doubling, N, by_hand, dataset, folder_of
from glocal.data.cache import clear_banks
from glocal.data.dataset import ClassDataset
from glocal.data.features import BankFiles, FeatureBank
from pictures import png, write_tree
from refusal import refused

RED = np.full((8, 8, 3), (255, 0, 0), np.uint8)


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., FeatureBank]:
    def with_defaults(encoder: Any, data: ClassDataset, **how: Any) -> FeatureBank:
        return FeatureBank.build(encoder, data, **({"folder": tmp_path / "banks", "batch_size": BATCH} | how))

    return with_defaults


def flip_bit(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, tuple[Callable[[Path], Any], int]] = {  # what happens to the folder -> images to encode again
    "nothing": (lambda home: None, 0),
    "one bit of one map": (lambda home: flip_bit(home / "maps.bin", 5 * 6 * 8 * 8 * 4 + 100), 1),
    "one bit of one checksum": (lambda home: flip_bit(home / "sums.bin", 4 * 7), 1),
    "maps cut short": (lambda home: os.truncate(home / "maps.bin", 1000), N),
    "maps too long": (lambda home: os.truncate(home / "maps.bin", 10**6), N),
    "maps all zero": (lambda home: (home / "maps.bin").write_bytes(bytes((home / "maps.bin").stat().st_size)), N),
    "maps gone": (lambda home: (home / "maps.bin").unlink(), N),
    "checksums cut short": (lambda home: os.truncate(home / "sums.bin", 6), N),
    "checksums gone": (lambda home: (home / "sums.bin").unlink(), N),
    "checksums of nobody": (lambda home: (home / "sums.bin").write_bytes(b"\1" * 4 * N), N),
    "record gone": (lambda home: (home / "bank.json").unlink(), N),
    "record cut short": (lambda home: (home / "bank.json").write_text('{"sha'), N),
    "record is a list": (lambda home: (home / "bank.json").write_text("[6, 8, 8]"), N),
    "record without sense": (lambda home: (home / "bank.json").write_text('{"shape": ["six", 8]}'), N),
    "record is not text": (lambda home: (home / "bank.json").write_bytes(b"\xff\xfe"), N),
    "record of another shape": (lambda home: (home / "bank.json").write_text('{"shape": [8, 8, 6]}'), N),
    "record of a negative shape": (lambda home: (home / "bank.json").write_text('{"shape": [6, -8, -8]}'), N),
    "lock left behind": (lambda home: (home / "lock").write_text("12345"), 0),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_found_and_mended(build: Callable[..., FeatureBank], tmp_path: Path, case: str) -> None:
    damage, encoded_again = DAMAGE[case]
    data = dataset()
    expected = build(Doubling(), data)(np.arange(N))
    damage(folder_of(tmp_path / "banks"))
    data.read.clear()
    assert torch.equal(build(Doubling(), data)(np.arange(N)), expected)
    assert len(data.read) == encoded_again
    data.read.clear()
    assert torch.equal(build(Doubling(), data)(np.arange(N)), expected)
    assert data.read == []


@pytest.mark.parametrize("names", [("maps.bin",), ("maps.bin", "sums.bin", "bank.json")])
def test_files_of_another_bank_are_not_believed(tmp_path: Path, names: tuple[str, ...]) -> None:
    data = dataset()
    FeatureBank.build(Doubling(), data, folder=tmp_path / "own")
    FeatureBank.build(Doubling("other weights", scale=3.0), data, folder=tmp_path / "other")
    for name in names:
        shutil.copy(folder_of(tmp_path / "other") / name, folder_of(tmp_path / "own") / name)
    maps = FeatureBank.build(Doubling(), data, folder=tmp_path / "own")(np.arange(N))
    np.testing.assert_allclose(maps, [by_hand(data, i) for i in range(N)], rtol=1e-6)


def test_an_open_bank_outlives_the_files_it_came_from(build: Callable[..., FeatureBank], tmp_path: Path) -> None:
    bank = build(Doubling(), dataset())
    before = bank(np.arange(N))
    (folder_of(tmp_path / "banks") / "bank.json").unlink()
    build(Doubling(), dataset(), wanted=np.array([0]))  # starts the files anew
    assert torch.equal(bank(np.arange(N)), before)
    clear_banks(tmp_path / "banks")
    assert torch.equal(bank(np.arange(N)), before)


def test_a_full_disk_is_a_sentence_and_keeps_what_was_written(
    build: Callable[..., FeatureBank], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, written = BankFiles.write, []

    def write(self: Any, indices: np.ndarray, maps: Tensor) -> None:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(len(indices))
        original(self, indices, maps)

    monkeypatch.setattr(BankFiles, "write", write)
    with refused("cache", "No space left on device", "free some space or point GLOCAL_CACHE"):
        build(Doubling(), dataset())
    assert not torch.is_inference_mode_enabled()
    monkeypatch.undo()
    data = dataset()
    bank = build(Doubling(), data)
    assert sorted(data.read) == list(range(16, N))
    np.testing.assert_allclose(bank(np.arange(N)), [by_hand(data, i) for i in range(N)], rtol=1e-6)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with refused("cache", "file"):
        FeatureBank.build(Doubling(), dataset(), folder=tmp_path / "file")


@pytest.mark.parametrize(("content", "code"), [(b"no picture", "data"), (png(RED), "picture-changed")])
def test_a_picture_that_changed_after_opening_never_gets_into_a_bank(
    build: Callable[..., FeatureBank], tmp_path: Path, content: bytes, code: str
) -> None:
    """Overwritten while the bank is built and restored later: its digest, and so its bank, never noticed."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    data = ClassDataset.from_folder(
        write_tree(tmp_path / "data", {f"{'ab'[i % 2]}/{i}.png": each for i, each in enumerate(pixels)})
    )
    victim = Path(data.where(18))
    good = victim.read_bytes()
    victim.write_bytes(content)
    with refused(code, victim.name):
        build(Doubling(), data)
    victim.write_bytes(good)
    encoder = Doubling()
    bank = build(encoder, data)
    assert encoder.calls == [8]  # the others were kept
    np.testing.assert_allclose(bank(np.arange(20)), [by_hand(data, i) for i in range(20)], rtol=1e-6)


def test_an_array_that_changed_after_opening_never_gets_into_a_bank(build: Callable[..., FeatureBank]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    data = ClassDataset.from_arrays(images, list("aabbcc"))
    images[3, 0, 0, 0] ^= 1
    with refused("picture-changed", "images[3]"):
        build(Doubling(), data)

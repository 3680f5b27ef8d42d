"""FeatureBank: every image once, the same bits however it was asked for, and what happens to damaged files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from banks import Doubling, N, by_hand, dataset, folder_of
from faults import disk_of
from glocal.common.cache import bank_sizes, clear_banks
from glocal.research.backbones import build_backbone
from glocal.research.data.dataset import ClassDataset
from glocal.research.engine.features import FeatureBank, View, bank_key
from glocal.research.types import Preprocess
from pictures import png, write_tree
from refusal import refused

RED = np.full((8, 8, 3), (255, 0, 0), np.uint8)


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., FeatureBank]:
    def with_defaults(encoder: Any, data: ClassDataset, **options: Any) -> FeatureBank:
        return FeatureBank.build(encoder, data, **({"folder": tmp_path / "banks"} | options))

    return with_defaults


def test_every_image_once_and_none_the_second_time(build: Callable[..., FeatureBank]) -> None:
    encoder, data = Doubling(), dataset()
    seen: list[tuple[int, int]] = []
    bank = build(encoder, data, progress=lambda done, total: seen.append((done, total)))
    assert encoder.calls == [16, 16]  # 21 images, the last batch filled up
    assert sorted(data.read) == list(range(N))
    assert seen == [(16, 21), (21, 21)]
    assert bank.shape == (6, 8, 8)
    maps = bank(np.arange(N))
    assert maps.dtype == torch.float32
    for i in range(N):
        np.testing.assert_allclose(maps[i], by_hand(data, i), rtol=1e-6)

    again_encoder, again_data = Doubling(), dataset(name="another name")
    again = build(again_encoder, again_data, progress=lambda *_: pytest.fail("nothing to encode"))
    assert (again_encoder.calls, again_data.read) == ([], [])
    order = np.array([20, 3, 3, 0])
    assert torch.equal(again(order), maps[order])
    assert again(np.empty(0, np.int64)).shape == (0, 6, 8, 8)


def test_rows_stay_on_disk(build: Callable[..., FeatureBank], tmp_path: Path) -> None:
    bank = build(Doubling(), dataset())
    home = folder_of(tmp_path / "banks")
    assert np.load(home / "maps.npy", mmap_mode="r").shape == (N, 6, 8, 8)
    assert (home / "done.bin").read_bytes() == b"\1" * N
    maps = bank(np.arange(3))
    maps.zero_()  # what was handed out belongs to the caller
    assert bank(np.arange(3)).abs().sum() > 0
    bank.drop()
    assert not home.exists()
    assert bank(np.arange(3)).abs().sum() > 0


def test_the_key_tells_apart_what_maps_depend_on_and_nothing_else() -> None:
    data = dataset()
    keys = {
        bank_key(Doubling(), data),
        bank_key(Doubling("other weights"), data),
        bank_key(Doubling(preprocess=Preprocess(8)), data),
        bank_key(Doubling(), dataset(seed=1)),
        bank_key(Doubling(), data, view=View(flip=True)),
        bank_key(Doubling(), data, view=View(down=1)),
        bank_key(Doubling(), data, device="cuda:1"),
    }
    assert len(keys) == 7
    assert bank_key(Doubling(), data, device="cuda:0") in keys
    assert bank_key(Doubling(scale=9.0), dataset(name="same pictures")) in keys


def test_only_what_is_wanted_and_the_rest_later(build: Callable[..., FeatureBank]) -> None:
    encoder, data = Doubling(), dataset()
    few = build(encoder, data, wanted=np.array([17, 2, 2, 5]))
    assert sorted(data.read) == [2, 5, 17]
    with refused("not-in-bank", "image 3"):
        few(np.array([2, 3]))
    data.read.clear()
    more = build(encoder, data, wanted=np.array([2, 3, 17, 20]))
    assert sorted(data.read) == [3, 20]
    data.read.clear()
    whole = build(encoder, data)
    assert sorted(data.read) == sorted(set(range(N)) - {2, 3, 5, 17, 20})
    assert torch.equal(more(np.array([20, 3])), whole(np.array([20, 3])))
    assert torch.equal(few(np.array([5, 17])), whole(np.array([5, 17])))


def test_a_view_changes_the_picture_before_it_is_encoded(build: Callable[..., FeatureBank]) -> None:
    data = dataset()
    flipped = build(Doubling(), data, view=View(flip=True, down=1))(np.arange(N))
    plain = build(Doubling(), data)(np.arange(N))
    assert torch.equal(flipped[:, :, 1:], plain[:, :, :-1].flip(-1))
    assert torch.equal(flipped[:, :, 0], plain[:, :, 0].flip(-1))


@pytest.mark.parametrize("size", [16, 40])
def test_the_map_of_an_image_never_depends_on_the_others(tmp_path: Path, size: int) -> None:
    """With a real network, to the last bit: kernels sum in another order for another batch size."""
    torch.manual_seed(0)
    backbone = build_backbone("resnet12", {"width": 6, "image_size": size}).eval().on("cpu")
    data = dataset(size=size + 3)
    whole = FeatureBank.build(backbone, data, folder=tmp_path / "whole")(np.arange(N))
    assert whole.isfinite().all()
    assert whole.flatten(1).std(0).max() > 0
    for k, rows in enumerate(([11], [20, 4, 11], list(range(3, 14)), list(range(0, N, 2)))):
        part = FeatureBank.build(backbone, data, wanted=np.array(rows), folder=tmp_path / str(k))
        assert torch.equal(part(np.array(rows)), whole[rows])
        memory = FeatureBank.in_memory(backbone, data, wanted=np.array(rows), workers=1)
        assert torch.equal(memory(np.array(rows)), whole[rows])
        grown = FeatureBank.build(backbone, data, folder=tmp_path / str(k))
        assert torch.equal(grown(np.arange(N)), whole)


def test_in_memory_is_the_same_bank_without_a_file_and_others_live_in_the_cache_folder(own_cache: Path) -> None:
    bank = FeatureBank.in_memory(Doubling(), dataset(), wanted=np.array([4, 19, 7]))
    assert bank.shape == (6, 8, 8)
    with refused("not-in-bank", "image 5"):
        bank(np.array([5]))
    assert list(own_cache.iterdir()) == []
    FeatureBank.build(Doubling(), dataset())
    sizes = bank_sizes()
    assert list(sizes) == [folder_of(own_cache / "banks").name]
    assert sum(sizes.values()) >= N * 6 * 8 * 8 * 4
    clear_banks()
    assert bank_sizes() == {}


# Files that do not fit together, a full disk, a picture that goes bad.


DAMAGE: dict[str, tuple[Callable[[Path], Any], int]] = {  # what happens to the folder -> images to encode again
    "nothing": (lambda home: None, 0),
    "a row not done": (lambda home: (home / "done.bin").write_bytes(b"\1" * 5 + b"\0" + b"\1" * (N - 6)), 1),
    "maps of no byte": (lambda home: os.truncate(home / "maps.npy", 0), N),
    "maps cut short": (lambda home: os.truncate(home / "maps.npy", 1000), N),
    "maps of others": (lambda home: np.save(home / "maps.npy", np.zeros((N, 3))), N),
    "done gone": (lambda home: (home / "done.bin").unlink(), N),
    "lock left behind": (lambda home: (home / "lock").write_text("12345"), 0),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_files_that_do_not_fit_together_are_started_anew(
    build: Callable[..., FeatureBank], tmp_path: Path, case: str
) -> None:
    damage, encoded_again = DAMAGE[case]
    data = dataset()
    expected = build(Doubling(), data)(np.arange(N))
    damage(folder_of(tmp_path / "banks"))
    for encoded in (encoded_again, 0):
        data.read.clear()
        assert torch.equal(build(Doubling(), data)(np.arange(N)), expected)
        assert len(data.read) == encoded


def test_a_cache_that_is_deleted_while_it_is_written_gives_a_bank_in_memory(
    build: Callable[..., FeatureBank], tmp_path: Path
) -> None:
    """The README says that it may be deleted at any time."""
    deleted = []

    def delete(done: int, total: int) -> None:
        deleted.append(done)
        shutil.rmtree(tmp_path / "banks")

    data = dataset()
    bank = build(Doubling(), data, progress=delete)
    for i in range(N):
        np.testing.assert_allclose(bank(np.array([i]))[0], by_hand(data, i), rtol=1e-6)
    assert deleted


def test_a_full_disk_or_a_file_in_the_way_is_a_sentence(build: Callable[..., FeatureBank], tmp_path: Path) -> None:
    with disk_of(16 * 6 * 8 * 8 * 4), refused("cache", "File too large", "free some space or point GLOCAL_CACHE"):
        build(Doubling(), dataset())
    assert not torch.is_inference_mode_enabled()
    data = dataset()
    bank = build(Doubling(), data)
    np.testing.assert_allclose(bank(np.arange(N)), [by_hand(data, i) for i in range(N)], rtol=1e-6)
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
    assert encoder.calls == [16]  # the others were kept
    np.testing.assert_allclose(bank(np.arange(20)), [by_hand(data, i) for i in range(20)], rtol=1e-6)

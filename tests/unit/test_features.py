"""FeatureBank: every image once, and the same bits however it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL
import pytest
import torch

from banks import BATCH, Doubling, N, by_hand, dataset, folder_of
from glocal.backbones import build_backbone
from glocal.data.cache import _bytes_on_disk, bank_sizes, clear_banks
from glocal.data.dataset import ClassDataset
from glocal.data.features import FeatureBank, bank_key
from glocal.data.loader import View, encode
from glocal.types import Preprocess
from refusal import refused


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., FeatureBank]:
    def with_defaults(encoder: Any, data: ClassDataset, **how: Any) -> FeatureBank:
        return FeatureBank.build(encoder, data, **({"folder": tmp_path / "banks", "batch_size": BATCH} | how))

    return with_defaults


def test_every_image_once_and_none_the_second_time(build: Callable[..., FeatureBank]) -> None:
    encoder, data = Doubling(), dataset()
    seen: list[tuple[int, int]] = []
    bank = build(encoder, data, progress=lambda done, total: seen.append((done, total)))
    assert encoder.calls == [8, 8, 8]  # 21 images, the last batch filled up
    assert sorted(data.read) == list(range(N))
    assert seen == [(8, 21), (16, 21), (21, 21)]
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
    mapped = bank._maps.base
    assert isinstance(mapped, np.memmap)
    assert Path(mapped.filename) == folder_of(tmp_path / "banks") / "maps.bin"
    assert not mapped.flags.writeable
    home = folder_of(tmp_path / "banks")
    assert json.loads((home / "bank.json").read_text()) == {"shape": [6, 8, 8]}
    assert {path.name for path in home.iterdir()} <= {"bank.json", "maps.bin", "sums.bin", "lock"}
    maps = bank(np.arange(3))
    maps.zero_()  # what was handed out belongs to the caller
    assert bank(np.arange(3)).abs().sum() > 0


def test_the_cache_folder_is_where_banks_live(own_cache: Path) -> None:
    FeatureBank.build(Doubling(), dataset())
    sizes = bank_sizes()
    assert list(sizes) == [folder_of(own_cache / "banks").name]
    assert sum(sizes.values()) >= N * 6 * 8 * 8 * 4
    clear_banks()
    assert bank_sizes() == {}
    found = Path(__file__).stat()
    assert _bytes_on_disk(found) == found.st_blocks * 512
    assert _bytes_on_disk(SimpleNamespace(st_size=1000)) == 1000  # Windows does not count blocks


def test_the_key_tells_apart_what_maps_depend_on_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dataset()
    keys = {
        bank_key(Doubling(), data),
        bank_key(Doubling("other weights"), data),
        bank_key(Doubling(preprocess=Preprocess(8)), data),
        bank_key(Doubling(), dataset(seed=1)),
        bank_key(Doubling(), data, view=View(flip=True)),
        bank_key(Doubling(), data, view=View(down=1)),
        bank_key(Doubling(), data, batch_size=64),
        bank_key(Doubling(), data, device="cuda:1"),
    }
    assert len(keys) == 8
    assert bank_key(Doubling(), data, device="cuda:0") in keys
    assert bank_key(Doubling(scale=9.0), dataset(name="same pictures")) in keys
    for program in (torch, PIL):  # those that make a map
        with monkeypatch.context() as patch:
            patch.setattr(program, "__version__", "0.0.1")
            assert bank_key(Doubling(), data) not in keys


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


def test_indices_outside_the_data_are_refused(build: Callable[..., FeatureBank]) -> None:
    bank = build(Doubling(), dataset())
    for wrong in ([0, N], [-1, 2]):
        with refused("data", f"must be in 0..20, got {wrong[0]}..{wrong[1]}"):
            bank(np.array(wrong))
        with refused("data", "must be in 0..20"):
            build(Doubling(), dataset(), wanted=np.array(wrong))
    for make in (build, FeatureBank.in_memory):
        with refused("data", "at least one image"):
            make(Doubling(), dataset(), wanted=np.array([], np.int64))


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
    backbone = build_backbone("resnet12", width=6, image_size=size).eval().on("cpu")
    data = dataset(size=size + 3)
    whole = FeatureBank.build(backbone, data, folder=tmp_path / "whole", batch_size=BATCH)(np.arange(N))
    assert whole.isfinite().all()
    assert whole.flatten(1).std(0).max() > 0
    for k, rows in enumerate(([11], [20, 4, 11], list(range(3, 14)), list(range(0, N, 2)))):
        part = FeatureBank.build(backbone, data, wanted=np.array(rows), folder=tmp_path / str(k), batch_size=BATCH)
        assert torch.equal(part(np.array(rows)), whole[rows])
        memory = FeatureBank.in_memory(backbone, data, wanted=np.array(rows), batch_size=BATCH, workers=1)
        assert torch.equal(memory(np.array(rows)), whole[rows])
        grown = FeatureBank.build(backbone, data, folder=tmp_path / str(k), batch_size=BATCH)
        assert torch.equal(grown(np.arange(N)), whole)


def test_in_memory_is_the_same_bank_without_a_file(own_cache: Path) -> None:
    data = dataset()
    rows = np.array([4, 19, 7])
    bank = FeatureBank.in_memory(Doubling(), data, wanted=rows, batch_size=2)
    assert bank.shape == (6, 8, 8)
    assert bank._maps.shape[0] == 3
    np.testing.assert_allclose(bank(rows), [by_hand(data, i) for i in rows], rtol=1e-6)
    with refused("not-in-bank", "image 5"):
        bank(np.array([5]))
    assert list(own_cache.iterdir()) == []


def test_a_backbone_in_training_mode_is_refused(build: Callable[..., FeatureBank]) -> None:
    backbone = build_backbone("conv4", width=2, image_size=16).train()
    for make in (build, FeatureBank.in_memory):
        with refused("data", "training mode", "call backbone.eval() first"):
            make(backbone, dataset())


def test_encode_leaves_the_caller_in_the_mode_it_was_in() -> None:
    for _, maps in encode(Doubling(), dataset(), np.arange(N), batch_size=4):
        assert maps.is_inference()
        assert not torch.is_inference_mode_enabled()
        assert (torch.ones(1, requires_grad=True) * 2).requires_grad

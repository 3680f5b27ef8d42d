"""Episode, Views and Preprocess: what they refuse, and what they do with what they accept."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from glocal.common.errors import DataError, RecipeError
from glocal.research.types import UNKNOWN, Episode, Output, Preprocess, Views, normalize


def episode(**changes: object) -> Episode:
    """2 ways, 3 + 1 support images, 4 queries of which two are unknown (classes 8 and 9 of the data set)."""
    fields: dict[str, object] = {
        "support": torch.arange(4.0).view(4, 1, 1, 1),
        "support_label": torch.tensor([0, 0, 0, 1]),
        "query": torch.arange(10.0, 14.0).view(4, 1, 1, 1),
        "query_label": torch.tensor([1, UNKNOWN, 0, UNKNOWN]),
        "drawn": (3, 5, 8, 9),
    }
    return Episode(**(fields | changes))  # type: ignore[arg-type]


def mirror(**changes: object) -> dict[str, object]:
    return {
        "mirror_support": torch.arange(20.0, 23.0).view(3, 1, 1, 1),
        "mirror_support_label": torch.tensor([0, 1, 1]),
        "mirror_query_label": torch.tensor([UNKNOWN, 1, UNKNOWN, 0]),
    } | changes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"support_label": torch.tensor([0, 0, 1])}, "4 support images but 3 labels"),
        ({"support_label": torch.tensor([0, 0, 2, 2])}, r"0\.\.N-1 without gaps and at least one, got \[0, 2\]"),
        ({"support_label": torch.tensor([[0], [0], [1], [1]])}, r"whole numbers \(S,\), got torch.int64 \(4, 1\)"),
        ({"support": torch.empty(0, 1, 1, 1), "support_label": torch.empty(0, dtype=torch.int64)}, r"got \[\]"),
        (
            {"query_label": torch.tensor([0.0, 1.0, 0.0, -1.0])},
            r"query labels must be whole numbers \(Q,\), got torch.f",
        ),
        ({"query_label": torch.tensor([0, 1])}, "4 queries but 2 query labels"),
        (
            {"query_label": torch.tensor([0, 1, 2, 0])},
            r"-1 \(unknown\) or 0\.\.1, got 0\.\.2: the support has 2 classes",
        ),
        ({"query": torch.zeros(4, 1, 2, 2)}, r"rows of one shape, got \(1, 1, 1\) and \(1, 2, 2\)"),
        ({"mirror_support": torch.zeros(3, 1, 1, 1)}, "support, support labels and query labels together"),
        (mirror(mirror_support_label=torch.tensor([0, 2, 2])), r"without gaps and at least one, got \[0, 2\]"),
        (mirror(mirror_query_label=torch.tensor([0, 1, UNKNOWN, 0])), "unknown exactly where"),
        (mirror(mirror_query_label=torch.tensor([UNKNOWN, 1])), "unknown exactly where"),
    ],
)
def test_episode_refuses(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        episode(**changes)


@pytest.mark.parametrize("with_mirror", [False, True])
def test_encode_runs_the_backbone_once_and_keeps_rows_apart(with_mirror: bool) -> None:
    batches: list[int] = []

    def backbone(images: Tensor) -> Tensor:
        batches.append(len(images))
        return images.expand(-1, 2, 3, 3) * 100

    before = episode(**(mirror() if with_mirror else {}))
    after = before.encode(backbone)
    assert batches == [11 if with_mirror else 8]
    for part in ("support", "query") + (("mirror_support",) if with_mirror else ()):
        assert torch.equal(getattr(after, part), getattr(before, part).expand(-1, 2, 3, 3) * 100)
    assert after.drawn == before.drawn
    assert after.query_label is before.query_label
    assert (after.mirror_support is None) is not with_mirror


def test_mirrored_exchanges_the_roles_and_to_changes_the_type_of_images_only() -> None:
    seen = episode(**mirror()).mirrored()
    assert seen.drawn == (8, 9, 3, 5)
    assert seen.support.flatten().tolist() == [20, 21, 22]
    assert seen.support_label.tolist() == [0, 1, 1]
    assert seen.query.flatten().tolist() == [10, 11, 12, 13]
    assert seen.query_label.tolist() == [UNKNOWN, 1, UNKNOWN, 0]
    with pytest.raises(DataError, match="draw it with mirror=True"):
        episode().mirrored()
    moved = episode(**mirror()).to("cpu", torch.float64)
    assert moved.support.dtype == moved.query.dtype == moved.mirror_support.dtype == torch.float64
    assert moved.support_label.dtype == moved.query_label.dtype == torch.int64
    assert moved.drawn == (3, 5, 8, 9)
    assert episode().to("cpu").mirror_support is None


def test_views_give_rows_and_refuse_those_that_do_not_belong_together() -> None:
    views = Views(torch.arange(6.0).view(3, 2), torch.arange(3.0).view(3, 1, 1, 1))
    assert len(views) == 3
    picked = views.rows(torch.tensor([2, 0]))
    assert picked.vec.tolist() == [[4, 5], [0, 1]]
    assert picked.local.flatten().tolist() == [2, 0]
    assert Views(torch.zeros(3, 4)).rows(slice(1)).local is None
    for shapes, sentence in (
        ([(3,)], r"Views.vec must be \(B, D\), got shape \(3,\)"),
        ([(3, 4), (2, 4, 1, 1)], r"with B = 3 as in vec, got \(2, 4, 1, 1\)"),
        ([(3, 4), (3, 4)], r"Views.local must be .* got \(3, 4\)"),
    ):
        with pytest.raises(DataError, match=sentence):
            Views(*map(torch.zeros, shapes))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": 0}, "got 0 and None"),
        ({"size": 84, "resize": 80}, "resize must be at least size = 84, got 80"),
        ({"size": 84.0}, r"size must be a whole number of pixels, got 84\.0"),
        ({"size": 84, "mean": (0.5, 0.5)}, "3 finite means and 3 positive stds"),
        ({"size": 84, "mean": 0.5}, r"3 means and 3 stds, got 0\.5"),
        ({"size": 84, "std": (1.0, 0.0, 1.0)}, "3 finite means and 3 positive stds"),
        ({"size": 84, "interpolation": "nearest"}, "bilinear or bicubic, got 'nearest'"),
    ],
)
def test_preprocess_refuses(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        Preprocess(**settings)  # type: ignore[arg-type]


def test_normalize_is_the_formula_pixel_by_pixel() -> None:
    prepare = Preprocess(4, mean=(0.1, 0.5, 0.9), std=(0.2, 0.3, 0.5))
    images = torch.randint(256, (2, 3, 4, 5), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    images[0, :, 0, 0], images[0, :, 0, 1] = 0, 255
    out = normalize(images, prepare)
    assert out.dtype == torch.float32
    assert out.is_contiguous()
    last = normalize(images.contiguous(memory_format=torch.channels_last), prepare)
    assert last.is_contiguous(memory_format=torch.channels_last)
    for b, c, h, w in torch.cartesian_prod(*map(torch.arange, images.shape)).tolist():
        expected = (int(images[b, c, h, w]) / 255 - prepare.mean[c]) / prepare.std[c]
        assert out[b, c, h, w].item() == pytest.approx(expected, abs=1e-6)


def test_preprocess_survives_json_and_its_fingerprint_tells_settings_apart() -> None:
    prepare = Preprocess(84, 92, mean=[0.1, 0.2, 0.3], interpolation="bicubic")  # type: ignore[arg-type]
    again = Preprocess.from_json({**prepare.to_json(), "mean": list(prepare.mean)})
    assert again == prepare
    assert again.fingerprint() == prepare.fingerprint()
    others = {"size": 83, "resize": None, "mean": (0.1, 0.2, 0.4), "std": (1, 1, 1), "interpolation": "bilinear"}
    prints = {replace(prepare, **{name: value}).fingerprint() for name, value in others.items()}  # type: ignore
    assert len(prints | {prepare.fingerprint()}) == 6


@pytest.mark.parametrize(("logits", "score"), [((4,), (4,)), ((4, 2, 1), (4,)), ((4, 2), (4, 1)), ((4, 2), (2,))])
def test_output_refuses_shapes_that_do_not_belong_together(logits: tuple[int, ...], score: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=rf"logits \(Q, N\) and .* got shapes {re.escape(f'{logits} and {score}')}"):
        Output(torch.zeros(logits), torch.zeros(score))

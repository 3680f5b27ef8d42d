"""Augmentation against loops over single pictures, and its randomness against the generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from glocal.research.data import loader as augment
from glocal.research.data.loader import Augment, colour_jitter, shift
from glocal.research.engine.features import View
from refusal import refused


def pictures(n: int = 6, h: int = 5, w: int = 5) -> Tensor:
    return torch.randint(256, (n, 3, h, w), generator=seeded(99), dtype=torch.uint8)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


ALL = Augment(crop_padding=2, flip=True, rotate="one", jitter=0.4)


def test_the_generator_alone_decides_and_nothing_is_drawn_where_all_is_off() -> None:
    torch.manual_seed(1)
    first = ALL(pictures(), seeded(0))
    torch.manual_seed(2)
    assert torch.equal(ALL(pictures(), seeded(0)), first)
    assert not torch.equal(ALL(pictures(), seeded(1)), first)
    assert first.dtype == torch.uint8
    assert first.shape == (6, 3, 5, 5)
    generator = seeded(0)
    assert torch.equal(Augment()(pictures(), generator), pictures())
    assert torch.equal(generator.get_state(), seeded(0).get_state())


@pytest.mark.parametrize(("padding", "size", "places"), [(2, None, (5, 5)), (1, 3, (4, 6))])
def test_crops_are_windows_of_the_zero_padded_picture_at_every_place(
    padding: int, size: int | None, places: tuple[int, int]
) -> None:
    images = pictures(400, 4, 6)
    crops = Augment(crop_padding=padding, crop_size=size)(images, seeded(3))
    h, w = (4, 6) if size is None else (size, size)
    assert crops.shape == (400, 3, h, w)
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    every = {(top, left) for top in range(places[0]) for left in range(places[1])}
    seen = set()
    for picture, crop in zip(padded, crops.numpy(), strict=True):
        found = {(t, s) for t, s in every if np.array_equal(picture[:, t : t + h, s : s + w], crop)}
        assert found
        seen |= found
    assert seen == every
    with refused("recipe", "augment.crop_size = 9 is more than images of 4 x 6 padded by 1 have"):
        Augment(crop_padding=1, crop_size=9)(images, seeded(3))


def test_flip_mirrors_about_half_of_the_pictures() -> None:
    images = pictures(400)
    out = Augment(flip=True)(images, seeded(0))
    kept = sum(torch.equal(a, b) for a, b in zip(images, out, strict=True))
    mirrored = sum(
        torch.equal(a, torch.from_numpy(b.numpy()[..., ::-1].copy())) for a, b in zip(images, out, strict=True)
    )
    assert kept + mirrored == 400
    assert 150 < kept < 250


def quarter(image: Tensor, k: int) -> Tensor:
    """Counter-clockwise: the right column becomes the top row."""
    for _ in range(k):
        side = image.shape[-1]
        image = torch.stack([image[:, :, side - 1 - row] for row in range(side)], 1)
    return image


def test_rotate_one_uses_every_quarter_and_four_gives_whole_batches_upright_first() -> None:
    images = pictures(200)
    out = Augment(rotate="one")(images, seeded(0))
    turns = [next(k for k in range(4) if torch.equal(quarter(a, k), b)) for a, b in zip(images, out, strict=True)]
    assert min(np.bincount(turns, minlength=4)) > 30
    images = pictures(3)
    out = Augment(rotate="four")(images, seeded(0))
    assert out.shape == (12, 3, 5, 5)
    for k in range(4):
        for b in range(3):
            assert torch.equal(out[3 * k + b], quarter(images[b], k))


def test_jitter_is_brightness_contrast_saturation_pixel_by_pixel() -> None:
    images = pictures(4, 3, 4)
    out = colour_jitter(images, 0.5, seeded(7))
    factors = 1 + 0.5 * (2 * torch.rand(3, 4, generator=seeded(7)) - 1)
    assert (factors - 1).abs().max() <= 0.5
    for b, image in enumerate(images.double().numpy()):
        brightness, contrast, saturation = factors[:, b].tolist()
        image = np.clip(image * brightness, 0, 255)
        mean = np.tensordot(augment.GREY, image, 1).mean()
        image = np.clip(contrast * image + (1 - contrast) * mean, 0, 255)
        grey = np.tensordot(augment.GREY, image, 1)
        image = np.clip(saturation * image + (1 - saturation) * grey, 0, 255)
        assert np.abs(out[b].numpy() - image).max() <= 0.501  # rounded to the next whole number
    # Nothing wraps around at black and white.
    extremes = torch.stack([torch.zeros(3, 4, 4), torch.full((3, 4, 4), 255.0)]).to(torch.uint8).repeat(50, 1, 1, 1)
    out = colour_jitter(extremes, 0.9, seeded(0))
    assert out[0::2].max() == 0
    assert out[1::2].float().mean() > 150
    assert (out[1::2] == 255).any()


@pytest.mark.parametrize("view", [View(), View(True), View(False, 2, -1), View(True, -3, 0), View(False, 1, 7)])
def test_a_view_moves_every_pixel_and_repeats_the_border(view: View) -> None:
    images = pictures(2, 5, 4)
    out = view(images)
    assert out.dtype == torch.uint8
    for h in range(5):
        for w in range(4):
            from_h, from_w = min(max(h - view.down, 0), 4), min(max(w - view.right, 0), 3)
            expected = images[:, :, from_h, 3 - from_w if view.flip else from_w]
            assert torch.equal(out[:, :, h, w], expected)
    assert torch.equal(shift(images, 0, 0), images)

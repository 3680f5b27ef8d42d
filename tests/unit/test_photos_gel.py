"""The models for photos: they ship small, and the recipe of the trained one starts at cosine prototypes."""

from __future__ import annotations

import pytest
import torch

from glocal.research.engine.checkpoint import read_checkpoint
from glocal.research.engine.recipe import load_recipe, parse_recipe
from glocal.research.engine.records import WEIGHTS
from glocal.research.methods import build_method
from glocal.research.methods.frozen_gel import ChannelGains
from glocal.research.ops.similarity import class_mean, cosine, pixel_similarity, pool
from glocal.research.types import BaseClasses, to_one_hot


def test_the_recipe_is_the_one_that_ships() -> None:
    recipe = load_recipe("photos-gel")
    record = read_checkpoint(WEIGHTS / "photos-gel.safetensors")[1]
    assert record["recipe"]["method"]["name"] == "frozen-gel"
    assert parse_recipe(record["recipe"]) == recipe


def test_it_starts_at_cosine_prototypes_and_local_cosines() -> None:
    torch.manual_seed(0)
    settings = load_recipe("photos-gel").method.settings | {"local_width": 64, "attention_width": 8, "top_k": 2}
    method = build_method("frozen-gel", 64, settings).eval()
    maps, one_hot = torch.rand(9, 64, 3, 3), to_one_hot(torch.tensor([0, 0, 1, 2]))
    state = method.enroll(method.embed(maps[:4]), one_hot)
    comparison = method.compare(state, method.embed(maps[4:]))
    plain = cosine(pool(maps[4:]), class_mean(pool(maps[:4]), one_hot)) / settings["temperature"]
    torch.testing.assert_close(comparison.logits, plain)
    s_pixel = pixel_similarity(maps[4:], class_mean(maps[:4], one_hot), 2) / 9 / settings["local_temperature"]
    torch.testing.assert_close(comparison.scores["E_f"], -s_pixel.logsumexp(dim=-1), atol=1e-3, rtol=1e-4)


def test_an_empty_pixel_does_not_throw_training_off() -> None:
    torch.manual_seed(0)
    method = build_method("frozen-gel", 6, load_recipe("photos-gel").method.settings | {"local_width": 4, "top_k": 2})
    maps = torch.rand(3, 6, 2, 2)
    maps[0, :, 0, 0] = 0  # a few of the photos' pixels are: each of the channels is off
    state = method.enroll(method.embed(maps[1:]), torch.eye(2))
    method.compare(state, method.embed(maps[:1])).scores["E_f"].sum().backward()
    grads = [p.grad.abs().max().item() for p in method.calibrate.parameters()]  # type: ignore[union-attr]
    assert 0 < max(grads) < 100


def test_channel_gains_bring_channels_to_one_size() -> None:
    gains = ChannelGains(3)
    maps = torch.rand(2, 3, 2, 2)
    assert torch.equal(gains(maps), maps)
    gains.fill(torch.tensor([1.0, 2.0, 4.0]))
    floor = (1 + 4 + 16) / 3
    wanted = torch.tensor([(size + floor) ** -0.5 for size in (1.0, 4.0, 16.0)])
    factor = gains(torch.ones(1, 3, 1, 1)).flatten()
    torch.testing.assert_close(factor / factor[0], wanted / wanted[0])
    assert factor.prod().item() == pytest.approx(1.0, abs=1e-5)
    method = build_method("frozen-gel", 3, {"channel_gains": True, "local_width": 2})
    assert method.needs_base
    rows = torch.tensor([[1.0, 2.0, 4.0]])
    method.set_base(BaseClasses(("a",), rows, rows, rows[0]))
    torch.testing.assert_close(method.gains.log_gain, gains.log_gain)  # type: ignore[union-attr]

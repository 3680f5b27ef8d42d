"""One pass per picture, known support only, one matrix product: the numbers of the pseudo-code all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glocal.research.data.episodes import EpisodeSampler
from glocal.research.engine.distributed import StepLosses
from glocal.research.engine.recipe import parse_recipe
from glocal.research.engine.train import TrainStage
from glocal.research.types import normalize
from reference.step import naive_losses
from tiny_runs import fields, make_dataset

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("step") / "data", size=32)


def float64_stage(
    data: Path, *, shot: int, top_k: int = 1, method: Mapping[str, Any] = {}, **settings: Any
) -> TrainStage:
    """A fine-tuning stage in evaluation mode: in training mode the additional support moves batch statistics."""
    recipe = parse_recipe(
        fields(
            data,
            "train",
            backbone={"image_size": 32, "drop_rate": 0.0},
            method={"name": "gel", "variant": "ahead", "top_k": top_k, "temperature": 4.0, **method},
            train={"shot": shot, "query": 3, **settings},
        )
    )
    stage = TrainStage(recipe, CPU)
    stage.model.backbone.register_forward_pre_hook(lambda module, images: images[0].double())
    torch.manual_seed(1)
    for module in stage.modules.values():
        module.double().eval()
        for norm in module.modules():
            if isinstance(norm, torch.nn.BatchNorm2d):  # statistics and scales that a mistake would not cancel with
                torch.nn.init.uniform_(norm.running_mean, -0.5, 0.5)
                torch.nn.init.uniform_(norm.running_var, 0.5, 2.0)
                torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    return stage


def pictures_of(stage: TrainStage) -> Callable[[np.ndarray], torch.Tensor]:
    preprocess = stage.model.backbone.preprocess
    return lambda rows: normalize(stage.images[torch.from_numpy(stage.place[rows])], preprocess)


def gradients(stage: TrainStage, terms: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    parts = torch.nn.ModuleDict(stage.modules)
    parts.zero_grad()
    torch.stack(list(terms.values())).sum().backward()
    return {name: p.grad.clone() for name, p in parts.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("task", [0, 7])
@pytest.mark.parametrize(("shot", "top_k"), [(1, 1), (3, 1), (3, 3)])
def test_same_loss_and_same_gradients(data: Path, task: int, shot: int, top_k: int) -> None:
    stage = float64_stage(data, shot=shot, top_k=top_k)
    ours = stage.losses(task)
    our_gradients = gradients(stage, ours)

    sampler = EpisodeSampler(stage.data, stage.recipe.train.spec, seed=stage.recipe.seed, mirror=True)
    episode = sampler[task].episode(pictures_of(stage))
    assert episode.mirror_support is not None
    assert len(episode.mirror_support) == len(episode.support)
    theirs = naive_losses(stage.model.backbone, stage.model.method, episode)
    their_gradients = gradients(stage, theirs)

    assert ours.keys() == theirs.keys() == {"closed", "energy"}
    assert min(term.item() for term in ours.values()) > 1e-3, "a term that is nothing would be equal to anything"
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-8, atol=1e-8)
    assert (
        our_gradients.keys()
        == their_gradients.keys()
        == dict(torch.nn.ModuleDict(stage.modules).named_parameters()).keys()
    ), "every weight learns"
    for name, gradient in our_gradients.items():
        torch.testing.assert_close(
            gradient, their_gradients[name], rtol=1e-8, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert max(g.abs().max().item() for g in our_gradients.values()) > 1e-3


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("shot", [1, 3])
def test_a_training_step_of_the_authors_settings_is_theirs(data: Path, shot: int, reduce: bool) -> None:
    """In training mode, where batches and how far their statistics move matter; only dropping is switched off."""
    still = {"reduce": reduce, "dropout": 0.0, "attention_dropout": 0.0}
    stage = float64_stage(data, shot=shot, method=still, unknown_support=True, norm_momentum=0.19)
    parts = torch.nn.ModuleDict(stage.modules).train()
    start = {name: value.clone() for name, value in parts.state_dict().items()}
    ours = stage.losses(4)
    our_gradients, our_state = gradients(stage, ours), {name: v.clone() for name, v in parts.state_dict().items()}

    parts.load_state_dict(start)
    for norm in stage.model.backbone.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.momentum = 0.1  # of PyTorch; it moves twice there
    episode = stage.sampler[4].episode(pictures_of(stage))
    theirs = naive_losses(stage.model.backbone, stage.model.method, episode)
    their_gradients, their_state = gradients(stage, theirs), parts.state_dict()

    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-8, atol=1e-8)
    for found, expected in ((our_gradients, their_gradients), (our_state, their_state)):
        assert found.keys() == expected.keys()
        for name in found.keys() - {key for key in found if key.endswith("num_batches_tracked")}:
            torch.testing.assert_close(
                found[name], expected[name], rtol=1e-8, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}"
            )
    for norm in ("calibrate.1", "reduce.1")[: 1 + reduce]:
        name = f"method.{norm}.running_var"
        assert (our_state[name] - start[name]).abs().max() > 1e-3, "statistics that stay would be equal to anything"


def test_the_step_of_the_loop_is_that_step(data: Path) -> None:
    """StepLosses, which the loop calls, adds nothing but the rounding to float32."""
    stage = float64_stage(data, shot=1, top_k=1)
    looped = StepLosses(stage).eval()(2)
    assert {name: term.item() for name, term in looped.items()} == {
        name: term.float().item() for name, term in stage.losses(2).items()
    }


def test_every_picture_is_encoded_once_and_no_unknown_support(data: Path) -> None:
    stage = float64_stage(data, shot=3, top_k=1)
    seen: list[int] = []
    stage.model.backbone.register_forward_hook(lambda module, images, maps: seen.append(len(images[0])))
    stage.losses(0)
    assert seen == [2 * 3 + 4 * 3]  # support of 2 known classes, queries of 2 known and 2 unknown ones, in one pass

"""Meta-training: one task (or a few) per step, drawn from the base classes.

Frozen: the backbone's maps come from the feature bank, a few views of each picture, and only the method learns
(minutes on a CPU).  Fine-tuned: pictures are augmented and go through the backbone at every step, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from glocal.common.errors import DataError, RecipeError
from glocal.research.data import open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler
from glocal.research.data.loader import Ahead, ImageLoader, on_device
from glocal.research.engine.checkpoint import BEST, TrainedModel, read_checkpoint
from glocal.research.engine.distributed import joined, world
from glocal.research.engine.features import FeatureBank, Pooled, is_large, views
from glocal.research.engine.loop import run_stage, step_seed
from glocal.research.engine.pretrain import maps_of, part_of, pretrain, start_model
from glocal.research.engine.recipe import Recipe, load_recipe
from glocal.research.engine.run_folder import Callback, Callbacks, TensorBoard
from glocal.research.ops.similarity import pool
from glocal.research.types import BaseClasses, Episode, normalize

Indices = npt.NDArray[np.int64]
BASE = 1 << 20  # salt of what a method draws when it meets the base classes; others count ranks upwards from small ones


class TrainStage:
    def __init__(self, recipe: Recipe, device: torch.device):
        self.recipe, self.device, settings = recipe, device, recipe.train
        self.data = data = open_dataset(recipe.data.dataset, "train", skip_bad=recipe.data.skip_bad)
        self.rows = rows = part_of(data, recipe)
        self.model = start_model(recipe, data, device)
        frozen = settings.backbone == "frozen"
        large = is_large(self.model.backbone.eval(), len(rows) * settings.views, device)
        self.pooled = frozen and large and self.model.method.pooled
        if self.model.method.needs_base:
            options: dict[str, Any] = {"device": device, "workers": recipe.data.workers}
            base = base_classes(self.model, data, rows, pooled=large or not frozen, **options)
            with torch.random.fork_rng(devices=[]):  # encoding drew numbers or not, as the cache had it
                torch.manual_seed(step_seed(recipe.seed, 0, salt=BASE))
                self.model.method.set_base(base)
        self.model.backbone.trainable = settings.backbone == "fine-tuned"
        mirror = self.model.method.needs_mirror or settings.unknown_support
        try:
            self.sampler = EpisodeSampler(data, settings.spec, seed=recipe.seed, rows=rows, mirror=mirror)
        except DataError as error:
            if recipe.data.part == "all":
                raise
            raise DataError(
                f"{error}. The recipe draws from the {recipe.data.part} part alone (data.holdout = "
                f"{recipe.data.holdout}); with a backbone that never saw these pictures, --set data.part=all",
                code=error.code,
            ) from error
        self.augment = recipe.augment
        if settings.backbone == "frozen":
            if recipe.augment != type(recipe.augment)():
                raise RecipeError(
                    "frozen training cannot crop, flip, turn or recolour maps; leave [augment] out and set train.views",
                    code="frozen-augment",
                )
            self.views = views(settings.views, self.model.backbone.preprocess.size)
            self.modules: Mapping[str, nn.Module] = {"method": self.model.method}
        else:
            if settings.views != 1:
                raise RecipeError(
                    "train.views is for the frozen backbone; a fine-tuned one takes [augment]", code="views-not-frozen"
                )
            self.place = np.cumsum(np.isin(np.arange(len(data)), rows)) - 1  # dataset index -> row of self.images
            stored = self.augment.source(self.model.backbone.preprocess)
            self.images = ImageLoader(data, stored, workers=recipe.data.workers).hold(rows)
            self.modules = {"backbone": self.model.backbone, "method": self.model.method}
            for norm in self.model.backbone.modules():
                if isinstance(norm, nn.BatchNorm2d) and settings.norm_momentum is not None:
                    norm.momentum = settings.norm_momentum
        if settings.tasks_per_step % world().size:
            raise RecipeError(
                f"train.tasks_per_step must be a multiple of the number of processes, {world().size}, so that every "
                f"one has as many tasks, got {settings.tasks_per_step}",
                code="unequal-tasks",
            )
        self.steps = max(min(1, settings.tasks), settings.tasks // settings.tasks_per_step)
        self.parts = 1
        # A rank's tasks are one world apart.
        self.episode = Ahead(self._episode, end=self.steps * settings.tasks_per_step, stride=world().size)

    def losses(self, step: int, part: int = 0) -> dict[str, Tensor]:
        """Mean over the tasks of this step of each term, as far as they are this rank's."""
        n = self.recipe.train.tasks_per_step
        terms = [self._task(step * n + i) for i in world().share(n)]
        return {name: torch.stack([term[name] for term in terms]).mean() for name in terms[0]}

    def _task(self, index: int) -> dict[str, Tensor]:
        episode = self.episode(index)
        torch.manual_seed(step_seed(self.recipe.seed, index))  # dropout, by task: the same on whichever rank it falls
        if self.recipe.train.backbone == "frozen":
            return self.model.method.loss(episode)
        return self.model.method.loss(episode.encode(lambda images: maps_of(self.model.backbone, images, self.recipe)))

    def _episode(self, index: int) -> Episode:
        """A task with its maps, or with its pictures when the backbone learns too."""
        generator = torch.Generator().manual_seed(step_seed(self.recipe.seed, index, salt=4))
        fetch = self._views if self.recipe.train.backbone == "frozen" else self._images
        return self.sampler[index].episode(lambda rows: fetch(rows, generator)).to(self.device)

    @cached_property
    def banks(self) -> list[FeatureBank]:
        """One per view, encoded at the first step: by then a resumed run has the backbone it stopped with."""
        backbone, workers = self.model.backbone.eval(), self.recipe.data.workers
        encoder = Pooled(backbone) if self.pooled else backbone
        return [
            FeatureBank.build(encoder, self.data, wanted=self.rows, view=view, device=self.device, workers=workers)
            for view in self.views
        ]

    def _views(self, rows: Indices, generator: torch.Generator) -> Tensor:
        """One view of each picture, chosen at random."""
        if len(self.banks) == 1:
            return self.banks[0](rows)
        which = torch.randint(len(self.banks), (len(rows),), generator=generator).numpy()
        maps = torch.empty(len(rows), *self.banks[0].shape)
        for v, bank in enumerate(self.banks):
            maps[which == v] = bank(rows[which == v])
        return maps

    def _images(self, rows: Indices, generator: torch.Generator) -> Tensor:
        images = on_device(self.images[torch.from_numpy(self.place[rows])], self.device)
        images = self.augment(images, generator)
        return normalize(images, self.model.backbone.preprocess).contiguous(memory_format=torch.channels_last)


def base_classes(
    model: TrainedModel,
    data: ClassDataset,
    rows: npt.NDArray[np.int64],
    *,
    device: torch.device,
    workers: int,
    pooled: bool = False,
) -> BaseClasses:
    """What a method may remember: classifier rows, class means and the overall mean of the pictures ``rows``.

    ``pooled``: the bank keeps means, not maps; the same numbers for less space, but nobody else can use it.
    """
    backbone = model.backbone.eval()
    encoder = Pooled(backbone) if pooled else backbone
    bank = FeatureBank.build(encoder, data, wanted=rows, device=device, workers=workers)
    with torch.no_grad():
        vec = torch.cat([pool(bank(part)) for part in np.array_split(rows, 1 + len(rows) // 1024)])
    label = torch.from_numpy(data.label[rows])  # one-hot, those of 450,000 pictures would take more than their vectors
    centre = vec.new_zeros(len(data.classes), vec.shape[1]).index_add(0, label, vec) / label.bincount()[:, None]
    classifier = model.extra.get("base.weight")
    if classifier is None or classifier.shape != centre.shape:
        classifier = centre
    return BaseClasses(tuple(data.classes), classifier.detach().cpu().float(), centre, vec.mean(dim=0), vec, label)


train = partial(run_stage, TrainStage)  # (recipe, folder, *, resume, device, callback) -> TrainedModel
STAGES = {"pretrain": pretrain, "train": train}


def run_recipe(
    stage: str,
    source: str | Path,
    folder: Path,
    *,
    overrides: Sequence[str] = (),
    resume: bool = False,
    tensorboard: bool = False,
    device: str = "auto",
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Read a recipe of that stage and run it, also under torchrun; returns the record of the chosen checkpoint."""
    recipe = load_recipe(source, overrides)
    if recipe.stage != stage:
        raise RecipeError(f"recipe {source} is for `glocal {recipe.stage}`, not for `glocal {stage}`")
    with joined(device) as where, ExitStack() as at_the_end:
        if recipe.train.tasks_per_step == 1 and world().size > 1:  # one task per rank and step
            recipe = load_recipe(source, [*overrides, f"train.tasks_per_step={world().size}"])
        callbacks = [] if callback is None else [callback]
        if tensorboard:
            callbacks.append(at_the_end.enter_context(closing(TensorBoard(folder))))
        STAGES[stage](recipe, folder, resume=resume, device=where, callback=Callbacks(*callbacks))
    return read_checkpoint(folder / BEST)[1]

"""Stage one: a linear classifier on the base classes teaches the backbone to see."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import DataError, RecipeError
from glocal.research.backbones import Backbone, build_backbone
from glocal.research.data import open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.loader import Ahead, ImageLoader, on_device
from glocal.research.engine.checkpoint import TrainedModel, load_model
from glocal.research.engine.distributed import world
from glocal.research.engine.loop import run_stage, step_seed
from glocal.research.engine.recipe import Recipe
from glocal.research.engine.records import shipped_models
from glocal.research.methods import build_method
from glocal.research.ops.similarity import pool
from glocal.research.types import normalize


class TrainBatch(NamedTuple):
    images: Tensor  # uint8 (B, 3, H, W)
    place: Tensor  # (B,) among the pictures of the stage
    weight: float  # of its mean among those of all ranks


class PretrainStage:
    """Cross-entropy over the base classes; every picture is decoded once and stays in memory, unless they are many."""

    def __init__(self, recipe: Recipe, device: torch.device):
        self.recipe, self.device = recipe, device
        self.data = data = open_dataset(recipe.data.dataset, "train", skip_bad=recipe.data.skip_bad)
        rows = part_of(data, recipe)
        if min(recipe.pretrain.batch_size, len(rows)) < world().size:
            raise RecipeError(
                f"a batch must have a picture for each of the {world().size} processes, got pretrain.batch_size = "
                f"{recipe.pretrain.batch_size} of {len(rows)} pictures",
                code="empty-share",
            )
        self.model = start_model(recipe, data, device)
        if self.model.method.needs_base:  # said before hours of training, not at the first validation
            raise RecipeError(
                f"method {recipe.method.name} as set here needs the base classes, which pre-training has yet to learn; "
                'validate with method.name = "protonet" and train this method afterwards',
                code="needs-base",
            )
        backbone = self.model.backbone
        self.augment = recipe.augment
        stored = self.augment.source(backbone.preprocess)
        self.images = ImageLoader(data, stored, workers=recipe.data.workers).hold(rows)
        self.labels = torch.from_numpy(data.label[rows])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(step_seed(recipe.seed, 0, salt=1))
            self.classifier = nn.Linear(backbone.channels, len(data.classes)).to(device)
        if recipe.init is not None:
            self._keep_classifier(recipe.init)
        # The classifier stays in the checkpoint: some methods remember the base classes by its rows.
        self.model.extra.update({f"base.{name}": t for name, t in self.classifier.state_dict().items()})
        self.modules: Mapping[str, nn.Module] = {"backbone": backbone, "classifier": self.classifier}
        self.per_epoch = max(1, len(rows) // recipe.pretrain.batch_size)
        self.steps = recipe.pretrain.epochs * self.per_epoch
        share = -(-min(recipe.pretrain.batch_size, len(rows)) // world().size) * self.augment.copies
        self.parts = -(-share // (recipe.pretrain.micro_batch or share))
        self.batch = Ahead(self._batch, end=self.steps)

    def losses(self, step: int, part: int = 0) -> dict[str, Tensor]:
        us, batch = world(), self.batch(step)
        torch.manual_seed(step_seed(self.recipe.seed, step, salt=5 + us.rank + us.size * part))  # dropout
        # Every parts-th picture: where four rotations make four of each, a part has all four of its pictures.
        images, place = (each[part :: self.parts] for each in (batch.images, batch.place))
        share = batch.weight * len(images) / len(batch.images)
        logits = self.classifier(pool(maps_of(self.model.backbone, self._prepare(images), self.recipe)))
        smoothing = self.recipe.pretrain.label_smoothing
        return {"base": F.cross_entropy(logits, self.labels[place].to(self.device), label_smoothing=smoothing) * share}

    def _batch(self, step: int) -> TrainBatch:
        """This rank's pictures of a step, augmented: on the GPU if there is one, else ahead of time on the CPU."""
        epoch, batch = divmod(step, self.per_epoch)
        size = self.recipe.pretrain.batch_size
        order = np.random.default_rng((self.recipe.seed, epoch)).permutation(len(self.images))
        us, chosen = world(), order[batch * size : (batch + 1) * size]
        rows = torch.from_numpy(chosen[us.rank :: us.size])
        generator = torch.Generator().manual_seed(step_seed(self.recipe.seed, step * us.size + us.rank, salt=2))
        images = self.augment(on_device(self.images[rows], self.device), generator)
        weight = len(rows) * us.size / len(chosen)  # ranks are averaged, and shares may be unequal
        return TrainBatch(images, rows.repeat(self.augment.copies), weight)

    def _keep_classifier(self, source: str) -> None:
        """Start with the classifier that ``init`` was pre-trained with, where it learned these classes.

        Imported weights do not say which classes they learned.
        """
        before = load_model(source)
        weight, bias = (before.extra.get(f"base.{name}") for name in ("weight", "bias"))
        same = list(before.record.get("data", {}).get("classes", ())) == list(self.data.classes)
        if same and weight is not None and bias is not None:
            with torch.no_grad():
                self.classifier.weight.copy_(weight)
                self.classifier.bias.copy_(bias)

    def _prepare(self, images: Tensor) -> Tensor:
        images = normalize(images.to(self.device), self.model.backbone.preprocess)
        return images.contiguous(memory_format=torch.channels_last)


pretrain = partial(run_stage, PretrainStage)  # (recipe, folder, *, resume, device, callback) -> TrainedModel


def maps_of(backbone: Backbone, images: Tensor, recipe: Recipe) -> Tensor:
    """The maps, computed in the recipe's precision.  Heads, energies and losses get them in float32: an energy differs
    by tenths between known and unknown, of which bfloat16 keeps little."""
    precision = getattr(torch, recipe.speed.precision)
    with torch.autocast(images.device.type, precision, enabled=precision != torch.float32):
        maps: Tensor = backbone(images)
    return maps if precision == torch.float32 else maps.float()


def start_model(recipe: Recipe, data: ClassDataset, device: torch.device) -> TrainedModel:
    """The model a stage begins with: a new one, or the backbone of ``init`` under the recipe's method."""
    with torch.random.fork_rng(devices=[]):  # models are built on the CPU
        torch.manual_seed(step_seed(recipe.seed, 0, salt=3))
        if recipe.init is None:
            assert recipe.backbone is not None  # the recipe was checked
            backbone_record = {"name": recipe.backbone.name, "settings": recipe.backbone.settings}
            backbone, chain = build_backbone(recipe.backbone.name, recipe.backbone.settings), []
            if backbone.weights_in_package:
                backbone_record["packaged"] = backbone.fingerprint()
            before = None
        else:
            before = load_model(recipe.init)
            backbone, backbone_record = before.backbone, dict(before.record["backbone"])
            if recipe.init in shipped_models() and "packaged" not in backbone_record:
                backbone_record |= {"packaged": backbone.fingerprint(), "model": recipe.init}
            _check_same_backbone(recipe, backbone_record)
            chain = [*before.record.get("chain", []), before.record.get("recipe")]
        method = build_method(recipe.method.name, backbone.channels, recipe.method.settings)
        if method.early_channels and method.early_channels != backbone.early_channels:
            raise RecipeError(
                f"method.early_channels must be the {backbone.early_channels} channels of the earlier stage that the "
                f"backbone returns (its setting stages), got {method.early_channels}",
                code="early-channels",
            )
        if before is not None:
            _inherit(method, before.method)
    record = {
        "backbone": backbone_record,
        "method": {"name": recipe.method.name, "settings": recipe.method.settings},
        "preprocess": backbone.preprocess.to_json(),
        "recipe": recipe.model_dump(mode="json"),
        "chain": chain,
        "data": {"dataset": recipe.data.dataset, "manifest": data.manifest, "classes": list(data.classes)},
    }
    return TrainedModel(backbone.on(device), method.to(device), record, dict(before.extra) if before else {})


def _check_same_backbone(recipe: Recipe, there: Mapping[str, Any]) -> None:
    asked = recipe.backbone
    if asked is not None and (asked.name, asked.settings) != (there["name"], there["settings"]):
        raise RecipeError(
            f"[backbone] of the recipe differs from the one in init = {recipe.init} ({there['name']} with "
            f"{there['settings']}), whose weights it starts from; leave [backbone] out",
            code="other-backbone",
        )


def _inherit(method: nn.Module, before: nn.Module) -> None:
    """Take over the weights that the method of the previous stage has under the same name and shape."""
    own, old = method.state_dict(), before.state_dict()
    shared = {name: old[name] for name in own if name in old and old[name].shape == own[name].shape}
    method.load_state_dict(shared, strict=False)


def part_of(data: ClassDataset, recipe: Recipe) -> npt.NDArray[np.int64]:
    """The base pictures this stage may use.  Order within a class comes from content, so the cut is a random one."""
    chosen = []
    for c in range(len(data.classes)):
        members = data.members(c)
        cut = len(members) - round(len(members) * recipe.data.holdout)
        chosen.append({"all": members, "pretrained": members[:cut], "held-out": members[cut:]}[recipe.data.part])
    rows = np.concatenate(chosen)
    if not len(rows):
        raise DataError(
            f"data.holdout = {recipe.data.holdout} leaves no picture of {data.name} in the part {recipe.data.part!r}: "
            f"its classes have at most {data.counts.max()}",
            code="no-pictures",
        )
    return rows

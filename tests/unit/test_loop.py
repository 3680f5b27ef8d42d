"""The training loop: what it may open, when it stops, and what it leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from glocal.research import data as registry
from glocal.research.engine import pretrain, train
from glocal.research.engine.checkpoint import BEST, LAST, load_model, read_checkpoint
from glocal.research.engine.features import views
from glocal.research.engine.loop import TrainingStopped, run_stage
from glocal.research.engine.pretrain import PretrainStage
from glocal.research.engine.recipe import Recipe, parse_recipe
from glocal.research.engine.run_folder import METRICS, Callbacks
from glocal.research.engine.train import TrainStage
from refusal import refused
from tiny_runs import fields, make_dataset


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path_factory.getbasetemp() / "loop-cache"))


def recipe_of(dataset: Path, stage: str = "pretrain", **sections: Any) -> Recipe:
    made = fields(dataset, stage, **sections)
    if "backbone" in made:
        made["backbone"] = {"name": "conv4", "width": 4, "image_size": 16} | (sections.get("backbone") or {})
    return parse_recipe(made)


def run(recipe: Recipe, folder: Path, **how: Any) -> Any:
    return (pretrain.pretrain if recipe.stage == "pretrain" else train.train)(recipe, folder, **how)


def frozen(dataset: Path, init: Path, *, method: str = "feat", optimizer: Any = None, **more: Any) -> Recipe:
    """A head on the backbone of ``init``; ``more`` settings of [train]."""
    settings = {"train": {"backbone": "frozen", "tasks": 4} | more, "optimizer": optimizer or {}}
    return recipe_of(dataset, "train", init=str(init), backbone=None, method={"name": method}, **settings)


@pytest.fixture(scope="module")
def pretrained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained") / "run"
    run(recipe_of(dataset, pretrain={"epochs": 2}), folder)
    return folder


def snapshot(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (LAST, BEST, METRICS) if (folder / name).exists()}


class TestSplits:
    @pytest.mark.parametrize("kind", ["pretrain", "frozen", "fine-tuned"])
    def test_training_opens_train_and_val_and_never_test(self, pretrained: Path, tmp_path: Path, kind: str) -> None:
        dataset = make_dataset(tmp_path / "data", splits={"train": 5, "val": 4})  # there is no test to open
        if kind == "pretrain":
            recipe = recipe_of(dataset, pretrain={"epochs": 1})
        elif kind == "frozen":
            recipe = frozen(dataset, pretrained)
        else:
            recipe = recipe_of(dataset, "train", train={"tasks": 2})
        run(recipe, tmp_path / "run")
        assert read_checkpoint(tmp_path / "run" / BEST)[1]["validation"]

    def test_held_out_pictures_are_apart_and_a_part_too_small_is_refused(self, dataset: Path) -> None:
        data = registry.open_dataset(dataset, "train")
        parts = [
            pretrain.part_of(data, recipe_of(dataset, data={"dataset": str(dataset), "holdout": 0.25, "part": part}))
            for part in ("all", "pretrained", "held-out")
        ]
        assert [len(part) for part in parts] == [40, 30, 10]
        assert sorted(np.concatenate(parts[1:]).tolist()) == parts[0].tolist()
        assert np.bincount(data.label[parts[2]]).tolist() == [2] * 5
        recipe = recipe_of(dataset, data={"dataset": str(dataset), "holdout": 0.99, "part": "pretrained"})
        with refused("no-pictures", "data.holdout = 0.99"):
            PretrainStage(recipe, torch.device("cpu"))
        recipe = recipe_of(dataset, "train", data={"dataset": str(dataset), "holdout": 0.25, "part": "held-out"})
        with refused("data", "data.holdout = 0.25", "data.part=all"):
            TrainStage(recipe, torch.device("cpu"))


class TestFolder:
    def test_a_folder_with_a_run_is_only_resumed(self, dataset: Path, pretrained: Path, tmp_path: Path):
        before = snapshot(pretrained)
        with refused("run-exists", "--resume"):
            run(recipe_of(dataset, pretrain={"epochs": 2}), pretrained)
        assert snapshot(pretrained) == before
        other = recipe_of(dataset, pretrain={"epochs": 2}, optimizer={"lr": 0.07}, augment={"flip": True})
        changes = "augment.flip (False there, True now), optimizer.lr (0.05 there, 0.07 now);"
        with refused("other-recipe", changes):
            run(other, pretrained, resume=True)
        before = snapshot(pretrained)
        run(recipe_of(dataset, pretrain={"epochs": 2}), pretrained, resume=True)
        assert snapshot(pretrained) == before
        more_workers = recipe_of(dataset, pretrain={"epochs": 2}, data={"dataset": str(dataset), "workers": 3})
        run(more_workers, pretrained, resume=True)
        assert snapshot(pretrained) == before
        for name in ("metrics.jsonl", "recipe.json"):
            (tmp_path / "mine").mkdir(exist_ok=True)
            (tmp_path / "mine" / name).write_text('{"loss": 1.0}')
            with refused("not-a-run", name):
                run(recipe_of(dataset), tmp_path / "mine")
            assert [each.read_text() for each in (tmp_path / "mine").iterdir()] == ['{"loss": 1.0}']
            (tmp_path / "mine" / name).unlink()
        with refused("no-run"):
            run(recipe_of(dataset), tmp_path / "none", resume=True)
        assert not (tmp_path / "none").exists()

    def test_other_pictures_under_the_same_name_are_refused(self, tmp_path: Path) -> None:
        data = make_dataset(tmp_path / "data")
        recipe = recipe_of(data, pretrain={"epochs": 1})
        run(recipe, tmp_path / "run")
        Image.new("RGB", (16, 16)).save(data / "train" / "train0" / "new.png")
        with refused("other-pictures"):
            run(recipe, tmp_path / "run", resume=True)

    def test_the_record_tells_how_the_model_came_about(self, dataset: Path, pretrained: Path, tmp_path: Path) -> None:
        recipe = frozen(dataset, pretrained)
        run(recipe, tmp_path / "run")
        record = load_model(tmp_path / "run").record
        assert record["recipe"] == recipe.model_dump(mode="json")
        assert [stage["stage"] for stage in record["chain"]] == ["pretrain"]
        assert record["data"]["manifest"] == registry.open_dataset(dataset, "train").manifest
        assert set(record["validation"]) >= {"acc", "auroc"}
        assert record["preprocess"]["size"] == 16
        assert json.loads((tmp_path / "run" / "recipe.json").read_text()) == record["recipe"]


@pytest.mark.parametrize("choose", ["auroc", "acc"])
def test_best_is_the_highest_validation_and_the_earliest_of_equals(dataset: Path, tmp_path: Path, choose: str) -> None:
    few = {"choose": choose, "every": 1, "tasks": 1, "query": 1}  # few answers: many of them are equally good
    run(recipe_of(dataset, validation=few), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    found = [line[f"val_{choose}"] for line in lines if f"val_{choose}" in line]
    assert len(found) == 15 > len(set(found))
    record, last = (read_checkpoint(tmp_path / "run" / name)[1] for name in (BEST, LAST))
    assert (record["step"], record["validation"][choose]) == (1 + found.index(max(found)), max(found))
    assert (last["step"], last["best"]) == (15, max(found))


class TestNotFinite:
    @staticmethod
    def nan_at(step: int, *, gradient: bool = False) -> type[PretrainStage]:
        class Spoilt(PretrainStage):
            def losses(self, at: int, part: int = 0) -> dict[str, Tensor]:
                terms = super().losses(at, part)
                if at == step:  # sqrt at 0 has a value and no slope
                    factor = (terms["base"] * 0).sqrt() if gradient else torch.tensor(float("nan"))
                    terms["base"] = terms["base"] + factor
                return terms

        return Spoilt

    @pytest.mark.usefixtures("saved_always")
    @pytest.mark.parametrize("gradient", [False, True])
    def test_training_stops_and_the_last_good_state_stays(self, dataset: Path, tmp_path: Path, gradient: bool) -> None:
        recipe, folder = recipe_of(dataset), tmp_path / "run"
        stage = self.nan_at(7, gradient=gradient)
        with pytest.raises(TrainingStopped) as caught:
            run_stage(stage, recipe, folder)
        said = str(caught.value)
        assert ("the gradient" if gradient else "the loss (base = nan)") in said
        assert "not finite at step 7 of seed 0" in said
        assert f"python -m pdb -m glocal pretrain {folder}/recipe.json --out {folder} --resume" in said
        tensors, record = read_checkpoint(folder / LAST)
        assert record["step"] == 7
        assert all(torch.isfinite(t).all() for t in tensors.values() if t.is_floating_point())
        assert read_checkpoint(folder / BEST)[1]["step"] == 4
        kept = snapshot(folder)
        with pytest.raises(TrainingStopped, match="step 7"):
            run_stage(stage, recipe, folder, resume=True)
        assert snapshot(folder) == kept, "running into it again touches nothing"

    def test_even_at_the_first_step_there_is_something_to_resume(self, dataset: Path, tmp_path: Path):
        with pytest.raises(TrainingStopped, match="step 0"):
            run_stage(self.nan_at(0), recipe_of(dataset), tmp_path / "run")
        assert read_checkpoint(tmp_path / "run" / LAST)[1]["step"] == 0


class Heard(Callbacks):
    """The losses of all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def step(self, step: int, steps: int, terms: Any) -> None:
        self.losses.append(terms["base"])


class TestStages:
    def test_nothing_to_train(self, dataset: Path, pretrained: Path, tmp_path: Path) -> None:
        with refused("nothing-to-train", "protonet"):
            run(frozen(dataset, pretrained, method="protonet"), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("method", [{"name": "eol"}, {"name": "protonet", "centre": True}])
    def test_pretraining_cannot_be_validated_by_a_method_that_remembers_base_classes(
        self, dataset: Path, tmp_path: Path, method: dict[str, Any]
    ) -> None:
        with refused("needs-base", method["name"]):
            run(recipe_of(dataset, method=method), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("centre", [False, True])
    def test_the_earlier_stage_is_as_wide_as_the_backbone_says(self, dataset: Path, tmp_path: Path, centre: bool):
        method = {"name": "peeler", "variant": "gaussian", "early_channels": 1, "auxiliary_weight": 0.0}
        recipe = recipe_of(dataset, "train", backbone={"width": 8}, method=method | {"centre": centre})
        with refused("early-channels", "the 0 channels", "got 1"):
            run(recipe, tmp_path / "run")

    def test_no_tasks_put_the_method_on_the_backbone_as_it_is(self, dataset: Path, pretrained: Path, tmp_path: Path):
        recipe = frozen(dataset, pretrained, method="protonet", tasks=0)
        run(recipe, tmp_path / "run")
        placed = load_model(tmp_path / "run")
        assert placed.backbone.fingerprint() == load_model(pretrained).backbone.fingerprint()
        assert placed.record["step"] == 0
        assert 0 <= placed.record["validation"]["auroc"] <= 1
        run(recipe, tmp_path / "run", resume=True)  # finished: the same again

    def test_a_frozen_backbone_stays_as_it_was_and_the_method_learns(
        self, dataset: Path, pretrained: Path, tmp_path: Path
    ) -> None:
        before = load_model(pretrained)
        after = run(frozen(dataset, pretrained, views=2), tmp_path / "run")
        assert after.backbone.fingerprint() == before.backbone.fingerprint()
        start = TrainStage(frozen(dataset, pretrained), torch.device("cpu")).model.method.state_dict()
        moved = [name for name, value in after.method.state_dict().items() if not torch.equal(value, start[name])]
        assert moved

    def test_fine_tuning_moves_the_backbone_at_its_own_rate(self, dataset: Path, pretrained: Path, tmp_path: Path):
        still = {"lr": 0.1, "lr_backbone": 1e-30, "weight_decay": 0.0}
        for name, optimizer in (("moved", {"lr": 0.1}), ("still", still)):
            run(frozen(dataset, pretrained, optimizer=optimizer, backbone="fine-tuned", tasks=3), tmp_path / name)
        weights = {
            name: load_model(folder).backbone.get_parameter("layer1.0.weight")
            for name, folder in (("start", pretrained), ("moved", tmp_path / "moved"), ("still", tmp_path / "still"))
        }
        assert torch.equal(weights["start"], weights["still"])
        assert not torch.equal(weights["start"], weights["moved"])

    @pytest.mark.parametrize("rotate", ["none", "four"])
    def test_pretraining_learns(self, dataset: Path, tmp_path: Path, rotate: str) -> None:
        """Also with four rotations, each of which keeps the label of its picture."""
        changed = {
            "augment": {"rotate": rotate},
            "pretrain": {"batch_size": 20, "epochs": 20},
            "optimizer": {"lr": 0.02},
        }
        recipe = recipe_of(dataset, backbone={"width": 16}, validation={"every": 1000}, **changed)
        run(recipe, tmp_path / "run", callback=(heard := Heard()))
        assert np.mean(heard.losses[-5:]) < 0.5 * np.mean(heard.losses[:5])

    def test_settings_that_cannot_be_kept_are_refused(self, dataset: Path, pretrained: Path):
        device = torch.device("cpu")
        flipped = recipe_of(dataset, augment={"flip": True}).augment
        augmented = frozen(dataset, pretrained).model_copy(update={"augment": flipped})
        with refused("frozen-augment"):
            TrainStage(augmented, device)
        with refused("views-not-frozen"):
            TrainStage(recipe_of(dataset, "train", train={"views": 2}), device)
        with refused("other-backbone", str(pretrained)):
            TrainStage(recipe_of(dataset, "train", init=str(pretrained), backbone={"width": 8}), device)
        with refused("recipe", "at most 10"):
            views(11, 32)

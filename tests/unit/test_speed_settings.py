"""``[speed]``: other roundings, other machine code, the same training; and the curves of ``--tensorboard``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch

from faults import Stop
from glocal.research.backbones.base import Backbone
from glocal.research.engine import features
from glocal.research.engine.checkpoint import LAST, read_checkpoint
from glocal.research.engine.distributed import StepLosses
from glocal.research.engine.pretrain import PretrainStage, pretrain
from glocal.research.engine.recipe import Recipe, load_recipe, parse_recipe
from glocal.research.engine.train import STAGES, TrainStage, train
from refusal import one_sentence
from tiny_runs import fields

CPU = torch.device("cpu")
SPEEDS = ["float32", "bfloat16"]


def gel(dataset: Path, precision: str = "float32", **train_settings: Any) -> Recipe:
    return parse_recipe(
        fields(
            dataset,
            "train",
            method={"name": "gel", "temperature": 4.0},
            train={"tasks": 5} | train_settings,
            speed={"precision": precision},
        )
    )


def classify(dataset: Path, **speed: Any) -> Recipe:
    return parse_recipe(fields(dataset, "pretrain", pretrain={"epochs": 1}, speed=speed))


class TestPrecision:
    @pytest.mark.parametrize("stage", ["pretrain", "train"])
    def test_bfloat16_gives_nearly_the_same_losses(self, dataset: Path, stage: str) -> None:
        terms = {}
        for precision in SPEEDS:
            built = (
                PretrainStage(classify(dataset, precision=precision), CPU)
                if stage == "pretrain"
                else TrainStage(gel(dataset, precision), CPU)
            )
            losses = StepLosses(built).train()
            terms[precision] = losses(0)
        exact, rounded = terms.values()
        assert exact.keys() == rounded.keys()
        for name in exact:
            assert rounded[name].dtype == exact[name].dtype == torch.float32
            assert rounded[name].item() != exact[name].item(), "something must have been rounded"
            torch.testing.assert_close(rounded[name], exact[name], rtol=0.05, atol=0.02)

    def test_it_stops_before_the_head(self, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An energy of bfloat16 maps is computed from them exactly: only the backbone rounds."""
        stage = TrainStage(gel(dataset, "bfloat16"), CPU)
        method, tasks, inside = stage.model.method, [], []
        loss = method.loss

        def seen(episode: Any) -> Any:
            tasks.append(episode)
            inside.append(torch.is_autocast_enabled("cpu"))
            return loss(episode)

        monkeypatch.setattr(method, "loss", seen)
        stage.model.eval()  # no dropout between the two
        terms = StepLosses(stage)(0)
        (task,) = tasks
        assert inside == [False]
        assert task.query.dtype == torch.float32
        assert torch.equal(task.query, task.query.bfloat16().float()), "the backbone itself has rounded"
        exact = method.double().loss(task.to(dtype=torch.float64))
        for name, term in terms.items():
            assert term.item() == pytest.approx(exact[name].item(), abs=1e-5), name

    def test_banks_are_exact(self, dataset: Path) -> None:
        """They are found again by other runs, which may have asked for float32."""
        maps = []
        for precision in reversed(SPEEDS):
            stage = TrainStage(gel(dataset, precision, backbone="frozen"), CPU)
            StepLosses(stage)(0)
            (bank,) = stage.banks
            backbone, rows = stage.model.backbone, stage.rows
            fresh = features.FeatureBank.in_memory(backbone, stage.data, wanted=rows)
            assert torch.equal(bank(rows), fresh(rows))
            maps.append(bank(rows))
        assert torch.equal(*maps)


SMALL = {  # recipes that name their threads, with what makes them learn something here
    "frozen-head": ("init=cifar-fs-cpu/backbone", "data.holdout=0.0", "data.part=all", "method.name=feat"),
    "demo-gel": ("init=embedded-protonet",),
    "demo-protonet": ("pretrain.epochs=1", "pretrain.batch_size=8"),
}


class TestThreads:
    @pytest.fixture(autouse=True)
    def as_before(self) -> Iterator[None]:
        before = torch.get_num_threads()
        yield
        torch.set_num_threads(before)

    @pytest.mark.parametrize("name", SMALL)
    def test_small_trainings_do_not_depend_on_the_cores(self, dataset: Path, tmp_path: Path, name: str) -> None:
        task = [f"{part}.{key}=2" for part in ("train", "validation") for key in ("way", "unknown_way", "query")]
        few = ["train.tasks=4", "train.shot=1", "train.views=1", "validation.tasks=2", "data.workers=1", *task]
        recipe = load_recipe(name, [f"data.dataset={dataset}", *few, *SMALL[name]])
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            STAGES[recipe.stage](recipe, tmp_path / str(threads))
            assert torch.get_num_threads() == threads, "as it was before"
            found.append(read_checkpoint(tmp_path / str(threads) / LAST)[0])
        one, two = found
        assert one.keys() == two.keys()
        assert [key for key in one if not torch.equal(one[key], two[key])] == []

    def test_the_number_holds_while_it_trains_and_no_longer_whatever_ends_it(
        self, dataset: Path, tmp_path: Path
    ) -> None:
        seen: list[int] = []

        class Watch(Stop):
            def step(self, step: int, steps: int, terms: Any) -> None:
                seen.append(torch.get_num_threads())
                super().step(step, steps, terms)

        torch.set_num_threads(1)
        with pytest.raises(KeyboardInterrupt):
            pretrain(classify(dataset, threads=2), tmp_path, callback=Watch(2))
        assert (seen, torch.get_num_threads()) == ([2, 2], 1)


@pytest.mark.parametrize("backbone", ["fine-tuned", "frozen"])
def test_a_backbone_that_learns_is_compiled_when_asked(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backbone: str
) -> None:
    """Told to, and no more: real compilation takes a minute and a C++ compiler.  Names of weights stay."""
    asked: list[Backbone] = []
    monkeypatch.setattr(Backbone, "compile", lambda self, **how: asked.append(self), raising=False)
    names = []
    for compiled in (False, True):
        sections = {"train": {"backbone": backbone, "tasks": 1}, "speed": {"compile": compiled}}
        recipe = parse_recipe(fields(dataset, "train", method={"name": "feat"}, **sections))
        model = train(recipe, tmp_path / str(compiled))
        names.append(read_checkpoint(tmp_path / str(compiled) / LAST)[0].keys())
    assert asked == ([model.backbone] if backbone == "fine-tuned" else [])
    assert names[0] == names[1]


class Board:
    """Stands in for torch's SummaryWriter."""

    def __init__(self, folder: str, purge_step: int):
        self.about, self.points, self.closed = (folder, purge_step), [], False
        self.opened.append(self)

    opened: ClassVar[list[Board]] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.points.append((tag, step))

    def close(self) -> None:
        self.closed = True


def test_curves_of_a_run_for_tensorboard(
    dataset: Path, tmp_path: Path, glocal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, module = tmp_path / "recipe.json", ModuleType("torch.utils.tensorboard")
    recipe.write_text(json.dumps(classify(dataset).model_dump(mode="json")))
    words = ("pretrain", recipe, "--out", tmp_path / "run", "--device", "cpu", "--tensorboard")
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    one_sentence(glocal(*words), "pip install 'glocal[tensorboard]'")
    module.SummaryWriter = Board  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    one_sentence(glocal(*words, "--resume"))
    assert Board.opened == [], "a refused run has no curves"
    assert glocal(*words)[0] == 0
    (board,) = Board.opened
    assert board.about == (str(tmp_path / "run" / "tensorboard"), 1)
    assert [step for tag, step in board.points if tag == "loss/base"] == [5], "every tenth, and the last"
    assert [step for tag, step in board.points if tag == "validation/auroc"] == [4, 5]
    assert board.closed

"""Evaluation: rows equal to those computed by hand, nothing run twice, no more answers kept than asked for."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glocal
from glocal.common.cache import cache_dir, clear_banks
from glocal.research.data import ClassDataset, open_dataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec
from glocal.research.engine.checkpoint import TrainedModel
from glocal.research.engine.compare import evaluate_models
from glocal.research.engine.evaluate import build_banks, evaluate, evaluate_tasks
from glocal.research.engine.named_models import NamedModel, RowStore, code_hash, name_model
from glocal.research.methods import METHODS
from glocal.research.metrics import task_metrics
from glocal.research.types import to_one_hot
from pictures import write_file
from refusal import refused
from tiny_models import tiny_base, tiny_model

SPEC = EpisodeSpec(2, 1, 3, 2, 3)
SHAPE = {"way": 2, "query": 3, "device": "cpu"}


@pytest.fixture(scope="module")
def data(dataset: Path) -> ClassDataset:
    return open_dataset(dataset, "test")


def encoded() -> list[int]:
    """How many pictures each bank has, from few to many."""
    return sorted(sum(file.read_bytes()) for file in (cache_dir() / "banks").rglob("done.bin"))


class Rows(RowStore):
    """Notes the models that are run and not read."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.ran: list[str] = []

    def write(self, model: NamedModel, *more: Any) -> None:
        self.ran.append(model.name)
        super().write(model, *more)


def plain(rows: Any) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in rows.items()}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_rows_are_those_of_every_task_alone(data: ClassDataset, method: str) -> None:
    model = tiny_model(method, **({"epochs": 2} if method == "dnpg" else {}))
    if model.method.needs_base:
        model.method.set_base(tiny_base(model.backbone.channels))
    tasks = EpisodeSampler(data, SPEC, seed=3).take(3)
    (bank,) = build_banks(model.backbone, data, [tasks], workers=1)
    found = evaluate_tasks(model.method, tasks, bank)
    assert model.method.training, "as it was"
    model.method.eval()
    for i, draw in enumerate(tasks):
        with torch.inference_mode():
            out = model.method(draw.episode(bank))
        for name, value in task_metrics(out.logits, out.open_score, draw.query_label).items():
            assert found.rows[name][i] == value, (name, i)
    assert found.tasks == tasks.fingerprint()
    assert found.summary()["acc"].mean == np.mean(found.rows["acc"])
    assert [answer.logits.shape for answer in found.answers] == [(12, 2)] * 3


def test_one_call_opens_the_split_draws_the_tasks_and_says_what_it_did(dataset: Path, tmp_path: Path):
    seen: list[tuple[str, int, int]] = []
    model, file = tiny_model("gel"), tmp_path / "tasks.json"
    first = glocal.evaluate(
        model, dataset, split="val", tasks=5, seed=4, save_tasks=file, progress=lambda *s: seen.append(s), **SHAPE
    )
    assert [s for s in seen if s[0] == "tasks"] == [("tasks", i, 5) for i in range(1, 6)]
    assert seen[0][0] == "encode"
    about = first.to_json()
    assert (about["method"], about["seed"], about["tasks"], about["tasks_fingerprint"]) == ("gel", 4, 5, first.tasks)
    again = evaluate(model, dataset, split="val", tasks=file, device="cpu")
    other = evaluate(model, dataset, split="val", tasks=5, score="entropy", **SHAPE)
    assert again.tasks == first.tasks != other.tasks
    assert plain(again.rows) == plain(first.rows)
    assert (first.about["open_score"], other.about["open_score"], model.method.score_name) == ("E", "entropy", "E")
    assert list(evaluate(model, dataset, unknown_way=0, tasks=3, **SHAPE).summary()) == ["acc"]


def test_the_model_of_the_caller_stays_as_it_is(dataset: Path) -> None:
    model = tiny_model("gel")
    model.backbone.train()
    model.method.train()
    weights = [p for p in model.backbone.parameters() if p.ndim == 4]
    evaluate(model, dataset, tasks=2, **SHAPE)
    glocal.compare({"a": model, "b": tiny_model()}, dataset, tasks=2, shots=(1,), way=2, query=3, device="cpu")
    assert model.backbone.training
    assert model.method.training
    assert all(p.is_contiguous() for p in weights)


def test_a_model_that_diverged_is_refused(dataset: Path) -> None:
    model = tiny_model("gel")
    with torch.no_grad():
        next(iter(model.method.parameters())).fill_(float("nan"))
    with refused("data", "NaN"):
        evaluate(model, dataset, tasks=2, **SHAPE)


def scored(name: str, of: TrainedModel, score: str) -> NamedModel:
    return replace(name_model(name, of), score=score)


def test_several_models_get_the_rows_that_each_gets_alone(data: ClassDataset) -> None:
    gel = tiny_model("gel")
    models = [name_model("proto", tiny_model()), scored("gel", gel, "E"), scored("gel, entropy", gel, "entropy")]
    lists = [EpisodeSampler(data, EpisodeSpec(2, shot, 3, 2, 3)).take(5, keep=False) for shot in (1, 4)]
    found = evaluate_models(models, data, lists, workers=1)
    assert encoded() == [len(np.union1d(*(tasks.images() for tasks in lists)))], "one pass over the pictures"
    for tasks, evaluations in zip(lists, found, strict=True):
        for each in models:
            each.model.method.choose_score(each.score)
            (bank,) = build_banks(each.model.backbone, data, [tasks])
            alone = evaluate_tasks(each.model.method, tasks, bank)
            assert plain(evaluations[each.name].rows) == plain(alone.rows)
            assert evaluations[each.name].tasks == tasks.fingerprint()
            assert evaluations[each.name].answers == ()
    rows = {name: each.rows for name, each in found[0].items()}
    assert all(len(set(rows[each.name]["auroc"].tolist())) > 2 for each in models), "scores that tell something"
    assert rows["gel"]["acc"].tolist() == rows["gel, entropy"]["acc"].tolist()
    assert rows["gel"]["auroc"].tolist() != rows["gel, entropy"]["auroc"].tolist()


def test_support_enters_once_per_view(data: ClassDataset) -> None:
    each = name_model("proto", tiny_model())
    tasks = EpisodeSampler(data, EpisodeSpec(2, 2, 3, 2, 3)).take(4)
    (found,) = evaluate_models([each], data, [tasks], support_views=3)
    support = len(set(np.concatenate([draw.support for draw in tasks]).tolist()))
    assert encoded() == [support, support, len(tasks.images())]

    method = each.model.method.eval()
    banks = build_banks(each.model.backbone, data, [tasks], support_views=3)
    for i, draw in enumerate(tasks):
        with torch.inference_mode():
            shown = torch.cat([bank(draw.support) for bank in banks])
            assert not torch.equal(banks[0](draw.support), banks[1](draw.support)), "a flipped picture has another map"
            one_hot = to_one_hot(torch.from_numpy(np.concatenate([draw.support_label] * 3)))
            out = method.score(method.enroll(method.embed(shown), one_hot), method.embed(banks[0](draw.query)))
        for name, value in task_metrics(out.logits, out.open_score, draw.query_label).items():
            assert found["proto"].rows[name][i] == pytest.approx(value, abs=1e-12), (name, i)
    alone = evaluate_tasks(method, tasks, banks[0], more_views=banks[1:])
    assert plain(alone.rows) == plain(found["proto"].rows)


SHARP = b"""
from glocal.research.backbones.conv4 import Conv4
from glocal.research.methods.base import Comparison
from glocal.research.methods.protonet import ProtoNet
from .formula import sharpen

class Sharp(ProtoNet):
    def compare(self, state, query):
        compared = super().compare(state, query)
        return Comparison(sharpen(compared.logits), {'nearest': lambda: compared.scores['nearest']})

class Sharper(Conv4):
    def forward(self, x):
        return sharpen(super().forward(x))
"""


class TestKeptRows:
    def lists(self, data: ClassDataset, *shots: int, seed: int = 0) -> list[Any]:
        return [EpisodeSampler(data, EpisodeSpec(2, shot, 3, 2, 3), seed=seed).take(3, keep=False) for shot in shots]

    def test_only_what_is_new_is_run(self, data: ClassDataset, tmp_path: Path) -> None:
        store = Rows(tmp_path / "rows")
        proto, gel = name_model("proto", tiny_model()), name_model("gel", tiny_model("gel"))
        first = evaluate_models([proto], data, self.lists(data, 1), store=store)
        second = evaluate_models([proto, gel], data, self.lists(data, 1, 2), store=store)
        assert store.ran == ["proto", "gel", "proto", "gel"]
        assert plain(second[0]["proto"].rows) == plain(first[0]["proto"].rows)
        clear_banks()
        third = evaluate_models([gel, proto], data, self.lists(data, 2, 1), store=store)
        assert (len(store.ran), encoded()) == (4, []), "nothing is encoded when nothing is run"
        for name in ("proto", "gel"):
            assert plain(third[1][name].rows) == plain(second[0][name].rows)
        assert len(list((tmp_path / "rows").iterdir())) == 4

    def test_what_the_numbers_depend_on_is_run_again(self, data: ClassDataset, tmp_path: Path) -> None:
        store, lists = Rows(tmp_path), self.lists(data, 1)
        evaluate_models([name_model("gel", tiny_model("gel"))], data, lists, store=store)
        evaluate_models([name_model("another name", tiny_model("gel"))], data, lists, store=store)
        assert len(store.ran) == 1
        evaluate_models([name_model("gel", tiny_model("gel", seed=1))], data, lists, store=store)
        evaluate_models([name_model("gel", tiny_model("gel", energy_weight=0.2))], data, lists, store=store)
        evaluate_models([scored("gel", tiny_model("gel"), "E_c")], data, lists, store=store)
        evaluate_models([name_model("gel", tiny_model("gel"))], data, lists, store=store, support_views=2)
        evaluate_models([name_model("gel", tiny_model("gel"))], data, self.lists(data, 1, seed=5), store=store)
        assert len(store.ran) == 6

    def test_a_damaged_file_is_run_again(self, data: ClassDataset, tmp_path: Path) -> None:
        each, lists, store = name_model("proto", tiny_model()), self.lists(data, 1), Rows(tmp_path / "rows")
        whole = evaluate_models([each], data, lists, store=store)
        (file,) = (tmp_path / "rows").iterdir()
        text = file.read_text()
        for damaged in ("", text[: len(text) // 2], "[1]", json.dumps(json.loads(text) | {"tasks": "others"})):
            file.write_text(damaged)
            again = evaluate_models([each], data, lists, store=store)
            assert plain(again[0]["proto"].rows) == plain(whole[0]["proto"].rows)
            assert file.read_text() == text
        assert len(store.ran) == 5

    def test_an_edited_formula_is_run_again_and_another_ones_is_not(
        self, data: ClassDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A package of somebody else's: method and backbone take their formula from a second file."""
        write_file(tmp_path / "edited" / "__init__.py", b"")
        write_file(tmp_path / "edited" / "unrelated.py", b"X = 1")
        write_file(tmp_path / "edited" / "formula.py", b"def sharpen(x): return x")
        write_file(tmp_path / "edited" / "plugin.py", SHARP)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()

        def model() -> NamedModel:
            for name in [name for name in sys.modules if name.startswith("edited")]:
                del sys.modules[name]
            plugin = importlib.import_module("edited.plugin")
            torch.manual_seed(0)
            backbone = plugin.Sharper(width=4, image_size=16)
            return name_model("sharp", TrainedModel(backbone, plugin.Sharp(backbone.channels, open_score="entropy")))

        store, lists, built_in = Rows(tmp_path / "rows"), self.lists(data, 1), name_model("proto", tiny_model())
        before = code_hash(built_in)
        first = evaluate_models([model(), built_in], data, lists, store=store)
        write_file(tmp_path / "edited" / "unrelated.py", b"X = 2")
        evaluate_models([model(), built_in], data, lists, store=store)
        assert store.ran == ["sharp", "proto"]
        write_file(tmp_path / "edited" / "formula.py", b"def sharpen(x): return -5 * x")
        second = evaluate_models([model(), built_in], data, lists, store=store)
        assert store.ran == ["sharp", "proto", "sharp"]
        assert plain(second[0]["sharp"].rows) != plain(first[0]["sharp"].rows)
        assert code_hash(built_in) == before != code_hash(model())
        maps = [build_banks(model().model.backbone, data, [lists[0]])[0] for _ in range(2)]
        write_file(tmp_path / "edited" / "formula.py", b"def sharpen(x): return 3 * x")
        maps.append(build_banks(model().model.backbone, data, [lists[0]])[0])
        rows = lists[0].images()[:2]
        assert torch.equal(maps[0](rows), maps[1](rows))
        assert not torch.equal(maps[0](rows), maps[2](rows)), "maps of the cache follow the code too"

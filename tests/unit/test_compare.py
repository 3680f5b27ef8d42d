"""A comparison gives the rows that each model gets alone, runs nothing twice and keeps no answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glocal.data import ClassDataset, EpisodeSampler, EpisodeSpec, FeatureBank, open_dataset
from glocal.engine import compare as engine
from glocal.engine import support_views
from glocal.engine.checkpoint import Model
from glocal.engine.compare import compare, measure
from glocal.engine.contestants import Contestant, contestant
from glocal.engine.evaluate import evaluate
from glocal.engine.row_store import RowStore
from glocal.engine.support_views import view_banks
from glocal.methods import METHODS
from glocal.metrics import task_metrics
from glocal.types import BaseClasses
from tiny_models import tiny_model
from tiny_runs import make_dataset

SPEC = EpisodeSpec(2, 1, 3, 2, 3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ClassDataset:
    return open_dataset(make_dataset(tmp_path_factory.mktemp("compare") / "data"), "test")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures each bank was asked for."""
    asked: list[int] = []
    build = FeatureBank.build

    def counted(encoder: Any, dataset: Any, *, wanted: Any, **how: Any) -> FeatureBank:
        asked.append(len(wanted))
        return build(encoder, dataset, wanted=wanted, **how)

    monkeypatch.setattr(support_views.FeatureBank, "build", counted)
    return asked


def scored(name: str, of: Model, score: str) -> Contestant:
    return replace(contestant(name, of), score=score)


def test_rows_are_those_of_each_model_alone(data: ClassDataset, encoded: list[int]) -> None:
    gel = tiny_model("gel")
    contestants = [contestant("proto", tiny_model()), scored("gel", gel, "E"), scored("gel, entropy", gel, "entropy")]
    lists = [EpisodeSampler(data, EpisodeSpec(2, shot, 3, 2, 3)).take(5, keep=False) for shot in (1, 4)]
    found = compare(contestants, data, lists, workers=1)
    assert encoded == [len(np.union1d(*(tasks.images() for tasks in lists)))], "one pass over the pictures"
    for tasks, compared in zip(lists, found, strict=True):
        assert compared.tasks == tasks.fingerprint()
        for each in contestants:
            each.model.method.choose_score(each.score)
            bank = FeatureBank.build(each.model.backbone.eval(), data, wanted=tasks.images())
            alone = evaluate(each.model.method, tasks, bank)
            assert compared.rows[each.name].keys() == alone.rows.keys()
            for metric, values in alone.rows.items():
                assert compared.rows[each.name][metric].tolist() == values.tolist(), (each.name, metric)
    rows = found[0].rows
    assert all(len(set(rows[each.name]["auroc"].tolist())) > 2 for each in contestants), "scores that tell something"
    assert rows["gel"]["acc"].tolist() == rows["gel, entropy"]["acc"].tolist()
    assert rows["gel"]["auroc"].tolist() != rows["gel, entropy"]["auroc"].tolist()


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_can_be_compared(data: ClassDataset, method: str) -> None:
    """``measure`` goes through ``compare`` of a method, ``evaluate`` through its ``forward``."""
    each = contestant(method, tiny_model(method))
    if each.model.method.needs_base:
        rows = torch.rand(6, each.model.backbone.channels)
        each.model.method.set_base(BaseClasses(tuple("abcdef"), rows, rows.flip(0), rows.mean(dim=0)))
    tasks = EpisodeSampler(data, SPEC, seed=1).take(3)
    bank = FeatureBank.build(each.model.backbone.eval(), data, wanted=tasks.images())
    found, alone = measure([each], tasks, bank)[method], evaluate(each.model.method, tasks, bank).rows
    assert {name: values.tolist() for name, values in found.items()} == {n: v.tolist() for n, v in alone.items()}


def test_blocks_of_tasks_come_out_in_order(data: ClassDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BLOCK", 3)
    each = contestant("gel", tiny_model("gel"))
    tasks = EpisodeSampler(data, SPEC, seed=2).take(7)
    bank = FeatureBank.build(each.model.backbone.eval(), data, wanted=tasks.images())
    seen: list[tuple[int, int]] = []
    waiting: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    add = engine._Waiting.add
    monkeypatch.setattr(
        engine._Waiting, "add", lambda self, *more: (add(self, *more), waiting.append(len(self.answers)))
    )
    found = measure([each], tasks, bank, progress=progress)["gel"]
    whole = evaluate(each.model.method, tasks, bank).rows
    assert {name: values.tolist() for name, values in found.items()} == {n: v.tolist() for n, v in whole.items()}
    assert seen == [(i, 7) for i in range(1, 8)]
    assert waiting == [1, 2, 0, 1, 2, 0, 1], "no more answers are kept than a block has"


def test_models_with_other_backbones_get_maps_of_their_own(data: ClassDataset, encoded: list[int]) -> None:
    tasks = EpisodeSampler(data, SPEC).take(9)
    found = compare([contestant("a", tiny_model()), contestant("b", tiny_model(seed=1))], data, [tasks])
    assert encoded == [len(tasks.images())] * 2
    assert found[0].rows["a"]["auroc"].tolist() != found[0].rows["b"]["auroc"].tolist()


def test_support_enters_once_per_view(data: ClassDataset, encoded: list[int]) -> None:
    each = contestant("proto", tiny_model())
    tasks = EpisodeSampler(data, EpisodeSpec(2, 2, 3, 2, 3)).take(4)
    rows = compare([each], data, [tasks], support_views=3)[0].rows["proto"]
    support = len(set(np.concatenate([draw.support for draw in tasks]).tolist()))
    assert encoded == [len(tasks.images()), support, support]

    backbone, method = each.model.backbone.eval(), each.model.method.eval()
    banks = view_banks(backbone, data, [tasks], support_views=3)
    for i, draw in enumerate(tasks):
        with torch.inference_mode():
            shown = torch.cat([bank(draw.support) for bank in banks])
            assert not torch.equal(banks[0](draw.support), banks[1](draw.support)), "a flipped picture has another map"
            label = torch.from_numpy(np.concatenate([draw.support_label] * 3))
            out = method.score(method.enroll(method.embed(shown), label), method.embed(banks[0](draw.query)))
        for name, value in task_metrics(out.logits, out.open_score, draw.query_label).items():
            assert rows[name][i] == pytest.approx(value, abs=1e-12), (name, i)
    alone = evaluate(method, tasks, banks[0], more_views=banks[1:])
    assert alone.rows["auroc"].tolist() == rows["auroc"].tolist()


class TestResuming:
    @pytest.fixture
    def ran(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
        """(name, shot) of everything that is measured and not read."""
        done: list[tuple[str, int]] = []

        def noted(contestants: Any, tasks: Any, *more: Any, **how: Any) -> Any:
            done.extend((each.name, tasks.spec.shot) for each in contestants)
            return measure(contestants, tasks, *more, **how)

        monkeypatch.setattr(engine, "measure", noted)
        return done

    def lists(self, data: ClassDataset, *shots: int, seed: int = 0) -> list[Any]:
        return [EpisodeSampler(data, EpisodeSpec(2, shot, 3, 2, 3), seed=seed).take(3, keep=False) for shot in shots]

    def test_only_what_is_new_is_run(self, data: ClassDataset, tmp_path: Path, ran: Any, encoded: list[int]) -> None:
        store = RowStore(tmp_path / "rows")
        proto, gel = contestant("proto", tiny_model()), contestant("gel", tiny_model("gel"))
        first = compare([proto], data, self.lists(data, 1), store=store)
        assert ran == [("proto", 1)]
        second = compare([proto, gel], data, self.lists(data, 1, 2), store=store)
        assert ran[1:] == [("gel", 1), ("proto", 2), ("gel", 2)]
        assert second[0].rows["proto"]["auroc"].tolist() == first[0].rows["proto"]["auroc"].tolist()
        banks = len(encoded)
        third = compare([gel, proto], data, self.lists(data, 2, 1), store=store)
        assert len(ran) == 4
        assert len(encoded) == banks, "nothing is encoded when nothing is run"
        for name in ("proto", "gel"):
            assert third[1].rows[name]["oscr"].tolist() == second[0].rows[name]["oscr"].tolist()
        assert len(list((tmp_path / "rows").iterdir())) == 4

    def test_what_the_numbers_depend_on_is_run_again(self, data: ClassDataset, tmp_path: Path, ran: Any) -> None:
        store, lists = RowStore(tmp_path), self.lists(data, 1)
        compare([contestant("gel", tiny_model("gel"))], data, lists, store=store)
        compare([contestant("another name", tiny_model("gel"))], data, lists, store=store)
        assert len(ran) == 1
        others = [tiny_model("gel", seed=1), tiny_model("gel", energy_weight=0.2)]
        for n, other in enumerate(others, 2):
            compare([contestant("gel", other)], data, lists, store=store)
            assert len(ran) == n
        compare([scored("gel", tiny_model("gel"), "E_c")], data, lists, store=store)
        compare([contestant("gel", tiny_model("gel"))], data, lists, store=store, support_views=2)
        compare([contestant("gel", tiny_model("gel"))], data, self.lists(data, 1, seed=5), store=store)
        assert len(ran) == 6

    def test_a_damaged_file_is_run_again(self, data: ClassDataset, tmp_path: Path, ran: Any) -> None:
        each, lists = contestant("proto", tiny_model()), self.lists(data, 1)
        whole = compare([each], data, lists, store=RowStore(tmp_path / "rows"))
        (file,) = (tmp_path / "rows").iterdir()
        text = file.read_text()
        for damaged in ("", text[: len(text) // 2], "[1]", json.dumps(json.loads(text) | {"tasks": "others"})):
            file.write_text(damaged)
            again = compare([each], data, lists, store=RowStore(tmp_path / "rows"))
            assert again[0].rows["proto"]["acc"].tolist() == whole[0].rows["proto"]["acc"].tolist()
            assert file.read_text() == text
        assert len(ran) == 5

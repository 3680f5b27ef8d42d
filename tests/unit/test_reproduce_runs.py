"""Make sure a run exists: named by what it depends on, reused, continued, shared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from filelock import FileLock

from faults import Stop
from glocal.research.engine.checkpoint import BEST, LAST, read_checkpoint
from glocal.research.engine.loop import Interrupted
from glocal.research.reproduce.runs import DONE, LOCKS, Run, RunSettings, about_run, ensure_run, folder_of, make_runs
from tiny_runs import fields, make_dataset


@pytest.fixture
def recipes(dataset: Path, tmp_path: Path) -> dict[str, str]:
    """Paths of a pre-training and of a head that takes ten steps."""
    wanted = {
        "encoder": fields(dataset, "pretrain", pretrain={"epochs": 1}),
        "head": fields(
            dataset,
            "train",
            backbone=None,
            init="?",
            method={"name": "snatcher-l"},
            train={"backbone": "frozen", "tasks": 10},
        ),
    }
    for name, content in wanted.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return {name: str(tmp_path / f"{name}.json") for name in wanted}


def stopped(title: str) -> Stop | None:
    """As a signal does, in the seventh step of a head."""
    return Stop(7, Interrupted("stopped", 15)) if "snatcher" in title else None


def test_the_name_follows_from_recipe_pictures_and_start(recipes: dict[str, str], tmp_path: Path):
    encoder = Run(recipes["encoder"])
    head = Run(recipes["head"], init=encoder)
    # What they say anyway, and what changes no number.
    same = Run(recipes["head"], ("optimizer.lr=0.05", "data.workers=7"), Run(recipes["encoder"], ("seed=0",)))
    assert folder_of(head, tmp_path) == folder_of(same, tmp_path)
    others = [
        Run(recipes["head"], ("optimizer.lr=0.04",), encoder),
        Run(recipes["head"], ("seed=1",), encoder),
        Run(recipes["head"], init=Run(recipes["encoder"], ("seed=1",))),  # another run to start from
        Run(recipes["head"], init="embedded-protonet"),
        encoder,
    ]
    assert len({folder_of(run, tmp_path) for run in [head, *others]}) == 6
    before = folder_of(head, tmp_path)
    assert folder_of(head, tmp_path / "elsewhere").name == before.name
    alike = fields(make_dataset(tmp_path / "data", per_class=9), "pretrain", pretrain={"epochs": 1})
    content = json.loads(Path(recipes["encoder"]).read_text())
    Path(recipes["encoder"]).write_text(json.dumps(content | {"data": alike["data"]}))
    assert folder_of(head, tmp_path) != before, "other pictures are another run"


def test_a_run_is_made_once_with_all_before_it(recipes: dict[str, str], tmp_path: Path) -> None:
    made: list[str] = []

    def watch(title: str) -> None:
        made.append(title)

    shop = RunSettings(tmp_path, callback=watch)
    head = Run(recipes["head"], init=Run(recipes["encoder"]))
    folder = ensure_run(head, shop)
    assert folder is not None
    assert [name.rsplit("-", 1)[0] for name in made] == ["protonet", "snatcher-l"]
    make_runs([head, head], shop)
    assert len(made) == 2
    about = about_run(folder)
    assert about["recipe"]["init"] == made[0]
    assert about["seed"] == 0
    assert len(about["data"]["manifest"]) == 64
    assert str(tmp_path) not in json.dumps(about["recipe"] | {"data": None})


def test_what_was_interrupted_goes_on_and_ends_the_same(recipes: dict[str, str], tmp_path: Path) -> None:
    head = Run(recipes["head"], init=Run(recipes["encoder"]))
    whole = ensure_run(head, RunSettings(tmp_path / "whole"))
    assert whole is not None
    home = tmp_path / "broken"
    with pytest.raises(Interrupted):
        ensure_run(head, RunSettings(home, callback=stopped))
    folder = folder_of(head, home / "runs")
    assert (folder / LAST).exists()
    assert not (folder / DONE).exists()
    assert ensure_run(head, RunSettings(home)) == folder
    first, again = read_checkpoint(whole / BEST)[0], read_checkpoint(folder / BEST)[0]
    assert all(first[name].equal(again[name]) for name in first)


def test_what_another_process_makes_is_left_for_last(recipes: dict[str, str], tmp_path: Path) -> None:
    order: list[str] = []
    home = tmp_path / "runs"
    first, second = Run(recipes["encoder"]), Run(recipes["encoder"], ("seed=1",))
    (home / LOCKS).mkdir(parents=True)
    taken = FileLock(home / LOCKS / f"{folder_of(first, home).name}.lock")
    taken.acquire()

    def watch(title: str) -> None:
        order.append(title)
        if taken.is_locked:
            taken.release()  # the other process has ended, without finishing

    assert ensure_run(first, RunSettings(tmp_path), wait=False) is None
    make_runs([first, second], RunSettings(tmp_path, callback=watch))
    assert order == [folder_of(run, home).name for run in (second, first)]

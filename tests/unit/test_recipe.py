"""Recipes: every mistake is one sentence that names the key, before anything is computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glocal.common.errors import RecipeError
from glocal.research.engine.distributed import pick_device
from glocal.research.engine.recipe import Optimizer, load_recipe, parse_recipe, shipped_recipes
from refusal import refused


def plain(**sections: Any) -> dict[str, Any]:
    recipe = {"stage": "train", "data": {"dataset": "x"}, "backbone": {"name": "conv4"}, "method": {"name": "protonet"}}
    return {name: value for name, value in (recipe | sections).items() if value is not None}


def refusal(**sections: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(plain(**sections))
    return str(caught.value)


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"sede": 1}, "sede: unknown 'sede', did you mean 'seed'?"),
        ({"optimizer": {"momentun": 0.9}}, "optimizer.momentun: unknown 'momentun', did you mean 'momentum'?"),
        (
            {"backbone": {"name": "conv4", "widht": 3}},
            "backbone.widht of conv4: unknown 'widht', did you mean 'width'?",
        ),
        ({"method": {"name": "gel", "center": True}}, "method.center of gel: unknown 'center', did you mean 'centre'?"),
        ({"method": {"name": "protonets"}}, "method.name: unknown 'protonets', did you mean 'protonet'?"),
        (
            {"method": {"name": "protonet", "dim": 3}},  # the engine's to give
            "method.dim of protonet: unknown 'dim', there is centre, distance, open_score, temperature",
        ),
        # types and ranges
        ({"optimizer": {"lr": "fast"}}, "optimizer.lr should be a valid number, got 'fast'"),
        ({"optimizer": {"lr": float("nan")}}, "optimizer.lr should be a finite number, got nan"),
        ({"optimizer": {"milestones": [0.5, 60]}}, "optimizer.milestones.1 should be less than 1, got 60"),
        ({"train": {"tasks": "100"}}, "train.tasks should be a valid integer, got '100'"),
        ({"augment": {"flip": "yes"}}, "augment.flip should be a valid boolean, got 'yes'"),
        ({"seed": -1}, "seed should be greater than or equal to 0, got -1"),
        ({"stage": "test"}, "stage should be 'pretrain' or 'train', got 'test'"),
        ({"data": {}}, "data.dataset is required and missing"),
        ({"data": "cifar-fs"}, "data must be a section with keys, got 'cifar-fs'"),
        ({"backbone": {"name": "conv4", "width": "wide"}}, "backbone.width of conv4 must be int, got 'wide'"),
        ({"method": {"name": "gel", "m_known": float("inf")}}, "method.m_known of gel must be float, got inf"),
        ({"method": {"name": "protonet", "centre": 1}}, "method.centre must be true or false, got 1"),
        ({"backbone": {"name": "pixels"}}, "backbone.image_size is required for backbone pixels and missing"),
        # our own sentences: pydantic wraps what a validator raises, and its prefix may not show
        ({"backbone": None}, "a recipe needs [backbone], or the run to start from (--init RUN); it has neither"),
        (
            {"validation": {"unknown_way": 0}},
            'validation.choose = "auroc" needs validation.unknown_way of at least 1; or choose "acc"',
        ),
        (
            {"data": {"dataset": "x", "part": "held-out"}},
            'data.part = "held-out" needs data.holdout above 0: nothing was held out',
        ),
        (
            {"augment": {"rotate": "four"}},
            'augment.rotate = "four" is for pre-training; a task has each picture once, use "one"',
        ),
    ],
)
def test_every_mistake_is_one_sentence(sections: dict[str, Any], sentence: str) -> None:
    assert refusal(**sections) == sentence


def test_overrides_are_toml_values_or_text(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('stage = "train"\n[data]\ndataset = "x"\n[backbone]\nname = "resnet12"\n[method]\nname = "gel"\n')
    recipe = load_recipe(
        path,
        [
            "optimizer.lr=0.05",
            "train.tasks = 7",
            "backbone.width=[4,4,8,8]",
            "augment.flip=true",
            "data.dataset=some/folder",
            "init=runs/a=b",
            "method.variant=energy",
        ],
    )
    assert (recipe.optimizer.lr, recipe.train.tasks, recipe.augment.flip) == (0.05, 7, True)
    assert (recipe.data.dataset, recipe.init) == ("some/folder", "runs/a=b")
    assert recipe.backbone is not None
    assert recipe.backbone.settings == {"width": [4, 4, 8, 8]}
    assert recipe.method.settings == {"variant": "energy"}


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("optimizer.lr", "an override is written path=value"),
        ("stage.lr=3", "stage is a value, not a section"),
        ("optimizer.lrr=3", "did you mean 'lr'?"),
        ("method.temperatur=3", "did you mean 'temperature'?"),
        ("train.tasks=many", "train.tasks should be a valid integer, got 'many'"),
        (f"train.tasks={'[' * 50_000}", "train.tasks should be a valid integer"),
    ],
)
def test_bad_overrides(tmp_path: Path, override: str, part: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text('stage = "train"\n[data]\ndataset = "x"\n[backbone]\nname = "conv4"\n[method]\nname = "protonet"\n')
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, [override])
    assert part in str(caught.value)


def test_unreadable_sources(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("stage = [")
    (tmp_path / "latin.toml").write_bytes(b'stage = "\xe9"')
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 50_000)
    (tmp_path / "deep.json").write_text("[" * 50_000)
    toml, other = ("broken.toml", "latin.toml", "deep.toml"), ("broken.json", "deep.json")
    for name, part in (*((name, "not valid TOML") for name in toml), *((name, "not valid JSON") for name in other)):
        with pytest.raises(RecipeError, match=part):
            load_recipe(tmp_path / name)
    with pytest.raises(RecipeError, match=r"neither a \.toml file nor one that ships; .*glocal list recipes"):
        load_recipe("no-such-recipe")


def test_the_resolved_recipe_survives_json(tmp_path: Path) -> None:
    """The recipe.json of a run, and the copy in its checkpoint, give the same recipe again."""
    recipe = parse_recipe(plain(optimizer={"milestones": [0.4, 0.7], "lr": 1}, method={"name": "gel", "top_k": 2}))
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe.model_dump(mode="json")))
    again = load_recipe(path)
    assert again == recipe
    assert again.optimizer.milestones == (0.4, 0.7)
    assert again.model_dump(mode="json") == recipe.model_dump(mode="json")


RESOLVED = json.loads((Path(__file__).parents[1] / "reference/recipes.json").read_text())


def test_shipped_recipes_resolve_to_what_they_were_before_they_extended_each_other() -> None:
    """What differs from the defaults; ``init`` is given where a stage starts from the run before it."""
    assert set(RESOLVED) <= set(shipped_recipes())
    for name, expected in RESOLVED.items():
        recipe = load_recipe(name, ["init=earlier"] if expected.get("init") == "earlier" else [])
        assert recipe.model_dump(mode="json", exclude_defaults=True) == expected, name


class TestExtends:
    @pytest.fixture
    def write(self, tmp_path: Path) -> Any:
        def write(name: str, text: str) -> Path:
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return path

        write(
            "base.toml",
            'stage = "train"\nseed = 3\n[data]\ndataset = "x"\nholdout = 0.1\n[backbone]\nname = "conv4"\nwidth = 8\n'
            '[method]\nname = "gel"\ntop_k = 2\n',
        )
        return write

    def test_sections_are_merged_and_a_chain_is_followed_from_where_each_file_lies(self, write: Any) -> None:
        write("below/middle.toml", 'extends = "../base.toml"\n[data]\ndataset = "y"\n[backbone]\nwidth = 4\n')
        top = write("top.toml", 'extends = "below/middle.toml"\nseed = 5\n[method]\nvariant = "energy"\n')
        recipe = load_recipe(top, ["data.holdout=0.2"])
        assert (recipe.seed, recipe.data.dataset, recipe.data.holdout) == (5, "y", 0.2)
        assert recipe.backbone is not None
        assert recipe.backbone.settings == {"width": 4}
        assert recipe.method.settings == {"top_k": 2, "variant": "energy"}
        assert "extends" not in recipe.model_dump()

    def test_a_shipped_recipe_is_named_as_on_the_command_line_and_a_section_by_its_name(self, write: Any):
        mine = load_recipe(write("mine.toml", 'extends = "cifar-fs-cpu-5shot"\n[train]\ntasks = 7\n'))
        assert mine == load_recipe("cifar-fs-cpu-5shot", ["train.tasks=7"])
        recipe = load_recipe(write("other.toml", 'extends = "base.toml"\n[method]\nname = "feat"\n'))
        assert (recipe.method.name, recipe.method.settings) == ("feat", {})

    def test_a_circle_is_refused(self, write: Any) -> None:
        write("a.toml", 'extends = "b.toml"\n')
        with refused("circle", "a.toml -> ", "b.toml -> "):
            load_recipe(write("b.toml", 'extends = "a.toml"\n'))
        with refused("circle", "self.toml"):
            load_recipe(write("self.toml", 'extends = "self.toml"\n'))

    @pytest.mark.parametrize(
        ("line", "word"),
        [('extends = "nobody"', "'nobody' is neither"), ("extends = 3", "got 3"), ("extends = []", "got []")],
    )
    def test_what_cannot_be_extended_is_named(self, write: Any, line: str, word: str) -> None:
        with refused("recipe", word):
            load_recipe(write("x.toml", line))
        with refused("recipe", "'extends'"):
            parse_recipe(plain(extends="base"))


class TestRates:
    """Learning-rate factors at places where a wrong formula gives another number."""

    @pytest.mark.parametrize(
        ("settings", "at", "expected"),
        [
            ({"schedule": "constant"}, [0.0, 0.5, 0.99], [1, 1, 1]),
            (
                {"schedule": "steps", "milestones": [0.4, 0.7], "gamma": 0.1},
                [0.0, 0.39, 0.4, 0.69, 0.7, 0.99],
                [1, 1, 0.1, 0.1, 0.01, 0.01],
            ),
            ({"schedule": "steps"}, [0.9], [1]),
            ({"schedule": "one-cycle", "warmup": 0.2}, [0.0, 0.1, 0.2, 0.6, 0.9999], [0, 0.5, 1, 0.5, 1e-3]),
            ({"schedule": "one-cycle", "warmup": 0.0}, [0.0, 0.5], [1, 0.5]),
            (
                {"schedule": "cosine", "warmup": 0.2},
                [0.1, 0.2, 0.4, 0.6, 0.8],
                [0.5, 1, 0.5 + 0.5 * 0.5**0.5, 0.5, 0.5 - 0.5 * 0.5**0.5],
            ),
            ({"schedule": "cosine", "warmup": 0.0}, [0.0], [1]),
        ],
    )
    def test_factors(self, settings: dict[str, Any], at: list[float], expected: list[float]) -> None:
        optimizer = Optimizer.model_validate(settings)
        assert [optimizer.factor(progress) for progress in at] == pytest.approx(expected, rel=1e-12)


def test_devices() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    for odd in ("", "gpu", "cpu:x", "cuda:", "cuda:-1", "CPU"):
        with pytest.raises(RecipeError, match=r"device must be auto, cpu, cuda or mps"):
            pick_device(odd)
    for absent in ("cpu:1", "cuda:99", "mps:1"):
        with pytest.raises(RecipeError, match=r"not available on this machine; usable here: .*cpu \(1\)"):
            pick_device(absent)

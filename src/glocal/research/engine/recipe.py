"""Recipes: one small TOML file per training stage, checked before anything is computed.

An unknown or misspelt key is refused with a suggestion.  The keys of ``[backbone]`` and ``[method]`` are the keyword
arguments of the class they name.  ``extends`` names the recipe that one differs from, section by section.
The resolved recipe travels in every checkpoint.
"""

from __future__ import annotations

import inspect
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from glocal.common.errors import RecipeError
from glocal.common.schemas import Record, sentence
from glocal.common.validation import shown
from glocal.common.words import meant
from glocal.research import plugins
from glocal.research.backbones import BACKBONES
from glocal.research.data.episodes import EpisodeSpec
from glocal.research.data.loader import Augment
from glocal.research.methods import METHODS, SWITCHES


class Data(Record):
    dataset: str  # a name of glocal.research.data.DATASETS, a folder below GLOCAL_DATA, or a path
    workers: int = Field(2, ge=1)  # threads that decode pictures; the result does not depend on it
    skip_bad: bool = False  # leave out pictures that cannot be read
    holdout: float = Field(0.0, ge=0, lt=1)  # share of each base class that pre-training leaves for the meta stage
    part: Literal["all", "pretrained", "held-out"] = "all"  # which of the base pictures this stage uses

    @model_validator(mode="after")
    def _part_exists(self) -> Data:
        if self.part == "held-out" and not self.holdout:
            raise RecipeError('data.part = "held-out" needs data.holdout above 0: nothing was held out')
        return self


class Component(BaseModel):
    """``name`` and the keyword arguments of what it names."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Optimizer(Record):
    """SGD with Nesterov momentum."""

    lr: float = Field(0.1, gt=0)  # of everything but the backbone when that has its own
    lr_backbone: float | None = Field(None, gt=0)  # of the backbone; None: the same
    momentum: float = Field(0.9, ge=0, lt=1)  # of the gradient, by Nesterov
    weight_decay: float = Field(5e-4, ge=0)  # share of every weight that is added to its gradient
    clip: float | None = Field(None, gt=0)  # largest gradient norm
    average: float = Field(0.0, ge=0, lt=1)  # decay of a moving average of the weights, which validation and BEST use
    schedule: Literal["constant", "steps", "one-cycle", "cosine"] = "steps"  # how the rates change
    # "steps": shares of the run after which the rate is multiplied by gamma; not strict, because TOML has only lists
    milestones: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], Field(strict=False)] = ()
    gamma: float = Field(0.1, gt=0, le=1)  # "steps": the factor at each milestone
    warmup: float = Field(0.2, ge=0, lt=1)  # "one-cycle" and "cosine": share of the run in which the rate rises

    def factor(self, progress: float) -> float:
        """On the rates, at ``progress`` in [0, 1): steps taken / steps in all."""
        if self.schedule == "constant":
            return 1.0
        if self.schedule == "steps":
            return self.gamma ** sum(progress >= milestone for milestone in self.milestones)
        if progress < self.warmup:
            return progress / self.warmup
        if self.schedule == "one-cycle":  # straight up, straight down to almost nothing
            return max(1e-3, (1 - progress) / (1 - self.warmup))
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup)))


class Pretraining(Record):
    epochs: int = Field(500, ge=1)  # times that every picture is seen
    batch_size: int = Field(128, ge=2)  # pictures per step
    # Pictures, rotations counted, that go through the backbone at once; gradients of a batch are added up.  None: all.
    # Batch norm sees this many at a time.
    micro_batch: int | None = Field(None, ge=2)
    label_smoothing: float = Field(0.0, ge=0, lt=1)  # share of the target that all classes have in common


class Tasks(Record):
    way: int = Field(5, ge=1)  # known classes per task
    shot: int = Field(1, ge=1)  # support pictures per known class
    query: int = Field(15, ge=1)  # queries per class
    unknown_way: int = Field(5, ge=0)  # unknown classes per task

    @property
    def spec(self) -> EpisodeSpec:
        return EpisodeSpec(self.way, self.shot, self.query, self.unknown_way, self.query)


class MetaTraining(Tasks):
    tasks: int = Field(60_000, ge=0)  # how many; 0: only put the method on the backbone, for methods that do not learn
    tasks_per_step: int = Field(1, ge=1)  # whose gradients are averaged
    backbone: Literal["frozen", "fine-tuned"] = "fine-tuned"  # frozen: maps from the bank, minutes on a CPU
    views: int = Field(1, ge=1)  # frozen: versions of each picture in the bank (plain, flipped, shifted)
    # Fine-tuned: steps of this stage in which DropBlock comes to full strength, from none.  None: it goes on from where
    # the run before stopped, and reaches full strength within a third of this one.
    dropblock_ramp: int | None = Field(None, ge=1)
    # Fine-tuned: the unknown classes' support goes through the backbone and GEL's calibration too, for the sake of
    # their batch norm alone.
    unknown_support: bool = False
    norm_momentum: float | None = Field(None, gt=0, lt=1)  # fine-tuned: of the backbone's batch norm, if not its own


class Validation(Tasks):
    """On the validation classes only; what chooses the checkpoint."""

    every: int = Field(500, ge=1)  # steps from one validation to the next
    tasks: int = Field(200, ge=1)  # of each validation, the same every time
    choose: Literal["acc", "auroc"] = "auroc"  # the metric by which the best checkpoint is kept

    @model_validator(mode="after")
    def _can_choose(self) -> Validation:
        if self.choose == "auroc" and not self.unknown_way:
            raise RecipeError('validation.choose = "auroc" needs validation.unknown_way of at least 1; or choose "acc"')
        return self


class Speed(Record):
    """Faster where the hardware has it, at a price: other roundings, and minutes of compilation.

    A frozen backbone, which has run before training begins, is neither rounded nor compiled.
    """

    # Of the backbone while it trains; weights, heads and losses stay float32.
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False  # the backbone by torch.compile; on a CPU that needs a C++ compiler
    # Threads that training computes with.  None: as many as the machine gives.  Another number takes sums in another
    # order, so a number that is named gives the same weights on a machine with more cores.
    threads: int | None = Field(None, ge=1)


class Recipe(Record):
    stage: Literal["pretrain", "train"]  # teach a backbone the base classes, or a method its tasks
    seed: int = Field(0, ge=0)  # of weights, order, augmentation and tasks
    init: str | None = None  # the run or checkpoint this stage starts from
    data: Data
    backbone: Component | None = None  # needed without init, otherwise taken from there
    method: Component
    augment: Augment = Augment()
    optimizer: Optimizer = Optimizer()
    pretrain: Pretraining = Pretraining()
    train: MetaTraining = MetaTraining()
    validation: Validation = Validation()
    speed: Speed = Speed()

    @model_validator(mode="after")
    def _parts_fit(self) -> Recipe:
        # The first argument, the channels of the maps, is the engine's to give.
        check_component("method", self.method, METHODS, given=1, switches=SWITCHES)
        if self.backbone is not None:
            check_component("backbone", self.backbone, BACKBONES)
        elif self.init is None:
            raise RecipeError("a recipe needs [backbone], or the run to start from (--init RUN); it has neither")
        if self.stage == "train" and self.augment.rotate == "four":
            raise RecipeError('augment.rotate = "four" is for pre-training; a task has each picture once, use "one"')
        if self.stage == "train" and self.train.backbone == "frozen":
            for key in ("dropblock_ramp", "unknown_support", "norm_momentum"):
                if getattr(self.train, key):
                    raise RecipeError(
                        f"train.{key} is for a backbone that learns, a frozen one does not; drop it, or set "
                        'train.backbone = "fine-tuned"'
                    )
        return self


def check_component(
    section: str,
    component: Component,
    registry: dict[str, Any],
    *,
    given: int = 0,
    switches: Iterable[str] = (),
) -> None:
    """Refuse names, keys and types that the registry does not know.

    ``given`` leading arguments are no settings; ``switches`` are true or false whatever the name.
    """
    plugins.load(f"glocal.{section}s", registry, component.name)
    if component.name not in registry:
        raise RecipeError(f"{section}.name: {_unknown(component.name, registry)}")
    factory = registry[component.name]
    accepted = dict(list(inspect.signature(factory, eval_str=True).parameters.items())[given:])
    known = {*accepted, *switches}
    for key, value in component.settings.items():
        if key not in known:
            raise RecipeError(f"{section}.{key} of {component.name}: {_unknown(key, known)}")
        if key not in accepted:
            if type(value) is not bool:
                raise RecipeError(f"{section}.{key} must be true or false, got {shown(value)}")
        elif not _fits(value, accepted[key].annotation):
            written = inspect.signature(factory).parameters[key].annotation
            raise RecipeError(f"{section}.{key} of {component.name} must be {written}, got {shown(value)}")
    for key, parameter in accepted.items():
        if parameter.default is parameter.empty and key not in component.settings:
            raise RecipeError(f"{section}.{key} is required for {section} {component.name} and missing")


def _fits(value: Any, annotation: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if annotation is inspect.Parameter.empty:
        return True
    try:
        TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def load_recipe(source: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe and what it extends, and apply ``path=value`` overrides.

    ``source`` is a TOML file, the recipe.json of a run, or the name of a recipe that ships with the package.
    """
    fields = _read(source)
    for override in overrides:
        _set(fields, override)
    return parse_recipe(fields)


def _read(source: str | Path, below: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a recipe over those of the one it extends; ``below`` are the recipes that extend this one."""
    if str(source) in below:
        raise RecipeError(f"recipes extend each other in a circle: {' -> '.join([*below, str(source)])}", code="circle")
    path, content = Path(source), plugins.recipe_file(source).read_bytes()
    read, kind = (json.loads, "JSON") if path.suffix == ".json" else (tomllib.loads, "TOML")
    try:
        fields = read(content.decode())
    except (ValueError, RecursionError) as error:  # of the decoder as well as of both parsers
        raise RecipeError(f"recipe {source} is not valid {kind}: {error}") from error
    if not isinstance(fields, dict):
        raise RecipeError(f"recipe {source} is not a table of sections, but a {type(fields).__name__}")
    if "extends" not in fields:
        return fields
    parent = fields.pop("extends")
    if not isinstance(parent, str):
        raise RecipeError(f"extends of recipe {source} must be a shipped recipe's name or a path, got {shown(parent)}")
    beside = path.parent / parent  # a path is meant from where the file lies
    base = beside.resolve() if path.is_file() and beside.is_file() else parent
    return _merged(_read(base, (*below, str(path.resolve() if path.is_file() else source))), fields)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` over ``base``, section by section; another ``name`` makes a section a new one."""
    merged = dict(base)
    for key, value in own.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and value.get("name", old.get("name")) == old.get("name"):
            value = _merged(old, value)
        merged[key] = value
    return merged


def parse_recipe(fields: Mapping[str, Any]) -> Recipe:
    """Check everything that can be checked without data; all problems of one recipe come in one message."""
    try:
        return Recipe.model_validate(fields)
    except ValidationError as error:
        raise RecipeError("; ".join(_sentence(problem) for problem in error.errors())) from error
    except (RecursionError, OverflowError) as error:
        raise RecipeError(f"a recipe with sections or numbers that Python cannot hold: {error}") from error


def shipped_recipes() -> list[str]:
    return sorted(plugins.recipes())


def _set(fields: dict[str, Any], override: str) -> None:
    """``train.tasks=200``: the value is read as TOML, and as text when it is none."""
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise RecipeError(f"an override is written path=value, for example optimizer.lr=0.05, got {shown(override)}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, or a number of thousands of digits
        value = text
    *sections, key = path.strip().split(".")
    for section in sections:
        fields = fields.setdefault(section, {})
        if not isinstance(fields, dict):
            raise RecipeError(f"override {shown(override)}: {section} is a value, not a section")
    fields[key] = value


def _sentence(problem: Any) -> str:
    where = ".".join(map(str, problem["loc"]))
    if isinstance(problem.get("ctx", {}).get("error"), RecipeError):
        return str(problem["ctx"]["error"])  # one of ours, already a sentence
    if problem["type"] == "extra_forbidden":
        model: Any = Recipe
        for part in problem["loc"][:-1]:
            model = model.model_fields[part].annotation
        return f"{where}: {_unknown(str(problem['loc'][-1]), model.model_fields)}"
    if problem["type"] == "model_type":
        return f"{where or 'a recipe'} must be a section with keys, got {shown(problem['input'])}"
    return sentence(problem)


def _unknown(name: str, choices: Iterable[str]) -> str:
    return f"unknown {shown(name)}, {meant(name, sorted(choices))}"

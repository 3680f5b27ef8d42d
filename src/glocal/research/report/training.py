"""Was a model trained as published?  If not, what was otherwise: data, stages, lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from glocal.research.engine.named_models import NamedModel
from glocal.research.engine.recipe import load_recipe

GEL = ("gel", "frozen-gel")
ONE_MODEL = ("feat", "snatcher-f")  # under two scores: what one has learned is the other's
PUBLISHED_FROZEN = ("rfdnet",)  # trained on frozen maps in their own papers
ADDED = {"teacher_weight": "itself as teacher", "turn_weight": "a question about turned pictures"}  # of [pretrain]
# Training tasks of those papers; GEL's and FEAT's are in their recipes, and the others stand on FEAT's.
PUBLISHED_TASKS = {"rfdnet": 12_000, "att": 39_000, "att-g": 39_000, "peeler-full": 30_000}


def other_training(each: NamedModel, dataset: str, shot: int | tuple[int, int]) -> Iterator[str]:
    """What was otherwise than published, in a few words each."""
    record = each.model.record
    recipe, chain = record.get("recipe") or {}, record.get("chain") or []
    data = record.get("data", {}).get("dataset") or recipe.get("dataset") or "other pictures"
    if Path(data).name != dataset:
        yield f"trained on {Path(data).name}"
    if before := _stages("pretrain", chain):
        yield from _other_pretraining(before, dataset)
    if recipe.get("stage") == "import":
        return
    recorded = None not in chain and not _stages("import", chain)  # how all that it starts from was trained
    if recorded and not _stages("pretrain", [*chain, recipe]) and not _is_full_peeler(each):
        yield f"not pre-trained on {dataset}"
    if recorded and each.method in GEL:
        if feat := _taught(ONE_MODEL, chain):
            yield from _fewer(feat, published_tasks("feat", dataset), "FEAT learned from")
        else:
            yield "without the FEAT stage"
    family = next((family for family in (GEL, ONE_MODEL) if each.method in family), (each.method,))
    taught = _taught(family, [*chain, recipe]) if recipe.get("stage") == "train" else []
    if not taught:
        if recorded or each.method not in ONE_MODEL:
            yield "not meta-trained"
        return
    backbone, there = taught[-1]["backbone"], "frozen" if each.method in PUBLISHED_FROZEN else "fine-tuned"
    if backbone != there:
        yield f"{backbone} backbone (there {there})"
    if taught[-1]["shot"] != shot:
        yield f"trained on {taught[-1]['shot']}-shot tasks"
    alike = [stage for stage in taught if stage["backbone"] == backbone]
    yield from _fewer(alike, published_tasks("peeler-full" if _is_full_peeler(each) else each.method, dataset))


def _stages(kind: str, chain: Iterable[Mapping[str, Any] | None]) -> list[Mapping[str, Any]]:
    return [recipe for recipe in chain if recipe and recipe.get("stage") == kind]


def _taught(methods: Iterable[str], chain: Iterable[Mapping[str, Any] | None]) -> list[Mapping[str, Any]]:
    """[train] of the stages in which one of these methods learned; with no tasks a method is only put on a backbone."""
    stages = [recipe["train"] for recipe in _stages("train", chain) if recipe["method"]["name"] in methods]
    return [stage for stage in stages if stage["tasks"]]


def _fewer(stages: Iterable[Mapping[str, Any]], usual: int, what: str = "trained on") -> Iterator[str]:
    tasks = sum(stage["tasks"] for stage in stages)
    if tasks < usual:
        yield f"{what} {tasks:,} tasks instead of {usual:,}"


def _is_full_peeler(each: NamedModel) -> bool:
    """It learned from nothing, without pre-training."""
    return each.method == "peeler" and each.settings.get("variant") == "gaussian"


def published_tasks(method: str, dataset: str) -> int:
    """How many a method was taught with."""
    if method in PUBLISHED_TASKS:
        return PUBLISHED_TASKS[method]
    stage = "gel-paper" if method in GEL else "feat"
    return load_recipe(f"{dataset}-{stage}-1shot", ["init=earlier"]).train.tasks


def _other_pretraining(stages: Sequence[Mapping[str, Any]], dataset: str) -> Iterator[str]:
    """It may have learned for less long than was published, all stages together, from fewer pictures, or otherwise."""
    usual, first = load_recipe(f"{dataset}-pretrain").pretrain.epochs, stages[0]["pretrain"]
    epochs = sum(stage["pretrain"]["epochs"] for stage in stages)
    if epochs < usual:
        start = f", from {first['widen']}" if first.get("widen") else ""
        yield f"pre-trained for {epochs} epochs{start} instead of {usual}"
    if left := max((stage.get("data") or {}).get("holdout") or 0 for stage in stages):
        yield f"pre-trained without {100 * left:g} % of the base pictures"
    if added := [what for key, what in ADDED.items() if any(stage["pretrain"].get(key) for stage in stages)]:
        yield f"pre-trained with {' and '.join(added)}"

"""Several models on the same tasks.  ``report.comparison`` makes tables of what is measured here.

Models that share a backbone share its maps: every picture is encoded once, and the maps of a task are fetched once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from glocal.common.markup import Html, rows_table
from glocal.research import plugins
from glocal.research.data import open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec, TaskList, unknown_share, with_unknown_share
from glocal.research.engine.checkpoint import TrainedModel
from glocal.research.engine.distributed import joined, world
from glocal.research.engine.evaluate import Evaluation, Progress, build_banks, computing_with, run_tasks
from glocal.research.engine.named_models import NamedModel, RowStore, check_reference, load_models
from glocal.research.metrics import METRICS


@dataclass(frozen=True)
class Conditions:
    """What a table is measured on."""

    dataset: str  # name or path, as given
    split: str
    classes: tuple[str, ...]
    spec: EpisodeSpec
    support_views: int = 1

    @property
    def name(self) -> str:
        """Of the data set."""
        return Path(self.dataset).name.removesuffix(".zip")


@dataclass(frozen=True)
class ModelComparison:
    """The evaluation of each model on each list of tasks."""

    models: Sequence[NamedModel]
    data: ClassDataset
    conditions: Sequence[Conditions]  # one per task list
    evaluations: Sequence[Mapping[str, Evaluation]]  # per task list, by the name of the model
    reference: str
    seed: int

    def __repr__(self) -> str:
        names, on = ", ".join(model.name for model in self.models), self.conditions[0]
        return f"<ModelComparison of {names} on {on.dataset}/{on.split}: {len(self.conditions)} task lists>"

    def _repr_html_(self) -> str:
        """For notebooks: a table per task list, a line per model."""
        return "".join(map(self._table, self.conditions, self.evaluations))

    def _table(self, on: Conditions, evaluations: Mapping[str, Evaluation]) -> Html:
        metrics = [metric for metric in METRICS if all(metric in each.rows for each in evaluations.values())]
        rows = []
        for name, evaluation in evaluations.items():
            summary = evaluation.summary()
            rows.append((name, *(f"{100 * summary[m].mean:.2f} ± {100 * summary[m].half:.2f}" for m in metrics)))
        caption = f"{on.name}/{on.split}, {on.spec.way}-way {on.spec.shot}-shot, {unknown_share(on.spec):.0%} unknown"
        return rows_table(("model", *(METRICS[m].title for m in metrics)), rows, caption=caption)


def compare(
    models: Sequence[str] | Mapping[str, TrainedModel | str],
    dataset: ClassDataset | str | Path,
    *,
    split: str = "test",
    shots: Sequence[int] = (1, 5),
    way: int = 5,
    query: int = 15,
    unknown_way: int | None = None,
    unknown_shares: Sequence[float] | None = None,
    support_views: int = 1,
    tasks: int = 600,
    seed: int = 0,
    reference: str | None = None,
    keep: str | Path | None = None,
    skip_bad: bool = False,
    workers: int = 2,
    device: str = "auto",
    progress: Progress | None = None,
) -> ModelComparison:
    """Measure models on the same tasks, one list of tasks for each of ``shots`` and ``unknown_shares``.

    Parameters
    ----------
    models : sequence of str, or mapping of str to TrainedModel or str
        Models named as RUN, RUN:SCORE or LABEL=RUN:SCORE, or models by the names of their rows.
    dataset : ClassDataset, str or Path
        A data set, or its name or folder.
    split : str
        Split of the data set: train, val, test or all.
    shots : sequence of int
        Support images of each known class, one list of tasks for each number.
    way : int
        Known classes of a task.
    query : int
        Queries of each class.
    unknown_way : int, optional
        Unknown classes of a task; ``way`` when left out.
    unknown_shares : sequence of float, optional
        Shares of unknown queries, one list of tasks for each.
    support_views : int
        Views of each support image that are enrolled.
    tasks : int
        Tasks of each list.
    seed : int
        Seed of the tasks.
    reference : str, optional
        Row that differences are taken against; the first one when left out.
    keep : str or Path, optional
        Folder for the rows of each model; rows that are there are read and not run again.
    skip_bad : bool
        Leave unreadable images out instead of stopping.
    workers : int
        Threads that read images.
    device : str
        auto, cpu or cuda.
    progress : callable, optional
        Called with the stage ("encode" or "tasks"), the number done and the total.

    Returns
    -------
    ModelComparison
        Every evaluation, with paired differences and ranks.

    Examples
    --------
    >>> import glocal
    >>> glocal.compare(["embedded-protonet", "embedded-gel"], "embedded", shots=(1,))  # doctest: +SKIP
    """
    unknown = way if unknown_way is None else unknown_way
    specs = [EpisodeSpec(way, shot, query, unknown, query) for shot in shots]
    if unknown_shares is not None:
        specs = [with_unknown_share(spec, share) for spec in specs for share in unknown_shares]
    named = load_models(models)
    base = check_reference(reference, named)
    data = dataset if isinstance(dataset, ClassDataset) else open_dataset(dataset, split, skip_bad=skip_bad)
    lists = [EpisodeSampler(data, spec, seed=seed).take(tasks, keep=False) for spec in specs]
    with joined(device) as where:
        evaluations = evaluate_models(
            named,
            data,
            lists,
            support_views=support_views,
            store=None if keep is None else RowStore(Path(keep)),
            device=where,
            workers=workers,
            progress=progress,
        )
    name = data.name if dataset is data else str(dataset)
    conditions = [Conditions(name, split, data.classes, spec, support_views) for spec in specs]
    return ModelComparison(named, data, conditions, evaluations, base, seed)


def evaluate_models(
    models: Sequence[NamedModel],
    data: ClassDataset,
    lists: Sequence[TaskList],
    *,
    support_views: int = 1,
    keep_answers: bool = False,
    keep_maps: bool = True,
    store: RowStore | None = None,
    device: torch.device | str = "cpu",
    workers: int = 2,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Evaluation]]:
    """Per list of tasks the evaluation of every model, by name.

    Without ``keep_answers`` memory does not grow with the tasks, and rows that ``store`` has are read from there.
    Without ``keep_maps`` those of fine-tuned models, which no other model has, are dropped after use.
    ``threads``: how many compute the tasks, whose last digits depend on it.
    """
    plugins.load(plugins.METRICS, METRICS)
    world().largest(0)  # all find the same rows in the store: what the first wrote last is there
    hashes = [tasks.fingerprint() for tasks in lists]
    results: list[dict[str, Evaluation]] = [{} for _ in lists]
    if store is not None and not keep_answers:
        for i, tasks in enumerate(hashes):
            for each in models:
                rows = store.read(each, tasks, support_views)
                if rows is not None:
                    results[i][each.name] = Evaluation(rows, tasks)
    for encoder in dict.fromkeys(each.encoder for each in models):
        todo = {i: [m for m in models if m.encoder == encoder and m.name not in results[i]] for i in range(len(lists))}
        todo = {i: missing for i, missing in todo.items() if missing}
        if not todo:
            continue
        alike = [each for each in models if each.encoder == encoder]
        backbone = alike[0].model.backbone
        encoding = None if progress is None else partial(progress, "encode")
        options: dict[str, Any] = {"device": device, "workers": workers, "progress": encoding}
        pooled = all(each.model.method.pooled for missing in todo.values() for each in missing)
        options |= {"support_views": support_views, "pooled": pooled}
        plain, *more = build_banks(backbone, data, [lists[i] for i in todo], **options)
        for i, missing in todo.items():
            with computing_with(threads):
                results[i] |= run_tasks(
                    {each.name: (each.model.method, each.score) for each in missing},
                    lists[i],
                    plain,
                    fingerprint=hashes[i],
                    more_views=more,
                    keep_answers=keep_answers,
                    device=device,
                    progress=None if progress is None else partial(progress, "tasks"),
                )
            if store is not None and world().first:
                for each in missing:
                    store.write(each, hashes[i], support_views, results[i][each.name].rows)
        if world().first and not keep_maps and all(each.fine_tuned for each in alike):
            for bank in (plain, *more):
                bank.drop()
    return [{each.name: evaluations[each.name] for each in models} for evaluations in results]

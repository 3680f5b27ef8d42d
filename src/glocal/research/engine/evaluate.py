"""Evaluation: a model on a frozen list of tasks, one row of metrics per task.  ``compare`` is for several models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.common.markup import rows_table
from glocal.research import plugins
from glocal.research.backbones import Backbone
from glocal.research.data import open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import Draw, EpisodeSampler, EpisodeSpec, TaskList
from glocal.research.engine.checkpoint import TrainedModel, load_model
from glocal.research.engine.distributed import joined, world
from glocal.research.engine.features import FeatureBank, Pooled, is_large, views
from glocal.research.methods import Method
from glocal.research.methods.base import check_choice
from glocal.research.metrics import METRICS, Interval, block_metrics, mean_ci
from glocal.research.types import Episode

Rows = dict[str, npt.NDArray[np.float64]]  # metric -> (T,)
Fetch = Callable[[npt.NDArray[np.int64]], Tensor]  # data set indices -> maps, usually a FeatureBank
Progress = Callable[[str, int, int], None]  # stage ("encode" or "tasks"), done, total

BLOCK = 64  # tasks whose answers wait: their metrics are computed together, which is faster than one by one


@dataclass(frozen=True)
class TaskScores:
    """What a method said about the queries of one task."""

    logits: npt.NDArray[np.float32]  # (Q, N)
    open_score: npt.NDArray[np.float32]  # (Q,)
    label: npt.NDArray[np.int64]  # (Q,)


@dataclass(frozen=True)
class Evaluation:
    """One number per task and metric, and the hash of the tasks they were measured on."""

    rows: Rows
    tasks: str  # TaskList.fingerprint()
    answers: tuple[TaskScores, ...] = ()  # where they were asked for
    about: Mapping[str, Any] = field(default_factory=dict)  # which model on which data, as plain values

    def summary(self) -> dict[str, Interval]:
        """Mean and 95 % interval over tasks, per metric."""
        return {name: mean_ci(values) for name, values in self.rows.items()}

    def __repr__(self) -> str:
        shown = ", ".join(f"{METRICS[name].title} {_percent(i)}" for name, i in list(self.summary().items())[:2])
        return f"<Evaluation of {self._what()}: {shown}>"

    def _repr_html_(self) -> str:
        """For notebooks: a line per metric, with its meaning."""
        rows = [(METRICS[name].title, _percent(i), METRICS[name].description) for name, i in self.summary().items()]
        caption = f"{self._what()}: mean and 95 % interval over tasks, in percent"
        return rows_table(("metric", "value", "meaning"), rows, caption=caption)

    def _what(self) -> str:
        n = len(next(iter(self.rows.values()), ()))
        if not self.about:
            return f"{n} tasks"
        spec = self.about["spec"]
        data = f"{self.about['dataset']}/{self.about['split']}"
        return f"{self.about['checkpoint']} on {data}, {spec['way']}-way {spec['shot']}-shot, {n} tasks"

    def to_json(self) -> dict[str, Any]:
        """Plain values: what was measured on what, and the summary."""
        metrics = {name: {"mean": i.mean, "ci95": i.half} for name, i in self.summary().items()}
        return {**self.about, "tasks_fingerprint": self.tasks, "metrics": metrics}


def _percent(interval: Interval) -> str:
    return f"{100 * interval.mean:.2f} ± {100 * interval.half:.2f}"


def evaluate(
    model: TrainedModel | str | Path,
    dataset: ClassDataset | str | Path,
    *,
    split: str = "test",
    way: int = 5,
    shot: int = 1,
    query: int = 15,
    unknown_way: int | None = None,
    tasks: int | TaskList | str | Path = 600,
    seed: int = 0,
    score: str | None = None,
    support_views: int = 1,
    skip_bad: bool = False,
    save_tasks: str | Path | None = None,
    workers: int = 2,
    device: str = "auto",
    progress: Progress | None = None,
) -> Evaluation:
    """Measure a model on few-shot open-set tasks.  A model in memory stays as it is.

    Parameters
    ----------
    model : TrainedModel, str or Path
        A model, or its checkpoint, run folder or name among the shipped models.
    dataset : ClassDataset, str or Path
        A data set, or its name or folder.
    split : str
        Split of the data set: train, val, test or all.
    way : int
        Known classes of a task.
    shot : int
        Support images of each known class.
    query : int
        Queries of each class.
    unknown_way : int, optional
        Unknown classes of a task; ``way`` when left out.
    tasks : int, TaskList, str or Path
        Number of tasks, or a list or its file, which brings way, shot, query and seed of its own.
    seed : int
        Seed of the tasks.
    score : str, optional
        Another open score than the method's own.
    support_views : int
        Views of each support image that are enrolled.
    skip_bad : bool
        Leave unreadable images out instead of stopping.
    save_tasks : str or Path, optional
        File to write the list of tasks to.
    workers : int
        Threads that read images.
    device : str
        auto, cpu or cuda.
    progress : callable, optional
        Called with the stage ("encode" or "tasks"), the number done and the total.

    Returns
    -------
    Evaluation
        One value per task and metric; ``summary()`` has means and 95 % intervals.

    Examples
    --------
    >>> import glocal
    >>> glocal.evaluate("embedded-gel", "embedded", shot=5, tasks=100).summary()["acc"]  # doctest: +SKIP
    """
    # A copy, so that the caller's model stays as it is.
    loaded = copy.deepcopy(model) if isinstance(model, TrainedModel) else load_model(model)
    method = loaded.method
    chosen = check_choice("open_score", score or method.score_name, method.score_names)
    data = dataset if isinstance(dataset, ClassDataset) else open_dataset(dataset, split, skip_bad=skip_bad)
    if isinstance(tasks, int):
        spec = EpisodeSpec(way, shot, query, way if unknown_way is None else unknown_way, query)
        drawn = EpisodeSampler(data, spec, seed=seed).take(tasks)
    else:
        drawn = tasks if isinstance(tasks, TaskList) else TaskList.load(tasks, data)
    if save_tasks:
        drawn.save(save_tasks)
    encoding, running = (progress and partial(progress, stage) for stage in ("encode", "tasks"))
    with joined(device) as where:
        options: dict[str, Any] = {"device": where, "workers": workers, "progress": encoding}
        plain, *more = build_banks(
            loaded.backbone, data, [drawn], support_views=support_views, pooled=method.pooled, **options
        )
        scores = {"": (method, chosen)}
        measured = run_tasks(scores, drawn, plain, more_views=more, keep_answers=True, device=where, progress=running)
    name = "model" if isinstance(model, TrainedModel) else str(model)
    about = {
        "checkpoint": name,
        "method": loaded.method_name,
        "open_score": chosen,
        "dataset": data.name if dataset is data else str(dataset),
        "split": split,
        "manifest": data.manifest,
        "skipped": [bad._asdict() for bad in data.skipped],
        "ignored": data.ignored,
        "duplicates": data.duplicates,
        "spec": asdict(drawn.spec),
        "support_views": support_views,
        "seed": drawn.seed,
        "tasks": len(drawn),
    }
    return replace(measured[""], about=about)


def evaluate_tasks(
    method: Method,
    tasks: TaskList,
    fetch: Fetch,
    *,
    more_views: Sequence[Fetch] = (),
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """One method under its own open score, answers kept."""
    scores = {"": (copy.deepcopy(method), method.score_name)}
    evaluations = run_tasks(
        scores, tasks, fetch, more_views=more_views, keep_answers=True, device=device, progress=progress
    )
    return evaluations[""]


def run_tasks(
    scores: Mapping[str, tuple[Method, str]],
    tasks: TaskList,
    fetch: Fetch,
    *,
    fingerprint: str | None = None,
    more_views: Sequence[Fetch] = (),
    keep_answers: bool = False,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Evaluation]:
    """Every (method, open score) on every task, on maps that are there: ``fetch`` returns them for data set indices.

    A method that stands in several rows compares once per task.  ``more_views`` return other views of the same
    pictures, under which the support enters again.  Under torchrun the tasks are dealt out to the ranks, and every
    rank returns all of them.
    """
    plugins.load(plugins.METRICS, METRICS)
    fingerprint = fingerprint or tasks.fingerprint()
    us, collected = world(), {name: _Collected(keep_answers) for name in scores}
    methods = {id(method): method.to(device).eval() for method, _ in scores.values()}
    with torch.inference_mode():
        for i in us.share(len(tasks)):
            draw = tasks.draws[i]
            episode = task_maps(draw, fetch, more_views, device)
            for method in methods.values():
                support, query = method.views(episode)
                compared = method.compare(method.enroll(support, episode.support_one_hot, episode.drawn), query)
                logits = compared.logits.cpu().numpy()
                for name, (owner, score) in scores.items():
                    if owner is method:
                        unknown = compared.scores[score].cpu().numpy()
                        collected[name].add(TaskScores(logits, unknown, draw.query_label))
            if progress is not None:
                progress(min(i + us.size, len(tasks)), len(tasks))
    return {name: each.evaluation(len(tasks), fingerprint) for name, each in collected.items()}


@dataclass
class _Collected:
    """All answers of this rank, or those of a few tasks until there are enough for a block of metrics."""

    keep: bool
    answers: list[TaskScores] = field(default_factory=list)
    blocks: list[Rows] = field(default_factory=list)

    def add(self, answers: TaskScores) -> None:
        self.answers.append(answers)
        if len(self.answers) == BLOCK and not self.keep:
            self.blocks.append(metric_rows(self.answers))
            self.answers = []

    def evaluation(self, n: int, fingerprint: str) -> Evaluation:
        us = world()
        if self.keep:
            every = us.collect(self.answers, n)
            return Evaluation(metric_rows(every), fingerprint, tuple(every))
        blocks = [*self.blocks, *([metric_rows(self.answers)] if self.answers else [])]
        names = dict.fromkeys(name for block in blocks for name in block)
        mine = {name: np.concatenate([block[name] for block in blocks]) for name in names}
        if us.size > 1:
            agreed = us.collect([tuple(mine)], us.size)[0]  # a rank may have had no task
            mine = {name: np.array(us.collect(mine.get(name, np.empty(0)).tolist(), n)) for name in agreed}
        return Evaluation(mine, fingerprint)


def metric_rows(answers: Sequence[TaskScores]) -> Rows:
    """Metrics of all tasks, which are of one size."""
    parts = ("logits", "open_score", "label")
    return block_metrics(*(np.stack([getattr(each, part) for each in answers]) for part in parts)) if answers else {}


def build_banks(
    backbone: Backbone,
    data: ClassDataset,
    lists: Sequence[TaskList],
    *,
    support_views: int = 1,
    pooled: bool = False,
    device: torch.device | str = "cpu",
    workers: int = 2,
    folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[FeatureBank]:
    """The plain bank first, with every picture of the tasks; then one per further view, with the support alone.

    ``pooled``: means will do, and are kept where maps would take much space.
    """
    backbone.on(device).eval()
    plain, *others = views(support_views, backbone.preprocess.size)
    every = np.unique(np.concatenate([tasks.images() for tasks in lists]))
    encoder = Pooled(backbone) if pooled and is_large(backbone, len(every), device) else backbone
    build = partial(FeatureBank.build, folder=folder, workers=workers, device=device, progress=progress)
    banks = [build(encoder, data, wanted=every, view=plain)]
    if others:
        support = np.unique(np.concatenate([draw.support for tasks in lists for draw in tasks]))
        banks += [build(encoder, data, wanted=support, view=view) for view in others]
    return banks


def task_maps(
    draw: Draw, fetch: Fetch, more_views: Sequence[Fetch] = (), device: torch.device | str = "cpu"
) -> Episode:
    """A task with its maps; every support picture once per view, V * K shots where K were drawn."""
    support = torch.cat([view(draw.support) for view in (fetch, *more_views)])
    label = torch.from_numpy(draw.support_label).repeat(1 + len(more_views)).to(device)
    query, query_label = fetch(draw.query).to(device), torch.from_numpy(draw.query_label).to(device)
    return Episode(support.to(device), label, query, query_label, draw.drawn)


@contextmanager
def computing_with(number: int | None) -> Iterator[None]:
    """Compute with that many meanwhile; None leaves it as it is."""
    before = torch.get_num_threads()
    try:
        if number is not None:
            torch.set_num_threads(number)
        yield
    finally:
        if number is not None:
            torch.set_num_threads(before)

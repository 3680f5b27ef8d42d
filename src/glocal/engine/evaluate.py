"""Evaluation: a method on a frozen list of tasks, one row of metrics per task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.data.dataset import ClassDataset
from glocal.data.episodes import Draw, EpisodeSampler, EpisodeSpec, TaskList
from glocal.data.features import FeatureBank
from glocal.data.registry import open_dataset
from glocal.engine.checkpoint import Model
from glocal.engine.distributed import world
from glocal.methods import Method
from glocal.metrics import Interval, block_metrics, mean_ci
from glocal.types import Episode

Rows = dict[str, npt.NDArray[np.float64]]  # metric -> (T,)
Fetch = Callable[[npt.NDArray[np.int64]], Tensor]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Answers:
    """What a method said about the queries of one task."""

    logits: npt.NDArray[np.float32]  # (Q, N)
    open_score: npt.NDArray[np.float32]  # (Q,)
    label: npt.NDArray[np.int64]  # (Q,)


@dataclass(frozen=True)
class Evaluation:
    """One number per task and metric, and the hash of the tasks they were measured on."""

    rows: Rows
    tasks: str  # TaskList.fingerprint()
    answers: tuple[Answers, ...]

    def summary(self) -> dict[str, Interval]:
        return {name: mean_ci(values) for name, values in self.rows.items()}


def evaluate(
    method: Method,
    tasks: TaskList,
    fetch: Fetch,
    *,
    more_views: Sequence[Fetch] = (),
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Evaluation:
    """Run every task once; ``fetch`` returns maps for dataset indices, usually a FeatureBank.

    ``more_views`` return other views of the same pictures, under which the support enters again.
    Under torchrun the tasks are dealt out to the ranks, and every rank returns all of them.
    """
    method.to(device).eval()
    us, mine = world(), []
    with torch.inference_mode():
        for i in us.share(len(tasks)):
            draw = tasks[i]
            out = method(task_maps(draw, fetch, more_views).to(device))
            mine.append(Answers(out.logits.cpu().numpy(), out.open_score.cpu().numpy(), draw.query_label))
            if progress is not None:
                progress(min(i + us.size, len(tasks)), len(tasks))
    answers = us.collect(mine, len(tasks))
    return Evaluation(rows_of(answers), tasks.fingerprint(), tuple(answers))


def task_maps(draw: Draw, fetch: Fetch, more_views: Sequence[Fetch] = ()) -> Episode:
    """A task with its maps; every support picture once per view, V * K shots where K were drawn."""
    episode = draw.episode(fetch)
    if not more_views:
        return episode
    support = torch.cat([episode.support, *(view(draw.support) for view in more_views)])
    return replace(episode, support=support, support_label=episode.support_label.repeat(1 + len(more_views)))


def rows_of(answers: Sequence[Answers]) -> Rows:
    """Metrics of all tasks, in one block per task size."""
    sizes: dict[tuple[int, ...], list[int]] = {}
    for i, answer in enumerate(answers):
        sizes.setdefault(answer.logits.shape, []).append(i)
    rows: Rows = {}
    for members in sizes.values():
        logits, score, label = (
            np.stack([getattr(answers[i], part) for i in members]) for part in ("logits", "open_score", "label")
        )
        for name, values in block_metrics(logits, score, label).items():
            rows.setdefault(name, np.full(len(answers), np.nan))[members] = values
    return rows


def evaluate_model(
    model: Model,
    dataset: str,
    *,
    split: str = "test",
    spec: EpisodeSpec | None = None,
    tasks: int = 600,
    seed: int = 0,
    workers: int = 2,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Evaluation:
    """Open the data, draw the tasks, encode the images they need (once, cached), evaluate."""
    data = open_dataset(dataset, split)
    drawn = EpisodeSampler(data, spec or EpisodeSpec(), seed=seed).take(tasks)
    bank = build_bank(model, data, drawn, workers=workers, device=device, progress=progress)
    return evaluate(model.method, drawn, bank, device=device)


def build_bank(
    model: Model, data: ClassDataset, tasks: TaskList, *, device: torch.device | str = "cpu", **how: Any
) -> FeatureBank:
    """The maps that these tasks need, from the cache or encoded now."""
    return FeatureBank.build(model.backbone.on(device).eval(), data, wanted=tasks.images(), device=device, **how)

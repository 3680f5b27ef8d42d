"""Methods that need no training, on photos: Caltech's test classes and twelve domains, from the vectors of ``domains``.

What a method takes from base classes (a mean, a covariance, a whitening) it takes from Caltech's 60 train classes, and
its candidates are chosen on the 15 validation classes.  No photo of the twelve domains is used for either.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from domains import CALTECH, TEMPERATURE, Domain, domains, folders
from torch import Tensor
from which_method import HEADS, METRICS, SHOTS, TIMED, Line, draw, milliseconds, within

from glocal.research.data import SPLITS, open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import TaskList
from glocal.research.engine.evaluate import run_tasks
from glocal.research.methods import Method, build_method
from glocal.research.methods.ridge import KernelRidge
from glocal.research.types import BaseClasses, Views

QUERY = 8
CHOSEN_BY = 100  # validation tasks
METHODS = ("protonet", "protonet-centred", "knn", "mahalanobis", "ridge", "oslo", "eol", "eol-ways")


class Kept:
    """The vectors of a data set's photos as maps of 1x1, their cells behind them."""

    def __init__(self, domain: Domain, data: ClassDataset, folder: Path):
        row = {path: i for i, path in enumerate(p for c in sorted(folder.iterdir()) for p in sorted(c.iterdir()))}
        order = [row[Path(data.where(i))] for i in range(len(data))]
        self.data, self.pooled, self.cells = data, domain.pooled[order], domain.local[order]

    def __call__(self, rows: Any) -> Tensor:
        return self.pooled[rows][:, :, None, None]

    def with_cells(self, rows: Any) -> Tensor:
        return torch.cat([self.pooled[rows], self.cells[rows].flatten(1)], dim=1)[:, :, None, None]


class KeptRidge(KernelRidge):
    """The recognizer's head on what ``Kept.with_cells`` gives."""

    def embed(self, maps: Tensor) -> Views:
        vec = maps.flatten(1)
        cells = vec[:, self.width :].unflatten(1, (-1, self.side, self.side))
        return Views(self.vectors(vec[:, : self.width]), cells)


def measure_photos(work: Path) -> list[Line]:
    places, every = folders(Path(os.environ["GLOCAL_DATA"])), domains("fast", work / "domains")
    home = places.pop(CALTECH)
    caltech = {s: Kept(every[CALTECH], open_dataset("caltech-photos", s), home) for s in SPLITS}
    others = [Kept(every[name], open_dataset(folder, "all"), folder) for name, folder in places.items()]
    lines = []
    for shot in SHOTS:
        for name in METHODS:
            method = chosen(name, caltech, shot)
            lines.append(measured("caltech-photos", name, method, [caltech["test"]], shot, 600))
            lines.append(measured("photo-domains", name, method, others, shot, 50))
            print(f"photos {shot}-shot {name}", flush=True)
    return lines


def measured(title: str, name: str, method: Method, kept: Sequence[Kept], shot: int, tasks: int) -> Line:
    rows = [answered(method, each, draw(each.data, shot, tasks, query=QUERY)) for each in kept]
    timed = draw(kept[0].data, shot, TIMED, query=QUERY)
    joined = {metric: np.concatenate([each[metric] for each in rows]) for metric in METRICS}
    return Line(title, shot, name, joined, milliseconds(method, timed, fetched(method, kept[0])))


def answered(method: Method, kept: Kept, tasks: TaskList) -> Mapping[str, Any]:
    return run_tasks({"": (method, method.score_name)}, tasks, fetched(method, kept))[""].rows


def fetched(method: Method, kept: Kept) -> Any:
    return kept.with_cells if isinstance(method, KeptRidge) else kept


def chosen(name: str, caltech: Mapping[str, Kept], shot: int) -> Method:
    """The candidate with the best AUROC on validation classes."""
    made = [prepared(name, settings, caltech["train"]) for settings in HEADS[name].candidates]
    tasks = draw(caltech["val"].data, shot, CHOSEN_BY, query=QUERY)
    return max(made, key=lambda each: answered(each, caltech["val"], tasks)["auroc"].mean()) if made[1:] else made[0]


def prepared(name: str, settings: str, base: Kept) -> Method:
    vec, label = base.pooled, torch.from_numpy(base.data.label)
    if name == "ridge":
        ridge = KeptRidge(vec.shape[1], temperature=TEMPERATURE).eval()
        ridge.fit(within(ridge.roots(vec), label))
        return ridge
    method = build_method(HEADS[name].method, vec.shape[1], tomllib.loads(settings.replace(", ", "\n"))).eval()
    if method.needs_base:
        centre = torch.stack([vec[label == c].mean(dim=0) for c in label.unique()])
        method.set_base(BaseClasses(base.data.classes, centre, centre, vec.mean(dim=0), vec, label))
    return method

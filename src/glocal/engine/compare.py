"""Many models on one and the same frozen list of tasks.

Models that share a backbone share its maps: every picture is encoded once, a task's maps are fetched once, and every
method of that backbone sees them.  Only the rows of metrics are kept, so memory does not grow with the answers; rows
that were measured before are read from ``store``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from glocal.data.dataset import ClassDataset
from glocal.data.episodes import TaskList
from glocal.engine.contestants import Contestant
from glocal.engine.distributed import world
from glocal.engine.evaluate import Answers, Fetch, Progress, Rows, rows_of, task_maps
from glocal.engine.row_store import RowStore
from glocal.engine.support_views import view_banks
from glocal.types import Output

BLOCK = 64  # tasks whose answers wait: their metrics are computed together, which is faster than one by one


@dataclass
class Watch:
    """Progress of the two slow parts, each (done, total)."""

    encode: Progress | None = None
    tasks: Progress | None = None


class Compared(NamedTuple):
    tasks: str  # TaskList.fingerprint()
    rows: dict[str, Rows]  # name of the contestant -> its rows


def compare(
    contestants: Sequence[Contestant],
    data: ClassDataset,
    lists: Sequence[TaskList],
    *,
    support_views: int = 1,
    store: RowStore | None = None,
    device: torch.device | str = "cpu",
    workers: int = 2,
    watch: Watch | None = None,
) -> list[Compared]:
    """One entry per list of tasks, with the rows of every contestant."""
    store, watch = store or RowStore(None), watch or Watch()
    prints = [tasks.fingerprint() for tasks in lists]
    rows: dict[tuple[str, int], Rows] = {}
    for i, tasks in enumerate(prints):
        for each in contestants:
            known = store.read(each, tasks, support_views)
            if known is not None:
                rows[each.name, i] = known
    for eye in dict.fromkeys(each.eye for each in contestants):
        todo = {i: [c for c in contestants if c.eye == eye and (c.name, i) not in rows] for i in range(len(lists))}
        todo = {i: missing for i, missing in todo.items() if missing}
        if not todo:
            continue
        backbone = next(each.model.backbone for each in contestants if each.eye == eye)
        wanted = [lists[i] for i in todo]
        how: dict[str, Any] = {"device": device, "workers": workers, "progress": watch.encode}
        plain, *more = view_banks(backbone, data, wanted, support_views=support_views, **how)
        for i, missing in todo.items():
            found = measure(missing, lists[i], plain, more_views=more, device=device, progress=watch.tasks)
            for each in missing:
                rows[each.name, i] = found[each.name]
                if world().first:
                    store.write(each, prints[i], support_views, found[each.name])
    return [Compared(tasks, {each.name: rows[each.name, i] for each in contestants}) for i, tasks in enumerate(prints)]


def measure(
    contestants: Sequence[Contestant],
    tasks: TaskList,
    fetch: Fetch,
    *,
    more_views: Sequence[Fetch] = (),
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> dict[str, Rows]:
    """Every contestant on every task, the maps of a task fetched once.  All must have the backbone of ``fetch``."""
    us, waiting = world(), {each.name: _Waiting() for each in contestants}
    models = {id(each.model.method): each.model.method.to(device).eval() for each in contestants}
    with torch.inference_mode():
        for i in us.share(len(tasks)):
            draw = tasks[i]
            episode = task_maps(draw, fetch, more_views).to(device)
            for key, method in models.items():
                support, query = method.views(episode)
                compared = method.compare(method.enroll(support, episode.support_label, episode.drawn), query)
                for each in contestants:
                    if id(each.model.method) == key:
                        out = Output(compared.logits, compared.open_score(each.score))
                        waiting[each.name].add(out, draw.query_label)
            if progress is not None:
                progress(min(i + us.size, len(tasks)), len(tasks))
    return {name: _gathered(answers.finished(), len(tasks)) for name, answers in waiting.items()}


@dataclass
class _Waiting:
    """Answers of a few tasks until there are enough for a block, then nothing but their metrics."""

    answers: list[Answers] = field(default_factory=list)
    blocks: list[Rows] = field(default_factory=list)

    def add(self, out: Output, label: Any) -> None:
        self.answers.append(Answers(out.logits.cpu().numpy(), out.open_score.cpu().numpy(), label))
        if len(self.answers) == BLOCK:
            self._measure()

    def _measure(self) -> None:
        if self.answers:
            self.blocks.append(rows_of(self.answers))
            self.answers = []

    def finished(self) -> Rows:
        self._measure()
        names = dict.fromkeys(name for block in self.blocks for name in block)
        return {name: np.concatenate([block[name] for block in self.blocks]) for name in names}


def _gathered(mine: Rows, n: int) -> Rows:
    """Everybody's rows in the order of the tasks."""
    us = world()
    if us.size == 1:
        return mine
    names = us.collect([tuple(mine)], us.size)[0]  # a rank may have had no task
    return {name: np.array(us.collect(mine.get(name, np.empty(0)).tolist(), n)) for name in names}

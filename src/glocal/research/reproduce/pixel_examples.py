"""Unknown queries that one branch of GEL lets pass and both together find, and what their pixels resemble.

A score calls the n queries with the largest values unknown, n being how many there are (the paper's cut).  Two kinds,
the two errors of the paper's first figure:

- look-alike: the class branch takes it for a known class (wrong by E_c), the energies together do not (right by E).
- shared background: the pixel branch takes it for one (wrong by E_f), the energies together do not (right by E).

Shown are those whose place among the queries of their task changes most, no two of the same pair of classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import Draw, EpisodeSampler
from glocal.research.data.loader import ImageLoader
from glocal.research.engine.checkpoint import TrainedModel
from glocal.research.engine.distributed import world
from glocal.research.engine.evaluate import build_banks, task_maps
from glocal.research.engine.features import FeatureBank
from glocal.research.reproduce.measurement import SEED, Measurement, answers_of
from glocal.research.reproduce.plans import Line
from glocal.research.reproduce.runs import RunSettings

Kind = Literal["look-alike", "shared background"]
FOOLED: dict[Kind, str] = {"look-alike": "E_c", "shared background": "E_f"}  # the score that errs
WANTED: tuple[Kind, ...] = ("look-alike", "shared background", "look-alike", "look-alike", "look-alike", "look-alike")
LOOKED_AT = 200  # tasks that examples are chosen from


@dataclass(frozen=True)
class Example:
    """A query, the class it resembles, and for every query pixel the class pixel most like it."""

    kind: Kind
    truth: str
    taken_for: str
    task: int
    query: npt.NDArray[np.uint8]  # (size, size, 3), as the backbone sees it
    support: npt.NDArray[np.uint8]
    side: int  # of the map, in pixels
    partner: npt.NDArray[np.int64]  # (P,) class pixel
    cosine: npt.NDArray[np.float64]  # (P,)
    place: tuple[int, int, int]  # among the queries of the task, 1 = most unknown: by the score that errs, by E, cut


@dataclass(frozen=True)
class Examples:
    shown: list[Example]
    tasks: int
    unknown: int  # queries
    counts: dict[str, int]  # how often which score is right where another is wrong


class _Candidate(NamedTuple):
    kind: Kind
    task: int
    query: int  # row in its task
    place: tuple[int, int, int]

    @property
    def order(self) -> tuple[int, int, int]:
        """Those first that move most places towards "unknown", from the score that errs to E."""
        return self.place[1] - self.place[0], self.task, self.query


def examples(line: Line, measurement: Measurement, settings: RunSettings) -> Examples:
    """Chosen by the rule above; fewer when the rule finds fewer."""
    model, data = measurement.models[line.run, line.score], measurement.data
    tasks = EpisodeSampler(data, measurement.on.spec, seed=SEED).take(min(LOOKED_AT, len(measurement.tasks)))
    scored = [replace(model, name=score, score=score) for score in ("E_c", "E_f", "E")]
    answers = answers_of(scored, data, tasks, settings)
    candidates: list[_Candidate] = []
    counts = dict.fromkeys(("E right, E_c wrong", "E_c right, E wrong", "E right, E_f wrong", "E_f right, E wrong"), 0)
    unknown = 0
    for task, draw in enumerate(tasks):
        is_unknown = draw.query_label < 0
        cut = int(is_unknown.sum())
        unknown += cut
        places = {name: _places(each[task].open_score) for name, each in answers.items()}
        refused = {name: place <= cut for name, place in places.items()}
        for kind, score in FOOLED.items():
            gained = is_unknown & refused["E"] & ~refused[score]
            counts[f"E right, {score} wrong"] += int(gained.sum())
            counts[f"{score} right, E wrong"] += int((is_unknown & ~refused["E"] & refused[score]).sum())
            for q in np.flatnonzero(gained).tolist():
                candidates.append(_Candidate(kind, task, q, (int(places[score][q]), int(places["E"][q]), cut)))
    device, workers = settings.device or "cpu", settings.workers
    (bank,) = build_banks(model.model.backbone, data, [tasks], device=device, workers=workers)
    rest = sorted(candidates, key=lambda each: each.order)
    shown: dict[tuple[str, str], Example] = {}  # no pair of classes twice
    for kind in WANTED:
        for chosen in [each for each in rest if each.kind == kind]:
            rest.remove(chosen)
            logits = answers["E"][chosen.task].logits[chosen.query]
            example = _example(chosen, tasks[chosen.task], logits, model.model, bank, data)
            if (example.truth, example.taken_for) not in shown:
                shown[example.truth, example.taken_for] = example
                break
    world().largest(0)  # all have seen it
    if world().first and model.fine_tuned:
        bank.drop()
    return Examples(list(shown.values()), len(tasks), unknown, counts)


@torch.inference_mode()
def _example(
    chosen: _Candidate,
    draw: Draw,
    logits: npt.NDArray[np.float32],
    model: TrainedModel,
    bank: FeatureBank,
    data: ClassDataset,
) -> Example:
    """``logits`` (N,) of the query."""
    method = model.method
    episode = task_maps(draw, bank, device=next(method.parameters()).device)
    support, query = method.views(episode)
    state = method.enroll(support, episode.support_one_hot, episode.drawn)
    assert query.local is not None  # GEL compares pixels
    local = query.local[chosen.query]  # (C, H, W)
    cos = torch.einsum("cu,ncv->nuv", F.normalize(local.flatten(1), dim=0), F.normalize(state.local.flatten(2), dim=1))
    # The class that was mistaken for it: by the branch that erred.
    n = int(logits.argmax()) if chosen.kind == "look-alike" else int(cos.amax(dim=2).sum(dim=1).argmax())
    best = cos[n].max(dim=1)  # over class pixels, for each query pixel
    pictures = np.array([draw.query[chosen.query], draw.support[draw.support_label == n][0]])
    seen = ImageLoader(data, model.backbone.preprocess, workers=1)(pictures).permute(0, 2, 3, 1)
    return Example(
        chosen.kind,
        truth=data.classes[data.label[pictures[0]]],
        taken_for=data.classes[draw.drawn[n]],
        task=chosen.task,
        query=seen[0].numpy(),
        support=seen[1].numpy(),
        side=local.shape[-1],
        partner=best.indices.cpu().numpy(),
        cosine=best.values.double().cpu().numpy(),
        place=chosen.place,
    )


def _places(score: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.int64]:
    """1 for the largest; ties share the better place, as in the cut at the true rate."""
    ahead: npt.NDArray[np.int64] = (score[None, :] > score[:, None]).sum(axis=1)
    return 1 + ahead

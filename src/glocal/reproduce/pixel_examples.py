"""Unknown queries that one branch of GEL lets pass and both together find, and what their pixels resemble.

A score calls the n queries with the largest values unknown, n being how many there are (the paper's cut).  Two kinds,
the two errors of the paper's first figure:

- look-alike: the class branch takes it for a known class (wrong by E_c), the energies together do not (right by E);
- shared background: the pixel branch takes it for one (wrong by E_f), the energies together do not (right by E).

Shown are those whose place among the queries of their task changes most, no two of the same pair of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from glocal.data.loader import ImageLoader
from glocal.engine.task_maps import build_banks, task_maps
from glocal.reproduce.measurement import Measurement
from glocal.reproduce.plans import Line
from glocal.reproduce.runs import Settings

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


@dataclass(frozen=True)
class _Candidate:
    kind: Kind
    gain: int  # places that the query moves towards "unknown" from the score that errs to E
    task: int
    query: int  # row in its task
    place: tuple[int, int, int]


def examples(line: Line, found: Measurement, how: Settings) -> Examples:
    """Chosen by the rule above; fewer when the rule finds fewer."""
    model = found.models[line.run, line.score].model
    device = how.device or "cpu"
    method = model.method.to(device).eval()
    (bank,) = build_banks(model.backbone, found.data, [found.tasks], device=device, workers=how.workers)
    count = min(LOOKED_AT, len(found.tasks))

    def answers(task: int) -> tuple[Any, Any, dict[str, npt.NDArray[np.float64]], Tensor]:
        episode = task_maps(found.tasks[task], bank).to(device)
        support, query = method.views(episode)
        state = method.enroll(support, episode.support_label, episode.drawn)
        compared = method.compare(state, query)
        scores = {name: compared.open_score(name).double().cpu().numpy() for name in ("E_c", "E_f", "E")}
        return state, query, scores, compared.logits

    candidates: list[_Candidate] = []
    counts = dict.fromkeys(("E right, E_c wrong", "E_c right, E wrong", "E right, E_f wrong", "E_f right, E wrong"), 0)
    unknown = 0
    with torch.inference_mode():
        for task in range(count):
            _, _, scores, _ = answers(task)
            strange = found.tasks[task].query_label < 0
            unknown += int(strange.sum())
            places = {name: _places(score) for name, score in scores.items()}
            said = {name: place <= strange.sum() for name, place in places.items()}
            for kind, score in FOOLED.items():
                counts[f"E right, {score} wrong"] += int((strange & said["E"] & ~said[score]).sum())
                counts[f"{score} right, E wrong"] += int((strange & ~said["E"] & said[score]).sum())
                for q in np.flatnonzero(strange & said["E"] & ~said[score]).tolist():
                    place = (int(places[score][q]), int(places["E"][q]), int(strange.sum()))
                    candidates.append(_Candidate(kind, place[0] - place[1], task, q, place))

        def draw(chosen: _Candidate) -> Example:
            state, query, _, logits = answers(chosen.task)
            return _example(chosen, state, query.local[chosen.query], logits[chosen.query], found, model.backbone)

        shown = _choose(sorted(candidates, key=lambda c: (-c.gain, c.task, c.query)), draw)
    return Examples(shown, count, unknown, counts)


def _choose(candidates: Sequence[_Candidate], draw: Callable[[_Candidate], Example]) -> list[Example]:
    """One of each kind first, then four more; no pair of classes twice, no query twice."""
    shown: list[Example] = []
    seen: set[tuple[str, str]] = set()
    rest = list(candidates)
    for kind in WANTED:
        for candidate in [each for each in rest if each.kind == kind]:
            rest.remove(candidate)
            example = draw(candidate)
            if (example.truth, example.taken_for) not in seen:
                seen.add((example.truth, example.taken_for))
                shown.append(example)
                break
    return shown


def _example(
    chosen: _Candidate, state: Any, local: Tensor, logits: Tensor, found: Measurement, backbone: Any
) -> Example:
    """``local`` (C, H, W), ``logits`` (N,) of the query."""
    draw, data = found.tasks[chosen.task], found.data
    cos = torch.einsum("cu,ncv->nuv", F.normalize(local.flatten(1), dim=0), F.normalize(state.local.flatten(2), dim=1))
    # The class that was mistaken for it: by the branch that erred.
    n = int(logits.argmax()) if chosen.kind == "look-alike" else int(cos.amax(dim=2).sum(dim=1).argmax())
    best = cos[n].max(dim=1)  # over class pixels, for each query pixel
    picture = int(draw.query[chosen.query])
    support = int(draw.support[draw.support_label == n][0])
    seen = ImageLoader(data, backbone.preprocess, workers=1)(np.array([picture, support])).permute(0, 2, 3, 1)
    return Example(
        chosen.kind,
        truth=data.classes[data.label[picture]],
        taken_for=data.classes[draw.drawn[n]],
        task=chosen.task,
        query=seen[0].numpy(),
        support=seen[1].numpy(),
        side=local.shape[-1],
        partner=best.indices.cpu().numpy(),
        cosine=best.values.double().cpu().numpy(),
        place=chosen.place,
    )


def _places(score: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """1 for the largest; ties share the better place, as in the cut at the true rate."""
    ahead: npt.NDArray[np.int64] = (score[None, :] > score[:, None]).sum(axis=1)
    return 1 + ahead

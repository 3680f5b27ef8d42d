"""Fit the score model of a head on validation tasks of many sizes, and put it into its checkpoint.

The steps follow ``score_model``: mean and spread of known scores by number of photos and classes, how much classes
differ, how far left-out scores can be trusted, the shape of what remains, and the probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glocal.data.dataset import ClassDataset
from glocal.data.episodes import Draw, EpisodeSampler, EpisodeSpec
from glocal.data.features import FeatureBank
from glocal.engine.checkpoint import Model
from glocal.methods import Method
from glocal.recognizer.torch_model import TorchHead
from glocal.types import UNKNOWN, Views
from glocal_runtime.errors import DataError
from glocal_runtime.leave_one_out import leave_one_out, strange_scores
from glocal_runtime.probability import LEVELS
from glocal_runtime.score_model import ScoreModel
from glocal_runtime.threshold import LeftOut

Array = npt.NDArray[np.float64]
KNOTS = (0.0, 0.5, 0.75, 0.95)  # weights of the left-out scores at which the shape is told apart
KAPPAS = tuple(2 ** (i / 2) for i in range(-2, 15))
STEADINESS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
BATCH = 64
FEW_TASKS = 20  # below which nothing is said about strangers
LEAST_POWER = 0.25  # of 1 / k; the largest is 1 more
SHARE_OF_A_KNOT = 0.01  # of the known queries, below which a knot has no shape of its own


@dataclass(frozen=True)
class ScoredTask:
    """What a head says about one task with labels: N classes, Q known and U unknown photos."""

    shots: tuple[int, ...]  # (N,)
    left_out: tuple[LeftOut, ...]
    label: npt.NDArray[np.int64]  # (Q,)
    score: Array  # (Q,)
    logits: Array  # (Q, N)
    unknown: Array  # (U,)
    strange: tuple[float, ...] = ()  # its own classes, each as a stranger to the others


def fit_score_model(
    model: Model,
    *datasets: ClassDataset,
    ways: tuple[int, int] = (1, 12),
    shots: tuple[int, int] = (1, 20),
    tasks: int = 600,
    seed: int = 0,
    **how: Any,
) -> ScoreModel:
    """On tasks drawn within each data set, as many as it has classes in proportion; ``how`` goes to the feature bank.

    Classes that the head was trained on look too easy to a head that learned much; hand in others then.
    """
    classes = sum(len(data.classes) for data in datasets)
    scored: list[ScoredTask] = []
    for data in datasets:
        views, share = embed_all(model, data, **how), round(tasks * len(data.classes) / classes)
        draws = draw_tasks(data, ways=ways, shots=shots, tasks=share, seed=seed)
        scored += [score_task(model.method, views, draw) for draw in draws]
    names = " and ".join(f"{data.name} (manifest {data.manifest[:12]})" for data in datasets)
    return replace(fit_to_tasks(scored, classes=classes), fitted_on=f"{tasks} tasks of {names}, seed {seed}")


def with_score_model(model: Model, fitted: ScoreModel) -> Model:
    """The same model with the score model in its record; ``save_model`` keeps it."""
    return replace(model, record=model.record | {"score_model": fitted.to_json()})


def embed_all(model: Model, dataset: ClassDataset, **how: Any) -> Views:
    """Views of every picture of the data set, in its order."""
    bank = FeatureBank.build(model.backbone.on("cpu").eval(), dataset, **how)
    method = model.method.to("cpu").eval()
    with torch.inference_mode():
        parts = [
            method.embed(bank(rows)) for rows in np.split(np.arange(len(dataset)), range(BATCH, len(dataset), BATCH))
        ]
    local = [part.local for part in parts if part.local is not None]
    return Views(torch.cat([part.vec for part in parts]), torch.cat(local) if local else None)


def draw_tasks(
    dataset: ClassDataset, *, ways: tuple[int, int], shots: tuple[int, int], tasks: int, seed: int
) -> Iterator[Draw]:
    """Tasks of every size in turn: small ones as often as large ones, a third with unequal numbers of photos."""
    classes = len(dataset.classes)
    room = min(len(dataset.distinct(dataset.members(c))) for c in range(classes))
    most_ways, most_shots = min(ways[1], classes - 1), min(shots[1], room - 2)
    if most_ways < ways[0] or most_shots < shots[0]:
        raise DataError(
            f"{dataset.name} has {classes} classes of at least {room} photos, too few for tasks of {ways[0]} classes "
            f"with {shots[0]} photos beside unknown ones: fit on more"
        )
    rng = np.random.default_rng((seed, 17))
    for i in range(tasks):
        way = _log_uniform(rng, ways[0], most_ways)
        shot = _log_uniform(rng, shots[0], most_shots)
        mixed = (shots[0], max(shot, min(shots[0] + 1, most_shots))) if i % 3 == 2 else shot
        unknown = min(5, classes - way)
        query = min(15, room - shot - (1 if i % 3 == 2 else 0))
        yield EpisodeSampler(dataset, EpisodeSpec(way, mixed, query, unknown, query), seed=seed)[i]


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return min(high, int(low * math.exp(rng.random() * math.log((high + 1) / low))))


def score_task(method: Method, views: Views, draw: Draw) -> ScoredTask:
    """``views`` of all pictures of the data set; the task names its own."""
    head, label = TorchHead(method), draw.support_label
    support = views.numpy().rows(draw.support)
    found = head.compare(head.enroll(support, label), views.numpy().rows(draw.query))
    logits, score = (x.astype(np.float64) for x in (found.logits, found.open_score))
    known = draw.query_label != UNKNOWN
    return ScoredTask(
        tuple(np.bincount(draw.support_label).tolist()),
        tuple(leave_one_out(head, support, label)),
        draw.query_label[known],
        score[known],
        logits[known],
        score[~known],
        tuple(strange_scores(head, support, label)),
    )


def fit_to_tasks(tasks: Sequence[ScoredTask], *, classes: int) -> ScoreModel:
    """The score model of these tasks, which were drawn from so many classes."""
    model = _usual(tasks, classes)
    model = _classes(model, tasks)
    model = min((replace(model, kappa=kappa) for kappa in KAPPAS), key=lambda m: _misfit(m, tasks))
    model = min((replace(model, steadiness=s) for s in STEADINESS), key=lambda m: _misfit(m, tasks))
    model = _shape(model, tasks)
    return replace(model, temperature=_temperature(tasks), unknown=_unknown(model, tasks), **_strange(model, tasks))


def _usual(tasks: Sequence[ScoredTask], classes: int) -> ScoreModel:
    """Mean and log spread, linear in (1, k^-p, log N), by the likelihood of a normal distribution; tasks weigh alike.

    The mean may only fall with the number of photos, whatever a small sample says: it is carried on beyond it.
    """
    shot, log_way = (torch.from_numpy(np.concatenate(each)) for each in zip(*map(_sizes, tasks), strict=True))
    one = torch.ones_like(shot)
    u = torch.from_numpy(np.concatenate([task.score for task in tasks]))
    row = torch.from_numpy(np.concatenate([np.full(len(task.score), 1 / len(task.score)) for task in tasks]))
    centre, spread = u.mean(), u.std()

    def parts(p: Tensor) -> tuple[Tensor, Tensor]:
        mean = torch.stack([p[0], p[1].square(), p[2]]) * spread + torch.stack([centre, *centre.new_zeros(2)])
        return mean, p[3:6] + torch.stack([spread.log(), *centre.new_zeros(2)])

    def misfit(p: Tensor) -> Tensor:
        mean, log_spread = parts(p)
        x = torch.stack([one, shot ** -(LEAST_POWER + p[6].sigmoid()), log_way], dim=1)
        log_s = x @ log_spread
        return (row * (log_s + 0.5 * ((u - x @ mean) / log_s.exp()).square())).sum() / row.sum()

    best = _minimise(misfit, [0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    mean, log_spread = parts(best)
    ways, shots = [len(task.shots) for task in tasks], [shot for task in tasks for shot in task.shots]
    return ScoreModel(
        power=float(LEAST_POWER + best[6].sigmoid()),
        mean=_floats(mean),
        log_spread=_floats(log_spread),
        between=0.25,  # this and what follows: found in the next steps
        kappa=4.0,
        left_out_within=0.75,
        steadiness=16.0,
        weights=KNOTS,
        quantiles=(LEVELS,) * len(KNOTS),
        temperature=1.0,
        unknown=(0.0, 1.0, 0.0, 0.0),
        ways=(min(ways), max(ways)),
        shots=(min(shots), max(shots)),
        classes=classes,
    )


def _classes(model: ScoreModel, tasks: Sequence[ScoredTask]) -> ScoreModel:
    """How much of the variance lies between the classes of a task, and that of left-out scores around their class."""
    inside, total, around, freedom = [], [], 0.0, 0
    for task in tasks:
        mu, sigma = model.usual(len(task.shots), np.asarray(task.shots, dtype=np.float64))
        z = (task.score - mu[task.label]) / sigma[task.label]
        groups = [z[task.label == c] for c in range(len(task.shots))]
        inside.append(np.mean([g.var(ddof=1) for g in groups if len(g) > 1]))
        total.append(np.mean(z**2))
        left = model.spreads(len(task.shots), task.left_out) if task.left_out else np.empty(0)
        label = np.array([one.label for one in task.left_out])
        for c in np.unique(label):
            some = left[label == c]
            around, freedom = around + float(((some - some.mean()) ** 2).sum()), freedom + len(some) - 1
    share = 1 - float(np.mean(inside)) / float(np.mean(total))
    between = min(max(share, 0.02), 0.9)
    return replace(model, between=between, left_out_within=around / freedom if around else 1 - between)


def _residuals(model: ScoreModel, task: ScoredTask) -> tuple[Array, Array, Array]:
    """Of the known queries: standardised by what the support tells, the spread used, the weight of the left-out."""
    known = model.known_scores(task.shots, task.left_out)
    spread = known.spread[task.label]
    return (task.score - known.centre[task.label]) / spread, spread, known.weight[task.label]


def _misfit(model: ScoreModel, tasks: Sequence[ScoredTask]) -> float:
    """Minus log likelihood of the known queries, tasks weighing alike."""
    found = [_residuals(model, task) for task in tasks]
    return float(np.mean([(np.log(spread) + 0.5 * e**2).mean() for e, spread, _ in found]))


def _shape(model: ScoreModel, tasks: Sequence[ScoredTask]) -> ScoreModel:
    """Quantiles of the residuals at each knot of the weight; a residual between two knots counts at both in part."""
    found = [_residuals(model, task) for task in tasks]
    e, weight = np.concatenate([f[0] for f in found]), np.concatenate([f[2] for f in found])
    row = np.concatenate([np.full(len(f[0]), 1 / len(f[0])) for f in found])
    order = np.argsort(e)
    kept: dict[float, tuple[Any, ...]] = {}
    for i, knot in enumerate(KNOTS):
        share = (row * np.interp(weight, KNOTS, np.eye(len(KNOTS))[i]))[order]
        if share.sum() >= SHARE_OF_A_KNOT * row.sum():
            above = 1 - (np.cumsum(share) - share / 2) / share.sum()  # falling with e
            kept[knot] = _floats(np.interp(-np.asarray(LEVELS), -above, e[order]))
    return replace(model, weights=tuple(kept), quantiles=tuple(kept.values()))


def _temperature(tasks: Sequence[ScoredTask]) -> float:
    """What logits must be divided by to be as sure as they are right, by the likelihood of the known queries."""
    several = [task for task in tasks if len(task.shots) > 1]

    def misfit(p: Tensor) -> Tensor:
        return torch.stack([_cross_entropy(logits * p.exp(), label) for logits, label in pairs]).mean()

    pairs = [(torch.from_numpy(task.logits), torch.from_numpy(task.label)) for task in several]
    return float((-_minimise(misfit, [0.0])).exp()) if pairs else 1.0


def _cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits, label)


def _unknown(model: ScoreModel, tasks: Sequence[ScoredTask]) -> tuple[float, float, float, float]:
    """Logistic regression of unknown against known, both sides of a task weighing one half."""
    parts = []
    for task in tasks:
        if not len(task.unknown):
            continue
        known = model.known_scores(task.shots, task.left_out)
        spread = float(np.sqrt((known.spread**2).mean()))
        for score, sign in ((task.score, -1.0), (task.unknown, 1.0)):
            x = (score - known.centre.mean()) / spread
            one = np.ones_like(x)
            by_shot = x * np.mean(1 / np.asarray(task.shots))
            columns = [one, x, one * math.log(len(task.shots)), by_shot, one * sign, one / len(x)]
            parts.append(np.stack(columns, axis=1))
    if not parts:
        return model.unknown
    table = torch.from_numpy(np.concatenate(parts))

    def misfit(p: Tensor) -> Tensor:
        odds = table[:, :4] @ p
        return (table[:, 5] * torch.nn.functional.softplus(-table[:, 4] * odds)).sum() / table[:, 5].sum()

    base, by_x, by_way, by_shot = _minimise(misfit, [0.0, 1.0, 0.0, 0.0]).tolist()
    return base, by_x, by_way, by_shot


def _strange(model: ScoreModel, tasks: Sequence[ScoredTask]) -> dict[str, Any]:
    """Mean over the classes of a task of what they score as strangers, and its spread over tasks, by their sizes."""
    some = [task for task in tasks if task.strange]
    if len(some) < FEW_TASKS:
        return {}
    x = np.stack([model.sizes(task.shots) for task in some])
    y = np.array([np.mean(task.strange) for task in some])
    mean = np.linalg.lstsq(x, y, rcond=None)[0]
    off = torch.from_numpy((y - x @ mean) ** 2)
    log_way = torch.from_numpy(x[:, 2])

    def misfit(p: Tensor) -> Tensor:
        log_s = p[0] + p[1] * log_way + 0.5 * off.mean().log()
        return (log_s + 0.5 * off / (2 * log_s).exp()).mean()

    base, by_way = _minimise(misfit, [0.0, 0.0]).tolist()
    return {"strange_mean": _floats(mean), "strange_spread": (base + 0.5 * math.log(float(off.mean())), by_way)}


def _sizes(task: ScoredTask) -> tuple[Array, Array]:
    """Photos of its class, and log of the number of classes, of every known query."""
    shot = np.asarray(task.shots, dtype=np.float64)[task.label]
    return shot, np.full_like(shot, math.log(len(task.shots)))


def _minimise(misfit: Callable[[Tensor], Tensor], start: Sequence[float]) -> Tensor:
    p = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([p], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = misfit(p)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return p.detach()


def _floats(values: Any) -> tuple[Any, ...]:
    return tuple(float(value) for value in values)

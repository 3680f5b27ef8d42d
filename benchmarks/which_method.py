"""Every method on the same tasks of four kinds of data: docs/results/data/which-method.csv.

    GLOCAL_DATA=DIR python benchmarks/which_method.py WORK

Heads that do not ship are trained on frozen maps, about half a minute each, and kept in WORK with the rows of every
task.  A run that stops goes on where it was.  Where a method has candidates, validation classes choose one.
``which_photos.py`` has the photos, ``which_method_page.py`` makes the page of the table.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from glocal import compare
from glocal.common.files import write_text
from glocal.research.data import open_dataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec, TaskList
from glocal.research.engine.checkpoint import BEST, load_model, read_checkpoint, save_model
from glocal.research.engine.features import FeatureBank
from glocal.research.engine.records import shipped_models
from glocal.research.engine.train import run_recipe
from glocal.research.methods import Method
from glocal.research.methods.ridge import KernelRidge
from glocal.research.metrics import mean_ci
from glocal.research.ops.similarity import pool

SHOTS = (1, 5)
TIMED = 10  # tasks whose queries are timed
METRICS = ("acc", "auroc")


class Ground(NamedTuple):
    """A data set, and the frozen backbone that heads stand on."""

    base: tuple[str, ...]  # overrides of the recipe frozen-head
    shipped: str  # folder of the shipped heads of this backbone
    temperature: float  # of published distances at this width
    tasks: int


GROUNDS = {
    "cifar-fs": Ground(("init=cifar-fs-full/backbone",), "cifar-fs-full", 64.0, 1000),
    "tiered-64": Ground(("init=tiered-64-cpu/backbone", "data.dataset=tiered-64"), "tiered-64-cpu", 32.0, 600),
}


class Head(NamedTuple):
    """How a row is made: settings of [method], one of which validation chooses, and how it learns."""

    method: str
    candidates: tuple[str, ...] = ("",)
    rates: tuple[str, ...] = ("1e-2",)  # none: nothing learns
    after: str = ""  # the row whose attention it starts from
    score: str = ""  # another than its own
    more: tuple[str, ...] = ("validation.every=300", "validation.tasks=100")


THOROUGH = ("validation.every=100", "validation.tasks=300")  # rows that stand beside the paper's
SCALES = "temperature = {t}, contrast_temperature = {t}"
FROZEN_GEL = (
    'variant = "ahead", top_k = 1, centre = true, distance = "cosine", learn_temperature = true, '
    'gentle_attention = true, adapter = true, local_scale = "learned", m_known = -16.0, m_unknown = -10.0'
)
SHRUNK = tuple(
    f'shrinkage = {a}, open_score = "{score}"' for a in (0.01, 0.1, 0.3, 1.0) for score in ("distance", "relative")
)
NEAREST = tuple(f"k = {k}, centre = {centre}" for k in (1, 3) for centre in ("false", "true"))
HEADS = {
    "protonet": Head("protonet", ('distance = "cosine", open_score = "distance"',), ()),
    "protonet-centred": Head("protonet", ('distance = "cosine", open_score = "distance", centre = true',), ()),
    "snatcher-f": Head("snatcher-f", (SCALES,), more=THOROUGH),
    "feat": Head("snatcher-f", (SCALES,), score="entropy", more=THOROUGH),
    "peeler": Head("peeler", ("temperature = {t}, auxiliary_temperature = {t}, adapter = true",)),
    "snatcher-t": Head("snatcher-t", ("temperature = {t}",)),
    "snatcher-l": Head("snatcher-l", ("temperature = {t}",)),
    "att": Head("att", rates=("0.03",)),
    "att-g-means": Head("att-g", ('rows = "means"',), ("0.03",)),
    "rfdnet": Head("rfdnet", rates=("0.1",)),
    "open-prototype": Head("open-prototype", ('distance = "cosine"',)),
    "gel": Head("gel", ("temperature = {t}",), after="snatcher-f", more=THOROUGH),
    "gel-maps": Head("gel", ('variant = "energy-maps", temperature = {t}',), after="snatcher-f", more=THOROUGH),
    "gel-pixel": Head("gel", ('variant = "pixel", temperature = {t}',), after="snatcher-f", more=THOROUGH),
    "frozen-gel": Head("frozen-gel", (FROZEN_GEL,), ("1e-3",)),
    "ascm": Head("ascm", ("temperature = {t}",), after="snatcher-f"),
    "dnpg": Head("dnpg", ("negatives = 8, epochs = 60",), ("0.07",)),
    "knn": Head("knn", NEAREST, ()),
    "mahalanobis": Head("mahalanobis", SHRUNK, ()),
    "ridge": Head("ridge", rates=()),
    "oslo": Head("oslo", rates=()),
    "eol": Head("eol", rates=()),
    "eol-ways": Head("eol", ('balance = "ways"',), ()),
}
TRANSDUCTIVE = ("oslo", "eol", "eol-ways")
PARTS = ("gel-maps", "gel-pixel")  # variants of a row, for the table of scores alone
COLUMNS = ("data", "shot", "method", "transductive", "tasks", "acc", "acc_half", "auroc", "auroc_half",
           "rank", "rank_low", "rank_high", "ms_per_query")  # fmt: skip


class Line(NamedTuple):
    """What one method did on one data set."""

    data: str
    shot: int
    method: str
    rows: Mapping[str, Any]  # metric -> one number per task
    ms: float  # per query


def head_of(name: str, title: str, shot: int, work: Path, seed: int) -> Path:
    """The shipped head, or a trained one from WORK; of its candidates the one with the best validation AUROC."""
    ground, head, made = GROUNDS[title], HEADS[name], []
    shipped = shipped_models().get(f"{ground.shipped}/{name}-{shot}shot")
    if shipped and not seed and (title, name) != ("cifar-fs", "snatcher-f"):  # that one has an adapter
        return shipped
    if head.method == "ridge":
        return whitened(ground, title, work)
    if head.score:  # the same weights as another row
        same = next(other for other, each in HEADS.items() if each == head._replace(score=""))
        return head_of(same, title, shot, work, seed)
    overrides = [*ground.base, f"train.shot={shot}", f"validation.shot={shot}", f"seed={seed}", *head.more]
    if head.after:
        overrides[0] = f"init={head_of(head.after, title, shot, work, seed)}"
    for i, settings in enumerate(head.candidates):
        method = ", ".join([f'name = "{head.method}"', settings.format(t=ground.temperature)]).removesuffix(", ")
        for rate in head.rates or ("1e-3",):
            stop = [] if head.rates else ["train.tasks=0"]
            out = work / f"{name}-{shot}shot-{i}-{rate}-seed{seed}"
            if not (out / "done").exists():
                options = [*overrides, f"method={{{method}}}", f"optimizer.lr={rate}", *stop]
                run_recipe("train", "frozen-head", out, overrides=options, resume=(out / BEST).exists())
                (out / "done").touch()
            made.append(out)
    return max(made, key=lambda run: read_checkpoint(run / BEST)[1]["validation"]["auroc"])


def whitened(ground: Ground, title: str, work: Path) -> Path:
    """The recognizer's head, whitened by base classes."""
    out = work / "ridge.safetensors"
    if not out.exists():
        model = load_model(ground.base[0].removeprefix("init="))
        data, method = open_dataset(title, "train"), KernelRidge(model.backbone.channels, temperature=0.05)
        bank = FeatureBank.build(model.backbone.eval(), data, wanted=(rows := base_rows(data.label)))
        with torch.inference_mode():
            pooled = torch.cat([pool(bank(part)) for part in np.array_split(rows, 64)])
        method.fit(within(method.roots(pooled), torch.from_numpy(data.label[rows])))
        record = model.record | {"method": {"name": "ridge", "settings": {"temperature": 0.05}}}
        save_model(out, replace(model, method=method, record=record))
    return out


def within(roots: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Covariance within classes, (D, D)."""
    rows, classes = roots.double(), label.unique()
    off = torch.cat([rows[label == c] - rows[label == c].mean(dim=0) for c in classes])
    return off.mT @ off / (len(off) - len(classes))


def base_rows(label: Any) -> Any:
    """At most sixty pictures of each base class, the last ones: a backbone may have learned from the others."""
    return np.concatenate([np.flatnonzero(label == c)[-60:] for c in np.unique(label)])


def measure(names: Sequence[str], title: str, work: Path, seed: int) -> list[Line]:
    ground, lines, data = GROUNDS[title], [], open_dataset(title, "test")
    for shot in SHOTS:
        runs = []
        for name in names:
            run, score = head_of(name, title, shot, work / title, seed), HEADS[name].score
            runs.append(f"{name}={run}" + (f":{score}" if score else ""))
            print(f"{time.strftime('%H:%M')} {title} {shot}-shot {name}: {run.name}", flush=True)
        found = compare(runs, data, shots=(shot,), tasks=ground.tasks, keep=work / "rows" / title, workers=1)
        for each in found.models:
            bank = FeatureBank.build(each.model.backbone, data, wanted=(timed := draw(data, shot, TIMED)).images())
            rows, ms = found.evaluations[0][each.name].rows, milliseconds(each.model.method, timed, bank)
            lines.append(Line(title, shot, each.name, {metric: rows[metric] for metric in METRICS}, ms))
    return lines


def draw(data: Any, shot: int, tasks: int, *, query: int = 15) -> TaskList:
    """Tasks of five known and five unknown classes, fewer where there are fewer than ten."""
    way = min(5, len(data.classes) // 2)
    return EpisodeSampler(data, EpisodeSpec(way, shot, query, way, query), seed=0).take(tasks)


def milliseconds(method: Method, tasks: TaskList, fetch: Any) -> float:
    """Processor time of a query: its map is embedded and compared with the enrolled classes.  No encoder."""
    spent = []
    with torch.inference_mode():
        for task in itertools.islice(tasks, TIMED):
            episode = task.episode(fetch)
            support, _ = method.eval().views(episode)
            state = method.enroll(support, episode.support_one_hot, episode.drawn)
            start = time.process_time()
            method.score(state, method.embed(episode.query))
            spent.append((time.process_time() - start) / len(episode.query))
    return 1000 * float(np.median(spent))


def write(lines: Sequence[Line], out: Path) -> None:
    """A line per method, data and shot: means over tasks in percent, and the rank among methods of its kind."""
    table = io.StringIO()
    sheet = csv.writer(table, lineterminator="\n")
    sheet.writerow(COLUMNS)
    for key in dict.fromkeys((each.data, each.shot, each.method in TRANSDUCTIVE) for each in lines):
        group = [each for each in lines if (each.data, each.shot, each.method in TRANSDUCTIVE) == key]
        for each, rank in zip(group, ranks([each.rows for each in group]), strict=True):
            found = [100 * part for m in METRICS for part in (mean_ci(each.rows[m]).mean, mean_ci(each.rows[m]).half)]
            numbers = [f"{number:.2f}" for number in (*found, *rank)]
            sheet.writerow([*key[:2], each.method, int(key[2]), len(each.rows["acc"]), *numbers, f"{each.ms:.3f}"])
    write_text(out, table.getvalue())


def ranks(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float]]:
    """Of each method the mean place by ACC and by AUROC, 1 the best, with a 95 % bootstrap interval over tasks."""
    place = np.mean([places(np.stack([each[metric] for each in rows])) for metric in METRICS], axis=0)
    n, rng = place.shape[1], np.random.default_rng(0)
    drawn = np.stack([place[:, rng.integers(n, size=n)].mean(axis=1) for _ in range(1000)])
    return list(zip(place.mean(axis=1), *np.quantile(drawn, [0.025, 0.975], axis=0), strict=True))


def places(value: Any) -> Any:
    """(M, T) -> (M, T) the place of each method in each task; equals share theirs."""
    better = (value[None] > value[:, None]).sum(axis=1)
    return 1 + better + ((value[None] == value[:, None]).sum(axis=1) - 1) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--data", nargs="*", default=[*GROUNDS, "photos"], choices=[*GROUNDS, "photos"])
    parser.add_argument("--methods", nargs="*", default=[name for name in HEADS if name not in PARTS], choices=HEADS)
    parser.add_argument("--seed", type=int, default=0, help="Of the training; tasks are the same.")
    parser.add_argument("--out", type=Path, default=Path("docs/results/data/which-method.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [line for title in given.data if title in GROUNDS
             for line in measure(given.methods, title, given.work, given.seed)]  # fmt: skip
    if "photos" in given.data:
        from which_photos import measure_photos

        lines += measure_photos(given.work)
    write(lines, given.out)


if __name__ == "__main__":
    main()

"""The demo: train on printed characters, evaluate on handwritten digits, and show the result as a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from glocal import __version__
from glocal.backbones import build_backbone
from glocal.data.dataset import ClassDataset
from glocal.data.episodes import EpisodeSampler, EpisodeSpec, TaskList
from glocal.data.registry import open_dataset
from glocal.engine.checkpoint import LAST, Model, load_model
from glocal.engine.evaluate import Evaluation, Progress, evaluate_models
from glocal.engine.named_models import NamedModel, name_model
from glocal.engine.pretrain import pretrain
from glocal.engine.recipe import load_recipe
from glocal.engine.run_folder import Callback
from glocal.engine.train import train
from glocal.methods import METHODS
from glocal.metrics import METRICS, paired_difference, score_histogram
from glocal.report import plots
from glocal.report.gallery import Query, gallery
from glocal.report.html import Section, code, facts, figure, page, side_by_side, to_html
from glocal.report.table import Row, Table
from glocal_runtime.errors import RecipeError
from glocal_runtime.files import write_text
from glocal_runtime.markup import Html

SHOTS = (1, 5)
REFUSED = 0.1  # share of known validation queries that the gallery's threshold refuses
SHOWN = 2  # queries per class in the gallery
NOTES = {  # of the rows, from raw pixels to what each stage adds
    "raw pixels": "cosine prototypes of the pictures themselves, nothing learned",
    "ProtoNet": "narrow ResNet-12 pre-trained on the characters, cosine prototypes",
    "SnaTCHer-F": "prototypes with attention: the paper's baseline",
    "GEL": "the paper's method: global and local energy",
}
COMMANDS = """\
glocal evaluate photos-protonet --dataset photos --split all --way 3 --unknown-way 2 --shot 5 --query 5
glocal list"""

Found = Mapping[int, Mapping[str, Evaluation]]  # by shot and row


class Demo(NamedTuple):
    report: Path
    tables: dict[int, Table]  # by shot


def run_demo(
    out: Path,
    *,
    tasks: int = 600,
    device: torch.device | None = None,
    callback: Callable[[str], Callback | None] = lambda title: None,
    progress: Progress | None = None,
) -> Demo:
    """A run that is in ``out`` already is continued or reused."""
    models, where = _train(out, device, callback), device or "cpu"
    test = open_dataset("embedded", "test")
    drawn = {shot: EpisodeSampler(test, EpisodeSpec(shot=shot), seed=0).take(tasks) for shot in SHOTS}
    evaluated = evaluate_models(models, test, list(drawn.values()), keep_answers=True, device=where, progress=progress)
    found = dict(zip(SHOTS, evaluated, strict=True))
    tables = {shot: _table(shot, rows) for shot, rows in found.items()}
    text = _page(found, tables, test, drawn, _threshold(models[-1], where))
    report = out / "demo-report.html"
    write_text(report, text)
    return Demo(report, tables)


def _train(out: Path, device: torch.device | None, callback: Callable[[str], Callback | None]) -> list[NamedModel]:
    pixels = build_backbone("pixels", image_size=32)
    cosine = METHODS["protonet"](pixels.channels, distance="cosine", open_score="distance")
    models = {"raw pixels": Model(pixels, cosine)}
    for name in list(NOTES)[1:]:
        folder, run = out / name.lower(), pretrain if name == "ProtoNet" else train
        start = [f"init={json.dumps(str(out / 'protonet'))}"] if run is train else []
        recipe = load_recipe(f"demo-{name.lower()}", start)
        try:
            run(recipe, folder, resume=(folder / LAST).exists(), device=device, callback=callback(name))
        except RecipeError as error:
            raise RecipeError(f"{error}; to start the demo anew, delete {out} or choose another --out") from error
        models[name] = load_model(folder)
    return [name_model(name, model) for name, model in models.items()]


def _threshold(model: NamedModel, device: torch.device | str) -> float:
    """The open score that a tenth of the known queries exceed, on validation characters: no digit is looked at."""
    data = open_dataset("embedded", "val")
    tasks = EpisodeSampler(data, EpisodeSpec(shot=SHOTS[-1]), seed=0).take(100)
    (found,) = evaluate_models([model], data, [tasks], keep_answers=True, device=device)
    known = np.concatenate([answer.open_score[answer.label >= 0] for answer in found[model.name].answers])
    return float(np.quantile(known, 1 - REFUSED))


def _table(shot: int, found: Mapping[str, Evaluation]) -> Table:
    reference = next(iter(found))
    rows, base = [], found[reference].rows
    for name, each in found.items():
        compared = () if name == reference else ("acc", "auroc")
        difference = {metric: paired_difference(each.rows[metric], base[metric]) for metric in compared}
        rows.append(Row(name, each.summary(), NOTES[name], difference))
    title = f"5-way {shot}-shot, 5 unknown digits, {len(found[reference].answers)} tasks"
    return Table(title, tuple(METRICS), tuple(rows), reference=reference)


def _page(
    found: Found, tables: Mapping[int, Table], test: ClassDataset, drawn: Mapping[int, TaskList], threshold: float
) -> str:
    last, shot = list(NOTES)[-1], SHOTS[-1]
    scores = {
        name: [(answer.open_score, answer.label >= 0) for answer in each.answers] for name, each in found[shot].items()
    }
    density = plots.to_svg(plots.density(score_histogram(scores[last]), title=f"{last}, {shot}-shot"))
    roc = plots.to_svg(plots.roc(scores, title=f"{shot}-shot"))
    figures = side_by_side(
        figure(density, alt="density of the open score of known and unknown queries"),
        figure(roc, alt="receiver operating characteristic of every row of the table"),
    )
    made = {
        "Learned from": "printed characters of the fonts that come with matplotlib",
        "Chosen on": "other printed characters, of scripts that training did not see",
        "Tested on": f"{len(test)} handwritten digits from scikit-learn, {', '.join(test.classes)}",
        "Tasks": ", ".join(f"{s}-shot {each[last].tasks[:12]}" for s, each in found.items()),
        "Look": "the characters were drawn with the look of these digits in view: ink, width, blur",
        "Threshold": f"{threshold:.3g}: refuses {REFUSED:.0%} of known validation queries",
        "glocal": __version__,
    }
    own = (
        "Put your photos into one folder per class, photos/<class>/*.jpg, and measure how well an encoder trained on "
        "ImageNet tells your classes apart and notices unknown ones (here: three classes taught from five photos "
        "each, two unknown):"
    )
    sections = [
        Section("Numbers", [to_html(table) for table in tables.values()]),
        Section("Known against unknown", [figures]),
        Section("One task", [_gallery(found[shot][last], test, drawn[shot], threshold)]),
        Section("How it was made", [facts(made)]),
        Section("Next: your own pictures", [own, code(COMMANDS)]),
    ]
    lead = (
        "A narrow ResNet-12 learned from printed characters only. Each task teaches it five digits from one or five "
        "handwritten pictures each; then it must name those five and say “unknown” to the other five."
    )
    return page("Handwritten digits from a handful of pictures", sections, lead=lead)


def _gallery(found: Evaluation, test: ClassDataset, tasks: TaskList, threshold: float) -> Html:
    """The first task: nothing chosen, so what it shows is typical."""
    draw, answers = tasks[0], found.answers[0]
    names = [test.classes[c] for c in draw.drawn]
    support = {
        f"digit {names[n]}": [test.image(i) for i in draw.support[draw.support_label == n]]
        for n in range(tasks.spec.way)
    }
    truth = test.label[draw.query]
    queries = []
    for c in draw.drawn:
        for q in np.flatnonzero(truth == c)[:SHOWN]:
            score = float(answers.open_score[q])
            answer = None if score > threshold else f"digit {names[int(answers.logits[q].argmax())]}"
            picture, known = test.image(int(draw.query[q])), bool(answers.label[q] >= 0)
            queries.append(Query(picture, f"digit {test.classes[c]}", known, answer, score))
    return gallery(support, queries, threshold=threshold)

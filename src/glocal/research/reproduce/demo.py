"""The demo: train on printed characters, teach and ask about handwritten digits, compare methods; one page shows it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from glocal import __version__
from glocal.common.errors import GlocalError, RecipeError
from glocal.common.files import write_text
from glocal.common.markup import Html
from glocal.recognizer.diagnosis.check import Check, check
from glocal.recognizer.photos.sources import Source
from glocal.recognizer.recognizer import Recognizer
from glocal.research.backbones import build_backbone
from glocal.research.convert import convert
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec, TaskList
from glocal.research.data.registry import open_dataset
from glocal.research.engine.checkpoint import LAST, Model, load_model
from glocal.research.engine.evaluate import Evaluation, Progress, evaluate_models
from glocal.research.engine.named_models import NamedModel, name_model
from glocal.research.engine.pretrain import pretrain
from glocal.research.engine.recipe import load_recipe
from glocal.research.engine.run_folder import Callback
from glocal.research.engine.train import train
from glocal.research.methods import METHODS
from glocal.research.metrics import METRICS, paired_difference, score_histogram
from glocal.research.report import plots
from glocal.research.report.gallery import Query, gallery
from glocal.research.report.html import Section, code, facts, figure, page, side_by_side, to_html
from glocal.research.report.recognizer_report import answers, confusion, expectation, kept, reasons
from glocal.research.report.recognizer_report import outcome as outcome_of
from glocal.research.report.table import Row, Table

SHOTS = (1, 5)
REFUSED = 0.1  # share of known validation queries that the gallery's threshold refuses
SHOWN = 2  # queries per class in the gallery
NOTES = {  # of the rows, from raw pixels to what each stage adds
    "raw pixels": "cosine prototypes of the pictures themselves, nothing learned",
    "ProtoNet": "narrow ResNet-12 pre-trained on the characters, cosine prototypes",
    "SnaTCHer-F": "prototypes with attention: the paper's baseline",
    "GEL": "the paper's method: global and local energy",
}
SOONER = ("pretrain.epochs=3",)  # of the recipe's seven, for a demo of a few minutes
TAUGHT, ASKED = 8, 60  # pictures of a digit that the recognizer is taught, and that it is asked about
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
KNOWN = DIGITS[:5]
COMMANDS = """\
glocal enroll photos -o mine.glocal       # photos/<class>/*.jpg; other things in photos/unknown/
glocal predict mine.glocal new.jpg        # a name, or "unknown", and why
glocal check mine.glocal labelled         # before you trust it: photos whose names you know
glocal serve mine.glocal                  # the same in a browser"""
GEL_HERE = (
    "GEL adds a comparison of patches to that of whole pictures. The maps of this small network are 2x2: four patches, "
    "each of which sees nearly the whole digit. So there is little that patches could add, and plain prototypes on the "
    "same network are as good or better. Trained here with three seeds, GEL had 87.3 to 88.0 AUROC at 1-shot, where "
    "prototypes had 87.7, and 93.6 to 94.4 at 5-shot, where they had 94.5. GEL gains where maps are larger: on 4x4 "
    "maps of real pictures its pixel branch adds 1.3 (1-shot) and 2.0 (5-shot) AUROC to its own global energy, and on "
    "photos under an ImageNet encoder it leads the methods that judge each picture alone, 94.5 against 93.9 for "
    "prototypes at 1-shot (docs/results: tiered-64, Caltech photos)."
)

Found = Mapping[int, Mapping[str, Evaluation]]  # by shot and row


class Demo(NamedTuple):
    report: Path
    tables: dict[int, Table]  # by shot
    recognizer: Path
    expected: list[str]  # of the recognizer, in words
    outcome: Check
    kept: str  # whether its promise was, in words


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
    who, outcome, sources = _recognizer(out, test, str(where), progress)
    file, report = _free_place(out, who), out / "demo-report.html"
    who.save(file)
    said = "The first pictures of every digit, none of them chosen, with the answer and the reason it gives."
    shown = [said, answers(outcome, sources), *reasons(who, outcome, sources)]
    own = [_product(who, outcome), Section("Answers and reasons", shown)]
    write_text(report, _page(own, found, tables, test, drawn, _threshold(models[-1], where)))
    return Demo(report, tables, file, who.outlook().lines(), outcome, kept(who, outcome))


def _free_place(out: Path, who: Recognizer) -> Path:
    """digits.glocal, or a name beside it: whoever follows the demo's advice has taught that file more."""
    place, n = out / "digits.glocal", 1
    while os.path.lexists(place) and not _holds(place, who):
        n += 1
        place = out / f"digits-{n}.glocal"
    return place


def _holds(file: Path, who: Recognizer) -> bool:
    try:
        return Recognizer.load(file, device="cpu").contents.identity == who.contents.identity
    except GlocalError:
        return False


def _recognizer(
    out: Path, test: ClassDataset, device: str, progress: Progress | None
) -> tuple[Recognizer, Check, dict[str, Source]]:
    """Five digits taught, all ten asked about; the model is the one that was just trained."""
    # Classes of a data set are ordered by content, not by name.
    pictures = {name: test.members(test.classes.index(str(digit))) for digit, name in enumerate(DIGITS)}

    def sources(name: str, start: int, stop: int) -> list[Source]:
        return [Source(f"{name}/{i}.png", partial(test.image, int(i))) for i in pictures[name][start:stop]]

    who = Recognizer.enroll(
        {name: sources(name, 0, TAUGHT) for name in KNOWN}, model=convert(out / "gel"), device=device
    )
    asked = {name: sources(name, TAUGHT, TAUGHT + ASKED) for name in DIGITS}
    told = None if progress is None else partial(progress, "ask")
    outcome = check(who, asked, progress=told)
    return who, outcome, {each.name: each for some in asked.values() for each in some}


def _product(who: Recognizer, outcome: Check) -> Section:
    head = (
        f"{len(who.classes)} digits were taught with {TAUGHT} pictures each. From these alone it says what to expect "
        "of it, and sets a threshold with a promise. Then it was asked about pictures that it had not seen, of these "
        "digits and of the five others."
    )
    return Section(
        "A recognizer: promise and outcome",
        [
            head,
            Html("<h3>What it says of itself</h3>"),
            expectation(who),
            Html("<h3>What came of it</h3>"),
            outcome_of(who, outcome),
            kept(who, outcome),
            confusion(outcome.confusion(), who.classes),
        ],
    )


def _train(out: Path, device: torch.device | None, callback: Callable[[str], Callback | None]) -> list[NamedModel]:
    pixels = build_backbone("pixels", {"image_size": 32})
    cosine = METHODS["protonet"](pixels.channels, distance="cosine", open_score="distance")
    models = {"raw pixels": Model(pixels, cosine)}
    for name in list(NOTES)[1:]:
        folder, run = out / name.lower(), pretrain if name == "ProtoNet" else train
        start = [f"init={json.dumps(str(out / 'protonet'))}"] if run is train else list(SOONER)
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
    own: list[Section],
    found: Found,
    tables: Mapping[int, Table],
    test: ClassDataset,
    drawn: Mapping[int, TaskList],
    threshold: float,
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
    yours = (
        "Put your photos into one folder per class, photos/<class>/*.jpg; five of each are a good start. An encoder "
        "trained on ImageNet looks at them, nothing is trained, and nothing leaves your machine. A report like this "
        "one of them: glocal demo --photos photos. A recognizer:"
    )
    sections = [
        *own,
        Section("Methods in numbers", [*(to_html(table) for table in tables.values()), GEL_HERE]),
        Section("Known against unknown", [figures]),
        Section("One task", [_gallery(found[shot][last], test, drawn[shot], threshold)]),
        Section("How it was made", [facts(made)]),
        Section("Next: your own photos", [yours, code(COMMANDS)]),
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

"""``glocal demo``: train, evaluate on classes never seen, and show the result as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from glocal.cli.console import Device, Json, TrainingBar, bar, bars, screen, show

if TYPE_CHECKING:
    import torch

    from glocal.data import ClassDataset, TaskList
    from glocal.engine.checkpoint import Model
    from glocal.engine.evaluate import Evaluation

SHOTS = (1, 5)
REFUSED = 0.1  # share of known validation queries that the gallery's threshold turns away
SHOWN = 2  # queries per class in the gallery


class Rival(NamedTuple):
    """A row of the table."""

    name: str
    model: Model
    note: str


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the runs and the report.")] = Path("demo-out"),
    tasks: Annotated[int, typer.Option(min=2, help="Test tasks per number of shots.")] = 600,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """The whole job in front of your eyes, on data that needs no download: train, evaluate, report."""
    from glocal.data import EpisodeSampler, EpisodeSpec, open_dataset
    from glocal.engine.device import pick_device
    from glocal.engine.evaluate import build_bank, evaluate
    from glocal.report.html import write_page

    where = pick_device(device)
    screen.print("Learning from [bold]printed characters[/bold] of many scripts and typefaces ...")
    rivals = _train(out, where)
    test = open_dataset("embedded", "test")
    screen.print("... and now [bold]handwritten digits[/bold], never seen: five are taught, five others stay unknown.")
    results: dict[int, dict[str, Evaluation]] = {}
    drawn: dict[int, TaskList] = {}
    for shot in SHOTS:
        drawn[shot] = EpisodeSampler(test, EpisodeSpec(shot=shot), seed=0).take(tasks)
        results[shot] = {}
        for rival in rivals:
            with bar(f"{shot}-shot") as progress:
                bank = build_bank(rival.model, test, drawn[shot], device=where)
                results[shot][rival.name] = evaluate(
                    rival.model.method, drawn[shot], bank, device=where, progress=progress
                )
    threshold = _threshold(rivals[-1].model, where)
    page = _page(rivals, results, test, drawn, threshold)
    report = write_page(out / "demo-report.html", page)
    tables = {shot: _table(shot, found, rivals) for shot, found in results.items()}
    show(_plain(tables, report), as_json=json, otherwise=lambda: _terminal(tables, report))


def _train(out: Path, device: torch.device) -> list[Rival]:
    """The rows: raw pixels, then what each stage adds.  A run that is there already is continued or reused."""
    from json import dumps

    from glocal.backbones import build_backbone
    from glocal.engine.checkpoint import LAST, Model, load_model
    from glocal.engine.pretrain import pretrain
    from glocal.engine.recipe import load_recipe
    from glocal.engine.train import train
    from glocal.methods import METHODS
    from glocal_runtime.errors import RecipeError

    pixels = build_backbone("pixels", image_size=32)
    cosine = METHODS["protonet"](pixels.channels, distance="cosine", open_score="distance")
    rows = [Rival("raw pixels", Model(pixels, cosine), "cosine prototypes of the pictures themselves, nothing learned")]
    for name, run, note in (
        ("ProtoNet", pretrain, "narrow ResNet-12 pre-trained on the characters, cosine prototypes"),
        ("SnaTCHer-F", train, "prototypes with attention: the paper's baseline"),
        ("GEL", train, "the paper's method: global and local energy"),
    ):
        folder = out / name.lower()
        start = [f"init={dumps(str(out / 'protonet'))}"] if run is train else []
        recipe, begun = load_recipe(f"demo-{name.lower()}", start), (folder / LAST).exists()
        try:
            with bars() as progress:
                run(recipe, folder, resume=begun, device=device, callback=TrainingBar(progress, name))
        except RecipeError as error:
            raise RecipeError(f"{error}; to start the demo anew, delete {out} or choose another --out") from error
        rows.append(Rival(name, load_model(folder), note))
    return rows


def _threshold(model: Model, device: torch.device) -> float:
    """The open score that a tenth of the known queries exceed, on validation characters: no digit is looked at."""
    import numpy as np

    from glocal.data import EpisodeSampler, EpisodeSpec, open_dataset
    from glocal.engine.evaluate import build_bank, evaluate

    data = open_dataset("embedded", "val")
    tasks = EpisodeSampler(data, EpisodeSpec(shot=SHOTS[-1]), seed=0).take(100)
    answers = evaluate(model.method, tasks, build_bank(model, data, tasks, device=device), device=device).answers
    known = np.concatenate([answer.open_score[answer.label >= 0] for answer in answers])
    return float(np.quantile(known, 1 - REFUSED))


def _table(shot: int, found: dict[str, Evaluation], rivals: list[Rival]) -> Any:
    from glocal.metrics import METRICS, paired_difference
    from glocal.report.table import Row, Table

    reference = rivals[0].name
    rows = []
    for rival in rivals:
        ours, base = found[rival.name].rows, found[reference].rows
        difference = (
            {} if rival.name == reference else {m: paired_difference(ours[m], base[m]) for m in ("acc", "auroc")}
        )
        rows.append(Row(rival.name, found[rival.name].summary(), rival.note, difference))
    count = len(next(iter(found.values())).answers)
    title = f"5-way {shot}-shot, 5 unknown digits, {count} tasks"
    return Table(title, tuple(METRICS), tuple(rows), reference=reference)


def _page(
    rivals: list[Rival],
    results: dict[int, dict[str, Evaluation]],
    test: ClassDataset,
    drawn: dict[int, TaskList],
    threshold: float,
) -> str:
    from glocal import __version__
    from glocal.metrics import score_histogram
    from glocal.report import Section, page, plots
    from glocal.report.html import code, facts, figure, side_by_side
    from glocal.report.table import to_html

    last, shot = rivals[-1].name, SHOTS[-1]
    scores = {
        name: [(answer.open_score, answer.label >= 0) for answer in found.answers]
        for name, found in results[shot].items()
    }
    density = plots.density(score_histogram(scores[last]), title=f"{last}, {shot}-shot")
    roc = plots.roc(scores, title=f"{shot}-shot")
    return page(
        "Handwritten digits from a handful of pictures",
        [
            Section("Numbers", [to_html(_table(shot, found, rivals)) for shot, found in results.items()]),
            Section(
                "Known against unknown",
                [
                    side_by_side(
                        figure(plots.to_svg(density), alt="density of the open score of known and unknown queries"),
                        figure(plots.to_svg(roc), alt="receiver operating characteristic of every row of the table"),
                    )
                ],
            ),
            Section("One task", [_gallery(results[shot][last], test, drawn[shot], threshold)]),
            Section(
                "How it was made",
                [
                    facts(
                        {
                            "Learned from": "printed characters of the fonts that come with matplotlib",
                            "Chosen on": "other printed characters, of scripts that training did not see",
                            "Tested on": f"{len(test)} handwritten digits from scikit-learn, {', '.join(test.classes)}",
                            "Tasks": ", ".join(f"{s}-shot {f[last].tasks[:12]}" for s, f in results.items()),
                            "Look": "the characters were drawn with the look of these digits in view: ink, width, blur",
                            "Threshold": f"{threshold:.3g}: refuses {REFUSED:.0%} of known validation queries",
                            "glocal": __version__,
                        }
                    )
                ],
            ),
            Section("Next: your own pictures", [_NEXT, code(_COMMANDS)]),
        ],
        lead="A narrow ResNet-12 learned from printed characters only. Each task teaches it five digits from one or "
        "five handwritten pictures each; then it must name those five and say “unknown” to the other five.",
    )


_NEXT = (
    "Put your photos into one folder per class, photos/<class>/*.jpg, and measure how well an eye trained on ImageNet "
    "tells your classes apart and notices strangers (here: three classes taught from five photos each, two unknown):"
)
_COMMANDS = """\
glocal evaluate photos-protonet --dataset photos --split all --way 3 --unknown-way 2 --shot 5 --query 5
glocal list"""


def _gallery(found: Evaluation, test: ClassDataset, tasks: TaskList, threshold: float) -> Any:
    """The first task: nothing chosen, so what it shows is typical."""
    import numpy as np

    from glocal.report import Query, gallery

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


def _plain(tables: dict[int, Any], report: Path) -> dict[str, Any]:
    from glocal.report.table import to_json

    return {"report": str(report), "tables": {f"{shot}-shot": to_json(table) for shot, table in tables.items()}}


def _terminal(tables: dict[int, Any], report: Path) -> Any:
    """The two main columns, which fit a narrow terminal; the page has them all."""
    from dataclasses import replace

    from rich.console import Group

    from glocal.report.table import to_rich

    narrow = []
    for table in tables.values():
        rows = tuple(replace(row, note="") for row in table.rows)
        narrow.append(to_rich(replace(table, metrics=("acc", "auroc"), rows=rows)))
    notes = "\n".join(f"{row.name}: {row.note}" for row in next(iter(tables.values())).rows)
    closing = (
        f"\nReport: {report}\nNext, with one folder of your photos per class in photos/:\n  {_COMMANDS.splitlines()[0]}"
    )
    return Group(*narrow, notes, closing)

"""From what was asked for to the report: the runs it takes, the rows they give, the parts they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from glocal.common.errors import RecipeError
from glocal.research.engine.distributed import world
from glocal.research.metrics import PairedDifference, Spread, significant
from glocal.research.report.table import points
from glocal.research.reproduce.measurement import SEED, Measurement, measure, published_row
from glocal.research.reproduce.plans import (
    AHEAD,
    AHEAD_COMBINE,
    ALL,
    BASELINE,
    CONTROL,
    DELAY_COMBINE,
    ENERGY,
    ENERGY_MAPS,
    SHOTS,
    TABLES,
    Line,
    lines_of,
)
from glocal.research.reproduce.report_folder import HTML, Report, write_report
from glocal.research.reproduce.report_parts import report_part
from glocal.research.reproduce.runs import Run, RunSettings, about_run, environment, folder_of, in_words, make_runs
from glocal.research.reproduce.scales import Scale


def asked_for(what: Sequence[str], scale: Scale) -> list[str]:
    """Names of tables and figures, in the order of the paper; ``all`` is what the scale has."""
    unknown = [name for name in what if name not in (*ALL, "all")]
    if unknown:
        raise RecipeError(f"there is {', '.join(ALL)} and all to reproduce, got {unknown[0]!r}", code="no-such-table")
    if "resnet-18" in what and not scale.has_resnet18:
        scale.on_resnet18("gel", scale.datasets[0], 1)  # says why not
    return [name for name in ALL if name in what or ("all" in what and (name != "resnet-18" or scale.has_resnet18))]


def runs_of(names: Sequence[str], scale: Scale, datasets: Sequence[str]) -> list[Run]:
    """Every run they take, those it starts from not counted, each once."""
    needed = [lines_of(name, scale, dataset) for dataset in datasets for name in names]
    return list(dict.fromkeys(line.run for by_shot in needed for lines in by_shot.values() for line in lines))


def reproduce(
    names: Sequence[str],
    scale: Scale,
    datasets: Sequence[str],
    settings: RunSettings,
    command: str,
    *,
    make: Callable[[Sequence[Run], RunSettings], None] = make_runs,
) -> Path:
    """Make what is missing, measure it, write the report; returns the page.

    ``make`` makes the runs, here or on a cluster.  ``command`` is printed as the way to repeat the report.
    """
    trained = [run.seeded(seed) for seed in range(settings.seeds) for run in runs_of(names, scale, datasets)]
    settings = replace(settings, threads=_threads(trained))
    make(trained, settings)
    folders = {run: folder_of(run, settings.runs) for run in trained}
    measured = {
        (dataset, shot): measure(dataset, shot, lines, folders, settings)
        for (dataset, shot), lines in _tested(names, scale, datasets).items()
    }
    folders_of_all = [folder_of(step, settings.runs) for run in trained for step in run.chain()]
    manifests = {dataset: each.data.manifest for (dataset, _), each in measured.items()}
    here = environment(settings.device, settings.threads)
    conditions = {
        "Scale": f"{scale.name}, settings of the authors' program" if scale.settings == "authors" else scale.name,
        "Test": f"{settings.tasks} tasks per shot, seed {SEED}",
        "Data": ", ".join(f"{name} {digest[:12]}" for name, digest in manifests.items()),
        "Runs": str(len(folders)) + (f", from {settings.seeds} seeds each" if settings.seeds > 1 else ""),
        "Made with": in_words(here),
    }
    numbers = {
        "scale": scale.name,
        "settings": scale.settings,
        "asked": list(names),
        "seed": SEED,
        "tasks": settings.tasks,
        "training_seeds": settings.seeds,
        "environment": here,
        "data": manifests,
        "runs": {folder.name: about_run(folder) for folder in folders_of_all},
    }
    parts = [report_part(name, scale, dataset, measured, settings) for dataset in datasets for name in names]
    title = f"Glocal energy-based learning, reproduced at {scale.name} scale"
    opening = findings(scale, names, datasets, measured)
    report = Report(title, opening, conditions, parts, command, notes=[NOTES[scale.name]], numbers=numbers)
    return write_report(report, settings.out) if world().first else settings.out / HTML


def _tested(names: Iterable[str], scale: Scale, datasets: Iterable[str]) -> dict[tuple[str, int], list[Line]]:
    """All rows by data set and shot: they share test tasks."""
    needed: dict[tuple[str, int], list[Line]] = {}
    for dataset in datasets:
        for name in names:
            for shot, lines in lines_of(name, scale, dataset).items():
                needed.setdefault((dataset, shot), []).extend(lines)
    return needed


def _threads(runs: Iterable[Run]) -> int | None:
    """The number of threads that all recipes name, or None."""
    named = {run.resolved().speed.threads for run in runs}
    return named.pop() if len(named) == 1 else None


NOTES = {
    "embedded": "At this scale heads learn for a few hundred tasks on a tiny backbone, printed characters teach and "
    "handwritten digits test. That shows that everything runs, not what the paper's method is worth.",
    "cpu": "At this scale the backbones are a third as wide as the paper's and frozen. Heads learn on the tenth of the "
    "base pictures that pre-training did not see. Compare rows with each other, not with the published column. Another "
    "training seed is one of the head: all start from the backbone that ships.",
    "paper": "The published training at full width. Where a number may stand beside the paper's, the tables say "
    "nothing against it; reconstructions of methods that were never released are marked.",
}


class Question(NamedTuple):
    subject: str
    table: str
    row: str
    against: str
    contrast: str  # what the difference tells
    paper: tuple[str, str]  # rows whose published difference answers the same question


WITHOUT_LOSS, CLASS_BRANCH = "the same model and score without the loss", "the class branch with the energy loss alone"
WITHOUT_BOTH = "the same model without the loss and pixels"
QUESTIONS = (
    Question("The energy loss", "ablation", ENERGY, CONTROL, WITHOUT_LOSS, (ENERGY_MAPS, BASELINE)),
    Question("The pixel branch", "ablation", AHEAD, ENERGY, CLASS_BRANCH, (AHEAD, ENERGY_MAPS)),
    Question("All of GEL", "ablation", AHEAD, CONTROL, WITHOUT_BOTH, (AHEAD, BASELINE)),
    Question(
        *("Combining ahead", "combine", AHEAD_COMBINE, DELAY_COMBINE, "combining with delay"),
        (AHEAD_COMBINE, DELAY_COMBINE),
    ),
)


def findings(
    scale: Scale, asked: Sequence[str], datasets: Sequence[str], measurements: Mapping[tuple[str, int], Measurement]
) -> list[str]:
    """What a report opens with: a sentence per question, decided by the numbers alone.

    A difference counts as significant when its paired 95 % interval over tasks leaves out 0, and its interval over
    training seeds does so too.  With one seed nothing is significant: the sentence says that it is over tasks alone.
    """
    return [
        _answer(question, scale, datasets, measurements)
        if question.table in asked
        else f"{question.subject}: not asked for here; it takes `{question.table}`."
        for question in QUESTIONS
    ]


def _answer(
    question: Question, scale: Scale, datasets: Sequence[str], measurements: Mapping[tuple[str, int], Measurement]
) -> str:
    ours: list[PairedDifference | Spread] = []
    sentences, seeds = [], max(each.seeds for each in measurements.values())
    for dataset in datasets:
        parts = []
        for shot in SHOTS:
            lines = {line.label: line for line in TABLES[question.table].lines(scale, dataset, shot)}
            row, base, measured = lines[question.row], lines[question.against], measurements[dataset, shot]
            gap, over = measured.difference(row, base), measured.over_seeds(row, "auroc", base)
            ours.append(_both(gap, over))
            part = f"{points(gap.mean)} [{points(gap.low)}, {points(gap.high)}]"
            part += f", over seeds [{points(over.low)}, {points(over.high)}]," if over else ""
            parts.append(f"{part} at {shot}-shot")
        sentences.append(f"{' and '.join(parts)} on {dataset}{_paper(question, scale, dataset)}")
    changes = f"against {question.contrast}, points of AUROC change by"
    alone = " (over tasks alone: one training seed settles nothing)" if seeds == 1 else ""
    return f"{question.subject} {_verdict(ours)}{alone}: {changes} {'; '.join(sentences)}."


def _both(gap: PairedDifference, over: Spread | None) -> PairedDifference | Spread:
    """The one of the two intervals that says less."""
    if over is None or significant(gap, over):
        return gap
    return replace(over, low=min(gap.low, over.low, 0.0), high=max(gap.high, over.high, 0.0))


def _verdict(gaps: Sequence[PairedDifference | Spread]) -> str:
    better, worse = sum(gap.low > 0 for gap in gaps), sum(gap.high < 0 for gap in gaps)
    if better == len(gaps):
        return "helps"
    if worse == len(gaps):
        return "hurts"
    if not better and not worse:
        return "makes no significant difference"
    if better and worse:
        return "helps in some settings and hurts in others"
    return "helps, but not in every setting" if better else "hurts, but not in every setting"


def _paper(question: Question, scale: Scale, dataset: str) -> str:
    """The same step in the paper's table, which has no control: there the loss and the score change together."""
    plan, beside, steps = TABLES[question.table], scale.beside[dataset], []
    for shot in SHOTS:
        lines = {line.label: line for line in plan.lines(scale, dataset, shot)}
        row, base = (published_row(plan, lines[label], beside, shot) for label in question.paper)
        if row is None or base is None:
            return ""
        steps.append(points(row.values["auroc"].mean - base.values["auroc"].mean))
    other = question.paper[1]
    against = f" against its {other.lower()}" if other != question.against else ""
    return f" (the paper{against} on {beside}: {' and '.join(steps)})"

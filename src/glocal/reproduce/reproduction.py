"""From what was asked for to the report: the runs it takes, the rows they give, the parts they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from glocal.metrics import PairedDifference
from glocal.reproduce.graph import Step, in_order, tests_of, work_off
from glocal.reproduce.measurement import SEED, Measurement, measure, published_row
from glocal.reproduce.plans import (
    AHEAD,
    AHEAD_COMBINE,
    ALL,
    BASELINE,
    CONTROL,
    DELAY_COMBINE,
    ENERGY,
    SHOTS,
    TABLES,
    Line,
    lines_of,
)
from glocal.reproduce.report_folder import Report, write_report
from glocal.reproduce.report_parts import report_part
from glocal.reproduce.runs import Run, Settings, about_run, folder_of, program
from glocal.reproduce.scales import Scale
from glocal_runtime.errors import RecipeError


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
    how: Settings,
    command: str,
    *,
    engine: Callable[[Sequence[Step], Settings], None] = work_off,
) -> Path:
    """Make what is missing, measure it, write the report; returns the page.  ``command`` makes it again.

    ``engine`` works off the steps; what they leave is read here.
    """
    tests = tests_of(names, scale, datasets)
    engine(in_order(tests), how)
    folders = {run: folder_of(run, how.runs) for run in runs_of(names, scale, datasets)}
    found = {(each.dataset, each.shot): measure(each.dataset, each.shot, each.lines, folders, how) for each in tests}
    manifests = {dataset: next(m.data.manifest for (d, _), m in found.items() if d == dataset) for dataset in datasets}
    conditions = {
        "Scale": scale.name,
        "Test": f"{how.tasks} tasks per shot, seed {SEED}",
        "Data": ", ".join(f"{name} {digest[:12]}" for name, digest in manifests.items()),
        "Runs": str(len(folders)),
        "glocal": program(),
    }
    numbers = {
        "scale": scale.name,
        "asked": list(names),
        "seed": SEED,
        "tasks": how.tasks,
        "data": manifests,
        "runs": {folder.name: about_run(folder) for folder in folders.values()},
    }
    parts = [report_part(name, scale, dataset, found, how) for dataset in datasets for name in names]
    title = f"Glocal energy-based learning, reproduced at {scale.name} scale"
    opening = findings(scale, names, datasets, found)
    report = Report(title, opening, conditions, parts, command, notes=[NOTES[scale.name]], numbers=numbers)
    return write_report(report, how.out)


NOTES = {
    "embedded": "At this scale heads learn for a few hundred tasks on a tiny backbone, printed characters teach and "
    "handwritten digits test: it shows that everything runs, not what the paper's method is worth.",
    "cpu": "At this scale the backbones are a third as wide as the paper's and frozen; heads learn on the tenth of the "
    "base pictures that pre-training did not see. Compare rows with each other, not with the published column.",
    "paper": "The published training at full width. Where a number may stand beside the paper's, the tables say "
    "nothing against it; reconstructions of methods that were never released are marked.",
}


Found = Mapping[tuple[str, int], Measurement]  # by data set and shot


@dataclass(frozen=True)
class Question:
    subject: str
    table: str
    row: str
    against: str
    how: str  # what the difference tells
    paper_against: str  # row whose published difference answers the same question


QUESTIONS = (
    Question("The energy loss", "ablation", ENERGY, CONTROL, "the same model and score without the loss", BASELINE),
    Question("The pixel branch", "ablation", AHEAD, ENERGY, "the class branch with the energy loss alone", ENERGY),
    Question("Combining ahead", "combine", AHEAD_COMBINE, DELAY_COMBINE, "combining with delay", DELAY_COMBINE),
)


def findings(scale: Scale, asked: Sequence[str], datasets: Sequence[str], found: Found) -> list[str]:
    """What a report opens with: a sentence per question, decided by the numbers alone.

    A difference counts as settled when its paired 95 % interval leaves out 0.
    """
    return [
        _answer(question, scale, datasets, found)
        if question.table in asked
        else f"{question.subject}: not asked for here; it takes `{question.table}`."
        for question in QUESTIONS
    ]


def _answer(question: Question, scale: Scale, datasets: Sequence[str], found: Found) -> str:
    ours: list[PairedDifference] = []
    said = []
    for dataset in datasets:
        parts = []
        for shot in SHOTS:
            lines = _lines(question.table, scale, dataset, shot)
            gap = found[dataset, shot].difference(lines[question.row], lines[question.against])
            ours.append(gap)
            parts.append(f"{_points(gap.mean)} [{_points(gap.low)}, {_points(gap.high)}] at {shot}-shot")
        said.append(f"{' and '.join(parts)} on {dataset}{_paper(question, scale, dataset)}")
    changes = f"against {question.how}, points of AUROC change by"
    return f"{question.subject} {_verdict(ours)}: {changes} {'; '.join(said)}."


def _verdict(gaps: Sequence[PairedDifference]) -> str:
    better, worse = sum(gap.low > 0 for gap in gaps), sum(gap.high < 0 for gap in gaps)
    if better == len(gaps):
        return "helps"
    if worse == len(gaps):
        return "hurts"
    if not better and not worse:
        return "makes no settled difference"
    if better and worse:
        return "helps in some settings and hurts in others"
    return "helps, but not in every setting" if better else "hurts, but not in every setting"


def _paper(question: Question, scale: Scale, dataset: str) -> str:
    """The same step in the paper's table, which has no control: there the loss and the score change together."""
    beside, steps = scale.beside[dataset], []
    for shot in SHOTS:
        lines = _lines(question.table, scale, dataset, shot)
        plan = TABLES[question.table]
        row, base = (
            published_row(plan, lines[label], beside, shot) for label in (question.row, question.paper_against)
        )
        if row is None or base is None:
            return ""
        steps.append(_points(row.values["auroc"].mean - base.values["auroc"].mean))
    other = question.paper_against
    against = f" against its {other.lower()}" if other != question.against else ""
    return f" (the paper{against} on {beside}: {' and '.join(steps)})"


def _lines(table: str, scale: Scale, dataset: str, shot: int) -> dict[str, Line]:
    return {line.label: line for line in TABLES[table].lines(scale, dataset, shot)}


def _points(value: float) -> str:
    return f"{100 * value:+.2f}".replace("-", "−")

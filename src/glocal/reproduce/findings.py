"""What a report opens with: three questions, each answered by one sentence that the numbers alone decide.

A difference counts as settled when its paired 95 % interval leaves out 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glocal.metrics import PairedDifference
from glocal.reproduce.measurement import Measurement, published_row
from glocal.reproduce.plans import AHEAD, AHEAD_COMBINE, BASELINE, CONTROL, DELAY_COMBINE, ENERGY, SHOTS, TABLES, Line
from glocal.reproduce.scale import Scale

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
    """Three sentences."""
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

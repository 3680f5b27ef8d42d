"""From what was asked for to the report: the runs it takes, the rows they give, the parts they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glocal.common.errors import DataError, RecipeError
from glocal.research.engine.distributed import world
from glocal.research.metrics import PairedDifference, Spread, settled
from glocal.research.report.table import points
from glocal.research.reproduce.graph import Step, in_order, tests_of, work_off
from glocal.research.reproduce.machine import differences, machine, text
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
from glocal.research.reproduce.repeated import read_report, repeated
from glocal.research.reproduce.report_folder import HTML, NUMBERS, Report, write_report
from glocal.research.reproduce.report_parts import report_part
from glocal.research.reproduce.runs import Run, Settings, about_run, folder_of, program
from glocal.research.reproduce.scale import Scale


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
    beside: Path | None = None,
) -> Path:
    """Make what is missing, measure it, write the report; returns the page.  ``command`` makes it again.

    ``engine`` works off the steps; what they leave is read here.  ``beside``: an earlier report to compare this one
    with; without it the one that is replaced.
    """
    earlier = _replaced(how.out) if beside is None else read_report(beside)
    tests = tests_of(names, scale, datasets, how.seeds)
    trained = [run.seeded(seed) for seed in range(how.seeds) for run in runs_of(names, scale, datasets)]
    how = replace(how, threads=_threads(trained))
    engine(in_order(tests), how)
    folders = {run: folder_of(run, how.runs) for run in trained}
    found = {(each.dataset, each.shot): measure(each.dataset, each.shot, each.lines, folders, how) for each in tests}
    made = [folder_of(step, how.runs) for run in trained for step in run.chain()]
    runs = {folder.name: about_run(folder) for folder in made}
    here = machine(how.device, how.threads)
    manifests = {dataset: next(m.data.manifest for (d, _), m in found.items() if d == dataset) for dataset in datasets}
    conditions = {
        "Scale": f"{scale.name}, settings of the authors' program" if scale.settings == "authors" else scale.name,
        "Test": f"{how.tasks} tasks per shot, seed {SEED}",
        "Data": ", ".join(f"{name} {digest[:12]}" for name, digest in manifests.items()),
        "Runs": str(len(folders)) + (f", from {how.seeds} seeds each" if how.seeds > 1 else ""),
        "Machine": text(here),
        "glocal": program(),
    }
    numbers = {
        "scale": scale.name,
        "settings": scale.settings,
        "asked": list(names),
        "seed": SEED,
        "tasks": how.tasks,
        "training_seeds": how.seeds,
        "machine": here,
        "data": manifests,
        "runs": runs,
    }
    parts = [report_part(name, scale, dataset, found, how) for dataset in datasets for name in names]
    this = {**numbers, "pieces": [part.numbers for part in parts]}
    again = repeated(earlier, this, beside.resolve().name if beside else "") if earlier else []
    notes = [NOTES[scale.name], *_made_elsewhere(runs, here), *again]
    title = f"Glocal energy-based learning, reproduced at {scale.name} scale"
    opening = findings(scale, names, datasets, found)
    report = Report(title, opening, conditions, parts, command, notes=notes, numbers=numbers)
    return write_report(report, how.out) if world().first else how.out / HTML


def _replaced(out: Path) -> dict[str, Any] | None:
    """The report that is there; one that cannot be read is replaced all the same."""
    try:
        return read_report(out) if (out / NUMBERS).is_file() else None
    except DataError:
        return None


def _made_elsewhere(runs: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """A sentence about runs that were made under other conditions than this report: their last digits may differ."""
    found = []
    for name, about in runs.items():
        threads = about["recipe"].get("speed", {}).get("threads")  # however many the machine has
        now = here if threads is None else {**here, "threads": threads}
        if others := differences(about.get("machine", {}), now):
            found.append(f"{name} ({', '.join(others)})")
    return [f"Trained under other conditions, which can change last digits: {'; '.join(found)}."] if found else []


def _threads(runs: Iterable[Run]) -> int | None:
    """Those that all recipes name, however many the machine has."""
    named = {run.resolved().speed.threads for run in runs}
    return named.pop() if len(named) == 1 else None


NOTES = {
    "embedded": "At this scale heads learn for a few hundred tasks on a tiny backbone, printed characters teach and "
    "handwritten digits test: it shows that everything runs, not what the paper's method is worth.",
    "cpu": "At this scale the backbones are a third as wide as the paper's and frozen; heads learn on the tenth of the "
    "base pictures that pre-training did not see. Compare rows with each other, not with the published column. Another "
    "training seed is one of the head: all start from the backbone that ships.",
    "wide": "At this scale the backbone is five eighths as wide as the paper's and frozen; heads learn on the tenth of "
    "the base pictures that pre-training did not see. Compare rows with each other, not with the published column. "
    "Another training seed is one of the head: all start from this backbone.",
    "full": "At this scale the backbone has the paper's width, but was taught for fewer epochs and is frozen; heads "
    "learn on the tenth of the base pictures that it did not see. Another training seed is one of the head: all start "
    "from this backbone.",
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
    paper_row: str  # rows whose published difference answers the same question
    paper_against: str


QUESTIONS = (
    Question(
        "The energy loss",
        "ablation",
        ENERGY,
        CONTROL,
        "the same model and score without the loss",
        ENERGY_MAPS,
        BASELINE,
    ),
    Question(
        "The pixel branch", "ablation", AHEAD, ENERGY, "the class branch with the energy loss alone", AHEAD, ENERGY_MAPS
    ),
    Question("All of GEL", "ablation", AHEAD, CONTROL, "the same model without the loss and pixels", AHEAD, BASELINE),
    Question(
        "Combining ahead",
        "combine",
        AHEAD_COMBINE,
        DELAY_COMBINE,
        "combining with delay",
        AHEAD_COMBINE,
        DELAY_COMBINE,
    ),
)


def findings(scale: Scale, asked: Sequence[str], datasets: Sequence[str], found: Found) -> list[str]:
    """What a report opens with: a sentence per question, decided by the numbers alone.

    A difference counts as settled when its paired 95 % interval over tasks leaves out 0, and its interval over training
    seeds does so too.  With one seed nothing is settled: the sentence says that it is over tasks alone.
    """
    return [
        _answer(question, scale, datasets, found)
        if question.table in asked
        else f"{question.subject}: not asked for here; it takes `{question.table}`."
        for question in QUESTIONS
    ]


def _answer(question: Question, scale: Scale, datasets: Sequence[str], found: Found) -> str:
    ours: list[PairedDifference | Spread] = []
    said, seeds = [], max(each.seeds for each in found.values())
    for dataset in datasets:
        parts = []
        for shot in SHOTS:
            lines = _lines(question.table, scale, dataset, shot)
            gap = found[dataset, shot].difference(lines[question.row], lines[question.against])
            over = found[dataset, shot].over_seeds(lines[question.row], "auroc", lines[question.against])
            ours.append(_both(gap, over))
            part = f"{points(gap.mean)} [{points(gap.low)}, {points(gap.high)}]"
            part += f", over seeds [{points(over.low)}, {points(over.high)}]," if over else ""
            parts.append(f"{part} at {shot}-shot")
        said.append(f"{' and '.join(parts)} on {dataset}{_paper(question, scale, dataset)}")
    changes = f"against {question.how}, points of AUROC change by"
    alone = " (over tasks alone: one training seed settles nothing)" if seeds == 1 else ""
    return f"{question.subject} {_verdict(ours)}{alone}: {changes} {'; '.join(said)}."


def _both(gap: PairedDifference, over: Spread | None) -> PairedDifference | Spread:
    """The one of the two intervals that says less."""
    if over is None or settled(gap, over):
        return gap
    return replace(over, low=min(gap.low, over.low, 0.0), high=max(gap.high, over.high, 0.0))


def _verdict(gaps: Sequence[PairedDifference | Spread]) -> str:
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
            published_row(plan, lines[label], beside, shot) for label in (question.paper_row, question.paper_against)
        )
        if row is None or base is None:
            return ""
        steps.append(points(row.values["auroc"].mean - base.values["auroc"].mean))
    other = question.paper_against
    against = f" against its {other.lower()}" if other != question.against else ""
    return f" (the paper{against} on {beside}: {' and '.join(steps)})"


def _lines(table: str, scale: Scale, dataset: str, shot: int) -> dict[str, Line]:
    return {line.label: line for line in TABLES[table].lines(scale, dataset, shot)}

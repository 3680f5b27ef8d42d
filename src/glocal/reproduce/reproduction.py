"""From what was asked for to the report: the runs it takes, the rows they give, the parts they make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glocal.reproduce.findings import findings
from glocal.reproduce.measurement import SEED, Measurement, measure
from glocal.reproduce.plans import ALL, Line, lines_of
from glocal.reproduce.report_folder import Report, write_report
from glocal.reproduce.report_parts import report_part
from glocal.reproduce.runs import Run, Settings, about_run, ensure_runs, program
from glocal.reproduce.scale import Scale
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


def reproduce(names: Sequence[str], scale: Scale, datasets: Sequence[str], how: Settings, command: str) -> Path:
    """Make what is missing, measure it, write the report; returns the page.  ``command`` makes it again."""
    folders = ensure_runs(runs_of(names, scale, datasets), how)
    found: dict[tuple[str, int], Measurement] = {}
    for dataset in datasets:
        needed: dict[int, list[Line]] = {}
        for name in names:
            for shot, lines in lines_of(name, scale, dataset).items():
                needed.setdefault(shot, []).extend(lines)
        for shot, lines in sorted(needed.items()):
            found[dataset, shot] = measure(dataset, shot, lines, folders, how)
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

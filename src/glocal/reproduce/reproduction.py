"""From what was asked for to the report: the runs it takes, the rows they give, the pieces they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glocal import __version__
from glocal.reproduce import figures, pieces
from glocal.reproduce.cpu_scale import CPU
from glocal.reproduce.embedded_scale import EMBEDDED
from glocal.reproduce.findings import findings
from glocal.reproduce.folder import Piece, Report, write_report
from glocal.reproduce.measure import SEED, Bench, Measurement, measure
from glocal.reproduce.paper_scale import PAPER
from glocal.reproduce.runs import Run, Workshop, about_run, commit, ensure_runs, program
from glocal.reproduce.scales import Scale
from glocal.reproduce.tables import SHOTS, TABLES, Line
from glocal_runtime.errors import RecipeError

SCALES: dict[str, Scale] = {scale.name: scale for scale in (PAPER, CPU, EMBEDDED)}
DENSITY, PIXELS = "figure-density", "figure-pixels"
ALL = (*TABLES, *figures.SWEEPS, DENSITY, PIXELS)


def asked_for(words: Sequence[str], scale: Scale) -> list[str]:
    """Names of tables and figures, in the order of the paper; ``all`` is what the scale has."""
    unknown = [word for word in words if word not in (*ALL, "all")]
    if unknown:
        raise RecipeError(f"there is {', '.join(ALL)} and all to reproduce, got {unknown[0]!r}")
    if "resnet-18" in words and not scale.has_resnet18:
        scale.on_resnet18("gel", scale.datasets[0], 1)  # says why not
    return [name for name in ALL if name in words or ("all" in words and (name != "resnet-18" or scale.has_resnet18))]


def lines_of(name: str, scale: Scale, dataset: str) -> dict[int, list[Line]]:
    """The rows that a table or figure needs, by shot."""
    if name in TABLES:
        return {shot: TABLES[name].lines(scale, dataset, shot) for shot in SHOTS}
    if name in figures.SWEEPS:
        return {figures.SHOT: [line for _, line in figures.SWEEPS[name].lines(scale, dataset)]}
    if name == DENSITY:
        return {figures.SHOT: pieces.density_lines(scale, dataset)}
    return {figures.SHOT: [figures.pixels(scale, dataset)]}


def runs_of(names: Sequence[str], scale: Scale, datasets: Sequence[str]) -> list[Run]:
    """Every run they take, those it starts from not counted, each once."""
    lines = (
        line
        for dataset in datasets
        for name in names
        for needed in lines_of(name, scale, dataset).values()
        for line in needed
    )
    return list(dict.fromkeys(line.run for line in lines))


def reproduce(
    names: Sequence[str], scale: Scale, datasets: Sequence[str], out: Path, shop: Workshop, bench: Bench, command: str
) -> Path:
    """Make what is missing, measure it, write the report; returns the page."""
    folders = ensure_runs(runs_of(names, scale, datasets), shop)
    found: dict[tuple[str, int], Measurement] = {}
    for dataset in datasets:
        needed: dict[int, list[Line]] = {}
        for name in names:
            for shot, lines in lines_of(name, scale, dataset).items():
                needed.setdefault(shot, []).extend(lines)
        for shot, lines in sorted(needed.items()):
            found[dataset, shot] = measure(dataset, shot, lines, folders, bench)
    made = [_piece(name, scale, dataset, found, bench) for dataset in datasets for name in names]
    return write_report(_report(names, scale, datasets, found, folders, made, bench, command), out)


def _piece(name: str, scale: Scale, dataset: str, found: Mapping[tuple[str, int], Measurement], bench: Bench) -> Piece:
    if name in TABLES:
        return pieces.table(TABLES[name], scale, dataset, {shot: found[dataset, shot] for shot in SHOTS})
    here = found[dataset, figures.SHOT]
    if name in figures.SWEEPS:
        return pieces.sweep(figures.SWEEPS[name], scale, dataset, here)
    if name == DENSITY:
        return pieces.density(scale, dataset, here, bench)
    return pieces.pixels(scale, dataset, here, bench)


def _report(
    names: Sequence[str],
    scale: Scale,
    datasets: Sequence[str],
    found: Mapping[tuple[str, int], Measurement],
    folders: Mapping[Run, Path],
    made: Sequence[Piece],
    bench: Bench,
    command: str,
) -> Report:
    manifests = {dataset: next(m.data.manifest for (d, _), m in found.items() if d == dataset) for dataset in datasets}
    conditions = {
        "Scale": scale.name,
        "Test": f"{bench.tasks} tasks per shot, seed {SEED}",
        "Data": ", ".join(f"{name} {digest[:12]}" for name, digest in manifests.items()),
        "Runs": str(len(folders)),
        "glocal": program(),
    }
    numbers: dict[str, Any] = {
        "scale": scale.name,
        "asked": list(names),
        "command": command,
        "version": __version__,
        "commit": commit(),
        "seed": SEED,
        "tasks": bench.tasks,
        "data": manifests,
        "runs": {folder.name: about_run(folder) for folder in folders.values()},
    }
    opening = findings(scale, names, datasets, found)
    title = f"Glocal energy-based learning, reproduced at {scale.name} scale"
    return Report(title, opening, conditions, made, command, notes=[NOTES[scale.name]], numbers=numbers)


NOTES = {
    "embedded": "At this scale heads learn for a few hundred tasks on a tiny backbone, printed characters teach and "
    "handwritten digits test: it shows that everything runs, not what the paper's method is worth.",
    "cpu": "At this scale the backbones are a third as wide as the paper's and frozen; heads learn on the tenth of the "
    "base pictures that pre-training did not see. Compare rows with each other, not with the published column.",
    "paper": "The published training at full width. Where a number may stand beside the paper's, the tables say "
    "nothing against it; reconstructions of methods that were never released are marked.",
}

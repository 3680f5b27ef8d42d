"""The paper's tables and figures as data: which rows, of which runs, by which score, beside which number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from glocal.research.reproduce.runs import Run
from glocal.research.reproduce.scales import Scale

SHOTS = (1, 5)
FIGURE_SHOT = 1  # all figures of the paper are 5-way 1-shot
DENSITY, PIXELS = "figure-density", "figure-pixels"


@dataclass(frozen=True)
class Line:
    """A row: a run under a label, read by one open score."""

    label: str
    run: Run
    score: str | None = None  # None: the one it was trained with
    published: str = ""  # its method in published.json; empty when the paper has no such row
    note: str = ""
    backbone: str = ""  # of the published row, where it is not that of the table


@dataclass(frozen=True)
class TablePlan:
    name: str
    title: str
    reference: str  # label of the row that differences are taken against
    lines: Callable[[Scale, str, int], list[Line]]  # scale, data set, shot
    metrics: tuple[str, ...] = ("acc", "auroc")
    backbone: str = "resnet12"  # of the published rows


BASELINE, CONTROL, ENERGY = "Baseline", "Control: no energy loss", "+ Energy loss"
ENERGY_MAPS = "+ Energy loss on maps"
WITHOUT_FEAT = "+ Combine, no FEAT stage"
AS_PUBLISHED = "+ Combine, as published"
PIXEL, AHEAD = "+ Pixel-wise", "+ Combine"
DELAY_COMBINE, AHEAD_COMBINE = "Delay combine", "Ahead combine"


def _gel(run: Run, published: str = "", score: str | None = None) -> Line:
    """Our form for frozen networks goes by its own name."""
    form = run.resolved(start="?").method.name
    return Line("GEL" if form == "gel" else form, run, score, published)


def _table_1(scale: Scale, dataset: str, shot: int) -> list[Line]:
    def peer(label: str, method: str, score: str | None = None) -> Line:
        run = scale.peer(method, dataset, shot)
        means = run.resolved(start="?").method.settings.get("rows") == "means"
        return Line(label, run, score, method, "remembers class means, not classifier rows" if means else "")

    peeler, letter = scale.full_peeler(dataset, shot), scale.gel_as_published(dataset, shot) is not None
    form = "as published, after FEAT; GEL is ours in form" if letter else ""
    return [
        peer("ProtoNet", "protonet", "entropy"),
        peer("FEAT", "feat", "entropy"),
        *([] if peeler is None else [Line("PEELER", peeler, None, "peeler", "on ResNet-18", "resnet18")]),
        peer("PEELER*", "peeler"),
        peer("SnaTCHer-F", "snatcher-f"),
        peer("SnaTCHer-T", "snatcher-t"),
        peer("SnaTCHer-L", "snatcher-l"),
        peer("ATT", "att"),
        peer("ATT-G", "att-g"),
        peer("RFDNet*", "rfdnet"),
        _gel(scale.gel(dataset, shot), "gel"),
        Line("GEL without pixels", scale.gel(dataset, shot, "energy-maps"), published="gel/energy-maps", note=form),
    ]


def _ablation(scale: Scale, dataset: str, shot: int) -> list[Line]:
    directly, published = scale.gel_without_feat(dataset, shot), scale.gel_as_published(dataset, shot)
    return [
        Line(BASELINE, scale.baseline(dataset, shot), "snatcher", "gel/baseline"),
        Line(
            CONTROL,
            scale.gel(dataset, shot, "baseline", "method.open_score=E_c"),  # also chosen by that score
            note="ours: trained like + Combine without its loss, and read by E_c",
        ),
        Line(ENERGY, scale.gel(dataset, shot, "energy"), note="E_c, as the text reads"),
        Line(
            ENERGY_MAPS,
            scale.gel(dataset, shot, "energy-maps"),
            published="gel/energy-maps",
            note="E_m, as the authors ran it",
        ),
        Line(PIXEL, scale.gel(dataset, shot, "pixel"), published="gel/pixel", note="E_f alone, our reading"),
        Line(AHEAD, scale.gel(dataset, shot), published="gel/ahead", note="E = E_c + E_f"),
        *([] if directly is None else [Line(WITHOUT_FEAT, directly, note="ours: from pre-training straight to GEL")]),
        *(
            []
            if published is None
            else [Line(AS_PUBLISHED, published, note="after FEAT, as the row on maps; the others are ours in form")]
        ),
    ]


def _combine(scale: Scale, dataset: str, shot: int) -> list[Line]:
    return [
        Line(DELAY_COMBINE, scale.gel(dataset, shot, "pixel"), "delay", "gel/delay", "the run of + Pixel-wise"),
        Line(AHEAD_COMBINE, scale.gel(dataset, shot), published="gel/ahead"),
    ]


def _scores(scale: Scale, dataset: str, shot: int) -> list[Line]:
    """The three numbers that the authors' program prints of each run: an energy, the distance, and their sum."""
    rows = (
        ("energy-maps", ENERGY_MAPS, ("E_m", "distance", "E_m+distance"), {"E_m": "gel/energy-maps"}),
        ("pixel", PIXEL, ("E_f", "distance", "delay"), {"E_f": "gel/pixel", "delay": "gel/delay"}),
        ("ahead", AHEAD, ("E", "distance", "E+distance"), {"E": "gel/ahead"}),
    )
    return [
        Line(f"{label}: {score}", scale.gel(dataset, shot, variant), score, published.get(score, ""))
        for variant, label, scores, published in rows
        for score in scores
    ]


def _coefficients(scale: Scale, dataset: str, shot: int) -> list[Line]:
    learned = ("learnable", "task-adaptive")
    return [
        Line("Fixed value", scale.gel(dataset, shot), published="gel/fixed"),
        *(
            Line(
                kind.capitalize(),
                scale.gel(dataset, shot, "ahead", f"method.coefficients={kind}", *scale.learned_coefficients),
                published=f"gel/{kind}",
                note="gradients clipped" if scale.learned_coefficients else "",
            )
            for kind in learned
        ),
    ]


def _resnet_18(scale: Scale, dataset: str, shot: int) -> list[Line]:
    return [
        Line("RFDNet", scale.on_resnet18("rfdnet", dataset, shot), published="rfdnet"),
        _gel(scale.on_resnet18("gel", dataset, shot), "gel"),
    ]


TABLES = {
    plan.name: plan
    for plan in (
        TablePlan("table-1", "Methods", "SnaTCHer-F", _table_1),
        TablePlan("ablation", "What each part adds", BASELINE, _ablation, ("acc", "auroc", "f1", "fpr95", "aupr")),
        TablePlan("combine", "Energies combined after or before", DELAY_COMBINE, _combine),
        TablePlan("scores", "Three scores of each run", f"{AHEAD}: E", _scores),
        TablePlan("coefficients", "Coefficients of the two energies", "Fixed value", _coefficients),
        TablePlan("resnet-18", "On ResNet-18", "RFDNet", _resnet_18, backbone="resnet18"),
    )
}


@dataclass(frozen=True)
class Sweep:
    """AUROC over one setting of GEL."""

    title: str
    axis: str
    points: Callable[[Scale, str, int], list[tuple[float, Run]]]
    paper: str

    def lines(self, scale: Scale, dataset: str) -> list[tuple[float, Line]]:
        return [(x, Line(f"{x:g}", run)) for x, run in self.points(scale, dataset, FIGURE_SHOT)]

    def own(self, scale: Scale, dataset: str) -> float:
        """The value that the recipe has."""
        gel = scale.gel(dataset, FIGURE_SHOT)
        return next(x for x, line in self.lines(scale, dataset) if line.run == gel)


SWEEPS = {
    "figure-topk": Sweep(
        "Most similar class pixels that count",
        "k: class pixels averaged for each query pixel",
        lambda scale, dataset, shot: scale.top_ks(dataset, shot),
        "The paper prints no values (miniImageNet); its text says that AUROC moves by 0.08 only.",
    ),
    "figure-margin": Sweep(
        "Distance of the two margins",
        "margin distance M_u − M_k (energy)",
        lambda scale, dataset, shot: scale.margin_distances(dataset, shot),
        "The paper prints no values (miniImageNet); its text says that a smaller distance is often better.",
    ),
}


def density_panels(scale: Scale, dataset: str) -> list[tuple[Line, float]]:
    """Of the density figure: a row, and the overlap that the paper prints (miniImageNet 1-shot)."""
    return [
        (Line("SnaTCHer-F", scale.peer("snatcher-f", dataset, FIGURE_SHOT), "snatcher"), 0.57),
        (Line("ATT-G", scale.peer("att-g", dataset, FIGURE_SHOT)), 0.53),
        (Line("RFDNet", scale.peer("rfdnet", dataset, FIGURE_SHOT)), 0.55),
        (_gel(scale.gel(dataset, FIGURE_SHOT)), 0.47),
    ]


def pixel_line(scale: Scale, dataset: str) -> Line:
    return _gel(scale.gel(dataset, FIGURE_SHOT), score="E")


ALL = (*TABLES, *SWEEPS, DENSITY, PIXELS)


def lines_of(name: str, scale: Scale, dataset: str) -> dict[int, list[Line]]:
    """The rows that a table or figure needs, by shot."""
    if name in TABLES:
        return {shot: TABLES[name].lines(scale, dataset, shot) for shot in SHOTS}
    if name in SWEEPS:
        return {FIGURE_SHOT: [line for _, line in SWEEPS[name].lines(scale, dataset)]}
    if name == PIXELS:
        return {FIGURE_SHOT: [pixel_line(scale, dataset)]}
    # Each method by its own score, and all but GEL by entropy too, as the paper's text has it.
    *others, gel = (line for line, _ in density_panels(scale, dataset))
    return {FIGURE_SHOT: [*others, gel, *(replace(line, score="entropy") for line in others)]}

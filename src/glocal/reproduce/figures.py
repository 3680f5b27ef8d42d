"""The paper's figures as data: which runs they show, and what the paper says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glocal.reproduce.runs import Run
from glocal.reproduce.scales import Scale
from glocal.reproduce.tables import Line

SHOT = 1  # all figures of the paper are 5-way 1-shot


@dataclass(frozen=True)
class Sweep:
    """AUROC over one setting of GEL."""

    name: str
    title: str
    axis: str
    points: Callable[[Scale, str, int], list[tuple[float, Run]]]
    own: Callable[[Scale, str, int], float]  # the value that the recipe has
    paper: str

    def lines(self, scale: Scale, dataset: str) -> list[tuple[float, Line]]:
        return [(x, Line(f"{x:g}", run)) for x, run in self.points(scale, dataset, SHOT)]


def _own_margin(scale: Scale, dataset: str, shot: int) -> float:
    own = scale.gel(dataset, shot)
    return next(x for x, run in scale.margin_distances(dataset, shot) if run == own)


SWEEPS = {
    sweep.name: sweep
    for sweep in (
        Sweep(
            "figure-topk",
            "Most similar class pixels that count",
            "k: class pixels averaged for each query pixel",
            lambda scale, dataset, shot: scale.top_ks(dataset, shot),
            lambda scale, dataset, shot: float(scale.own_top_k(dataset, shot)),
            "The paper prints no values (miniImageNet); its text says that AUROC moves by 0.08 only.",
        ),
        Sweep(
            "figure-margin",
            "Distance of the two margins",
            "margin distance M_u − M_k (energy)",
            lambda scale, dataset, shot: scale.margin_distances(dataset, shot),
            _own_margin,
            "The paper prints no values (miniImageNet); its text says that a smaller distance is often better.",
        ),
    )
}


@dataclass(frozen=True)
class Overlap:
    """One panel of the density figure."""

    line: Line
    iou: float  # printed in the paper, miniImageNet 1-shot


def overlaps(scale: Scale, dataset: str) -> list[Overlap]:
    return [
        Overlap(Line("SnaTCHer-F", scale.peer("snatcher-f", dataset, SHOT), "snatcher"), 0.57),
        Overlap(Line("ATT-G", scale.peer("att-g", dataset, SHOT)), 0.53),
        Overlap(Line("RFDNet", scale.peer("rfdnet", dataset, SHOT)), 0.55),
        Overlap(Line("GEL", scale.gel(dataset, SHOT)), 0.47),
    ]


def pixels(scale: Scale, dataset: str) -> Line:
    return Line("GEL", scale.gel(dataset, SHOT), "E")

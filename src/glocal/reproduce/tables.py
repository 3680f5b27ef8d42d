"""The paper's tables as data: which rows, from which runs, by which score, beside which published number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glocal.reproduce.runs import Run
from glocal.reproduce.scales import Scale

SHOTS = (1, 5)


@dataclass(frozen=True)
class Line:
    """A row: a run under a label, read by one open score."""

    label: str
    run: Run
    score: str | None = None  # None: the one it was trained with
    published: str = ""  # its method in published.json; empty when the paper has no such row
    note: str = ""


@dataclass(frozen=True)
class TablePlan:
    name: str
    title: str
    reference: str  # label of the row that differences are taken against
    lines: Callable[[Scale, str, int], list[Line]]  # scale, data set, shot
    metrics: tuple[str, ...] = ("acc", "auroc")
    backbone: str = "resnet12"  # of the published rows


BASELINE, CONTROL, ENERGY, PIXEL, AHEAD = (
    "Baseline",
    "Control: no energy loss",
    "+ Energy loss",
    "+ Pixel-wise",
    "+ Combine",
)
DELAY_COMBINE, AHEAD_COMBINE = "Delay combine", "Ahead combine"


def _table_1(scale: Scale, dataset: str, shot: int) -> list[Line]:
    def peer(label: str, method: str, score: str | None = None) -> Line:
        run = scale.peer(method, dataset, shot)
        means = run.resolved(start="?").method.settings.get("rows") == "means"
        return Line(label, run, score, method, "remembers class means, not classifier rows" if means else "")

    return [
        peer("ProtoNet", "protonet", "entropy"),
        peer("FEAT", "feat", "entropy"),
        peer("PEELER*", "peeler"),
        peer("SnaTCHer-F", "snatcher-f"),
        peer("SnaTCHer-T", "snatcher-t"),
        peer("SnaTCHer-L", "snatcher-l"),
        peer("ATT", "att"),
        peer("ATT-G", "att-g"),
        peer("RFDNet*", "rfdnet"),
        Line("GEL", scale.gel(dataset, shot), published="gel"),
        Line("GEL without pixels", scale.gel(dataset, shot, "energy"), published="gel/energy"),
    ]


def _ablation(scale: Scale, dataset: str, shot: int) -> list[Line]:
    return [
        Line(BASELINE, scale.baseline(dataset, shot), "snatcher", "gel/baseline"),
        Line(
            CONTROL,
            scale.gel(dataset, shot, "baseline", "method.open_score=E_c"),  # also chosen by that score
            note="ours: trained like the rows below without their loss, and read by E_c",
        ),
        Line(ENERGY, scale.gel(dataset, shot, "energy"), published="gel/energy"),
        Line(PIXEL, scale.gel(dataset, shot, "pixel"), published="gel/pixel", note="E_f alone, our reading"),
        Line(AHEAD, scale.gel(dataset, shot), published="gel/ahead", note="E = E_c + E_f: the full GEL"),
    ]


def _combine(scale: Scale, dataset: str, shot: int) -> list[Line]:
    return [
        Line(DELAY_COMBINE, scale.gel(dataset, shot, "pixel"), "delay", "gel/delay", "the run of + Pixel-wise"),
        Line(AHEAD_COMBINE, scale.gel(dataset, shot), published="gel/ahead"),
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
        Line("GEL", scale.on_resnet18("gel", dataset, shot), published="gel"),
    ]


TABLES = {
    plan.name: plan
    for plan in (
        TablePlan("table-1", "Methods", "SnaTCHer-F", _table_1),
        TablePlan("ablation", "What each part adds", BASELINE, _ablation, ("acc", "auroc", "f1", "fpr95", "aupr")),
        TablePlan("combine", "Energies combined after or before", DELAY_COMBINE, _combine),
        TablePlan("coefficients", "Coefficients of the two energies", "Fixed value", _coefficients),
        TablePlan("resnet-18", "On ResNet-18", "RFDNet", _resnet_18, backbone="resnet18"),
    )
}

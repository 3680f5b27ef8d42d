"""One record per method: what its code cannot say of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    authors: str
    title: str
    venue: str
    year: int
    arxiv: str = ""
    doi: str = ""


@dataclass(frozen=True)
class MethodRecord:
    title: str
    paper: Paper | None  # None: a method of ours
    published: tuple[str, ...] = ()  # its names in published.json
    learns: str = ""  # beside the backbone; empty: nothing
    reconstruction: str = ""  # why we had to guess, if we had to


PROTONET = Paper("Snell et al.", "Prototypical Networks for Few-shot Learning", "NIPS", 2017, "1703.05175")
FEAT = Paper(
    "Ye et al.", "Few-Shot Learning via Embedding Adaptation with Set-to-Set Functions", "CVPR", 2020, "1812.03664"
)
PEELER = Paper("Liu et al.", "Few-Shot Open-Set Recognition using Meta-Learning", "CVPR", 2020, "2005.13713")
SNATCHER = Paper(
    "Jeong et al.", "Few-shot Open-set Recognition by Transformation Consistency", "CVPR", 2021, "2103.01537"
)
ATT = Paper(
    "Huang et al.", "Task-Adaptive Negative Envision for Few-Shot Open-Set Recognition", "CVPR", 2022, "2012.13073"
)
RFDNET = Paper("Deng et al.", "Learning Relative Feature Displacement for Few-Shot Open-Set Recognition", "TMM", 2022)
GEL = Paper(
    "Wang et al.",
    "Glocal Energy-based Learning for Few-Shot Open-Set Recognition",
    "CVPR",
    2023,
    arxiv="2304.11855",
    doi="10.1109/CVPR52729.2023.00725",
)
OSLO = Paper("Boudiaf et al.", "Open-Set Likelihood Maximization for Few-Shot Learning", "CVPR", 2023, "2301.08390")
EOL = Paper(
    "Ochal et al.",
    "EOL: Transductive Few-Shot Open-Set Recognition by Enhancing Outlier Logits",
    "arXiv",
    2024,
    "2408.02052",
)

GEL_ROWS = ("baseline", "energy", "pixel", "delay", "ahead", "fixed", "learnable", "task-adaptive")
UNRELEASED = "the authors released SnaTCHer-F alone, and this follows their text"

RECORDS: dict[str, MethodRecord] = {
    "protonet": MethodRecord("ProtoNet", PROTONET, ("protonet",)),
    "feat": MethodRecord("FEAT", FEAT, ("feat",), learns="attention over the prototypes"),
    "peeler": MethodRecord(
        "PEELER",
        PEELER,
        ("peeler",),
        learns="a vector per base class, for the auxiliary loss; on request an adapter or the classes' precisions",
        reconstruction='variant "prototype", the default, is the ResNet-12 row of the tables; no program of it exists',
    ),
    "snatcher-f": MethodRecord(
        "SnaTCHer-F", SNATCHER, ("snatcher-f",), learns="FEAT's attention, and nothing for the open score"
    ),
    "snatcher-t": MethodRecord(
        "SnaTCHer-T",
        SNATCHER,
        ("snatcher-t",),
        learns="a gain and a shift per channel, and how far to trust the task's moments",
        reconstruction=UNRELEASED,
    ),
    "snatcher-l": MethodRecord(
        "SnaTCHer-L",
        SNATCHER,
        ("snatcher-l",),
        learns="a gain and a shift per channel",
        reconstruction=UNRELEASED,
    ),
    "att": MethodRecord("ATT", ATT, ("att",), learns="two attention layers over the task's class means, and a scale"),
    "att-g": MethodRecord("ATT-G", ATT, ("att-g",), learns="two attention layers over the base classes, and a scale"),
    "rfdnet": MethodRecord(
        "RFDNet",
        RFDNET,
        ("rfdnet",),
        learns="centres and keys of the base classes, two linear layers, two scales and a bias",
    ),
    "open-prototype": MethodRecord("Open prototype", None, learns="the open prototype, a factor and an offset"),
    "gel": MethodRecord(
        "GEL",
        GEL,
        ("gel", *(f"gel/{row}" for row in GEL_ROWS)),
        learns="attention over the prototypes, and the calibration of the maps",
    ),
    "oslo": MethodRecord("OSLO", OSLO),
    "eol": MethodRecord("EOL", EOL),
}

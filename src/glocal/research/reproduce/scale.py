"""What every scale has: which run stands for which row, and the sweeps around GEL's settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from glocal.common.errors import RecipeError
from glocal.research.reproduce.runs import Run

# Values of top-k that a sweep tries, by the pixels of a map.
SWEPT_TOP_K = {4: (1, 2, 3, 4), 9: (1, 2, 3, 5, 7, 9), 16: (1, 2, 3, 4, 6, 8, 12, 16), 25: (1, 2, 5, 10, 15, 20, 25)}
STAGES = ("pretrain", "train")
SWEPT_MARGINS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0)  # factors on the margin distance of the recipe


@dataclass(frozen=True)
class Scale(ABC):
    name: str
    tasks: int  # test tasks of every number
    beside: Mapping[str, str]  # data set -> the paper's data set whose numbers stand beside ours
    pixels: Mapping[str, int]  # of one feature map, by data set
    # Where coefficients learn: they multiply energies, and at the rate of a frozen head a step may throw the loss far.
    learned_coefficients: tuple[str, ...] = ()
    settings: str = "paper"  # of the recipes: "paper", of the text, or "authors", of their program, at paper scale
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # last overrides by stage

    @property
    def datasets(self) -> list[str]:
        return list(self.beside)

    @abstractmethod
    def gel(self, dataset: str, shot: int, variant: str = "ahead", *overrides: str) -> Run:
        """GEL; ``overrides`` on top of the variant."""

    @abstractmethod
    def baseline(self, dataset: str, shot: int) -> Run:
        """The paper's baseline: attention without an energy loss, scored as SnaTCHer-F."""

    @abstractmethod
    def peer(self, method: str, dataset: str, shot: int) -> Run:
        """A method of the comparison."""

    def on_resnet18(self, method: str, dataset: str, shot: int) -> Run:
        """RFDNet or GEL on ResNet-18."""
        raise RecipeError(
            f"resnet-18 is not part of the scale {self.name}: pre-training it takes a GPU; use --scale paper"
        )

    def gel_without_feat(self, dataset: str, shot: int) -> Run | None:
        """GEL straight from pre-training, where a scale has the FEAT stage to leave out."""
        return None

    def gel_as_published(self, dataset: str, shot: int, variant: str = "ahead") -> Run | None:
        """GEL to the letter, where a scale's own rows have another form."""
        return None

    def full_peeler(self, dataset: str, shot: int) -> Run | None:
        """PEELER as first published, on ResNet-18."""
        return None

    def set_as(self, settings: str, overrides: Iterable[str] = ()) -> Scale:
        """This scale with other settings: an override is ``path=value``, ``train:path=value`` for one stage alone."""
        if settings != self.settings and self.name != "paper":
            raise RecipeError(
                f"--settings {settings} is for --scale paper; the scale {self.name} has recipes of its own"
            )
        more = {stage: list(self.more.get(stage, ())) for stage in STAGES}
        for override in overrides:
            stage, colon, rest = override.partition(":")
            alone = bool(colon) and stage in STAGES
            for each in [stage] if alone else STAGES:
                more[each].append(rest if alone else override)
        return replace(self, settings=settings, more={stage: tuple(each) for stage, each in more.items()})

    @property
    def has_resnet18(self) -> bool:
        return type(self).on_resnet18 is not Scale.on_resnet18

    def check(self, dataset: str) -> str:
        if dataset not in self.beside:
            raise RecipeError(
                f"the scale {self.name} has the data sets {', '.join(self.beside)}, got {dataset!r}; see --scale"
            )
        return dataset

    def margin_distances(self, dataset: str, shot: int) -> list[tuple[float, Run]]:
        """Runs of GEL over M_u - M_k, centred where the recipe's margins are."""
        settings = self.gel(dataset, shot).resolved(start="?").method.settings
        low, high = settings.get("m_known", -1.0), settings.get("m_unknown", 1.0)
        middle, runs = (low + high) / 2, []
        for factor in SWEPT_MARGINS:
            half = factor * (high - low) / 2
            margins = (f"method.m_known={middle - half}", f"method.m_unknown={middle + half}")
            # At the recipe's own margins it is the run of the tables, not a second one.
            runs.append((2 * half, self.gel(dataset, shot, "ahead", *(margins if factor != 1 else ()))))
        return runs

    def top_ks(self, dataset: str, shot: int) -> list[tuple[float, Run]]:
        """Runs of GEL over k."""
        own: int = self.gel(dataset, shot).resolved(start="?").method.settings.get("top_k", 1)
        return [
            (float(k), self.gel(dataset, shot, "ahead", *((f"method.top_k={k}",) if k != own else ())))
            for k in SWEPT_TOP_K[self.pixels[dataset]]
        ]

    def _run(self, stage: str, recipe: str, *overrides: str, init: Run | str | None = None) -> Run:
        return Run(recipe, (*overrides, *self.more.get(stage, ())), init)


def scored_as(method: str, run: Run) -> Run:
    """FEAT and SnaTCHer-F are one model under two scores: what one has learned, the other takes over."""
    return Run(run.recipe, (*run.overrides, f"method.name={method}", "train.tasks=0"), run)

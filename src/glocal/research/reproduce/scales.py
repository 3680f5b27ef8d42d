"""What a scale means: on which data, from which backbone, by which recipes, on how many test tasks.

``embedded`` takes minutes and needs no download, ``cpu`` hours on real pictures with narrow backbones, ``paper`` is the
published training for a GPU.  A scale only says which runs are wanted; ``runs`` makes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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

    def peer(self, method: str, dataset: str, shot: int) -> Run:
        """A method of the comparison; here on frozen maps, where ProtoNet has nothing to learn."""
        if method in ("feat", "snatcher-f"):
            run = self.baseline(dataset, shot)
            return run if method == "snatcher-f" else scored_as("feat", run)
        run = self.on_frozen_maps(method, dataset, shot)
        return replace(run, overrides=(*run.overrides, "train.tasks=0")) if method == "protonet" else run

    def on_frozen_maps(self, method: str, dataset: str, shot: int) -> Run:
        raise NotImplementedError

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


def shots(shot: int) -> tuple[str, str]:
    """Overrides that train and validate with so many pictures of a class."""
    return f"train.shot={shot}", f"validation.shot={shot}"


def scored_as(method: str, run: Run) -> Run:
    """FEAT and SnaTCHer-F are one model under two scores: what one has learned, the other takes over."""
    return Run(run.recipe, (*run.overrides, f"method.name={method}", "train.tasks=0"), run)


# How the methods of the comparison are set and taught: as published, scaled to the width of the backbone.  Rates are
# those of their papers (ATT and RFDNet) or of FEAT's attention, on which the others stand.
SLOW = "optimizer.lr=0.01"
UNKNOWN = "train.unknown_way=5"  # FEAT's recipe has no unknown queries; these learn from them


class Peer(NamedTuple):
    settings: tuple[str, ...]  # of [method]; {t} is the temperature that fits the width
    frozen: tuple[str, ...]  # overrides on frozen maps
    tuned: tuple[str, ...] = ()  # overrides of FEAT's recipe, which fine-tunes the backbone
    only_frozen: tuple[str, ...] = ()  # more settings on frozen maps


PEERS = {
    "protonet": Peer(("temperature = {t}",), ()),
    # Without an adapter it has nothing to learn on frozen maps.
    "peeler": Peer(("temperature = {t}", "auxiliary_temperature = {t}"), (SLOW,), (UNKNOWN,), ("adapter = true",)),
    "snatcher-t": Peer(("temperature = {t}",), (SLOW,)),
    "snatcher-l": Peer(("temperature = {t}",), (SLOW,)),
    "att": Peer((), ("optimizer.lr=0.03",), ("optimizer.lr=0.03", UNKNOWN)),
    # The rows of a classifier teach a frozen ATT-G almost nothing; see its docstring.
    "att-g": Peer((), ("optimizer.lr=0.03",), ("optimizer.lr=0.03", UNKNOWN), ('rows = "means"',)),
    "rfdnet": Peer((), ("optimizer.lr=0.1", "optimizer.weight_decay=1e-4"), (UNKNOWN,)),
}


def head_of(method: str, *, temperature: float) -> tuple[str, ...]:
    """Overrides that put a method on frozen maps."""
    peer = PEERS[method]
    return (_method(method, (*peer.settings, *peer.only_frozen), temperature), *peer.frozen)


def _method(method: str, settings: tuple[str, ...], temperature: float) -> str:
    named = ", ".join((f'name = "{method}"', *settings)).format(t=temperature)
    return f"method={{{named}}}"


PUBLISHED_MARGINS = ("method.m_known=-1.0", "method.m_unknown=1.0")
# Where energies start differs by variant, and the margins with it (chosen on validation classes, docs/results).
FROZEN_MARGINS = {
    ("tiered-64", "energy"): ("method.m_known=5.0", "method.m_unknown=5.6"),
    ("cifar-fs", "energy"): ("method.m_known=-7.5", "method.m_unknown=-5.5"),
    # The published margins, and distances scaled so that energies start beside them, at about -1 as at full width.
    ("tiered-64", "energy-maps"): ("method.map_temperature=2560.0", *PUBLISHED_MARGINS),
    ("cifar-fs", "pixel"): ("method.m_known=-7.5", "method.m_unknown=-5.5", "method.energy_weight=1.0"),
}


@dataclass(frozen=True)
class CpuScale(Scale):
    """Heads on the frozen maps of the shipped narrow backbones; only what a row is about differs from their recipes."""

    temperature: float = 32.0  # of distances between vectors of 192 channels
    after_feat: tuple[str, ...] = ()  # where GEL starts after FEAT's training, as published: validation decides

    def gel(self, dataset: str, shot: int, variant: str = "ahead", *overrides: str) -> Run:
        if variant == "energy-maps" and (published := self.gel_as_published(dataset, shot, variant)):
            return replace(published, overrides=(*published.overrides, *overrides))  # its maps must not be centred
        own = FROZEN_MARGINS.get((dataset, variant), ())
        run = self._head(f"{dataset}-cpu-{shot}shot", dataset, f"method.variant={variant}", *own, *overrides)
        return replace(run, init=self.baseline(dataset, shot)) if dataset in self.after_feat else run

    def gel_without_feat(self, dataset: str, shot: int) -> Run | None:
        return replace(self.gel(dataset, shot), init=None) if dataset in self.after_feat else None

    def gel_as_published(self, dataset: str, shot: int, variant: str = "ahead") -> Run | None:
        if dataset != "cifar-fs":  # on tiered-64 validation prefers the published form, or one that is near it
            return None
        baseline = self.baseline(dataset, shot)
        feat = replace(baseline, overrides=(*baseline.overrides, "method.adapter=false"))
        form = ('method={name = "gel"}', f"method.variant={variant}", f"method.temperature={self.temperature}")
        return replace(self._head(f"{dataset}-cpu-{shot}shot", dataset, *form, "optimizer.lr=1e-2"), init=feat)

    def baseline(self, dataset: str, shot: int) -> Run:
        return self._head(f"{dataset}-cpu-feat-{shot}shot", dataset)

    def on_frozen_maps(self, method: str, dataset: str, shot: int) -> Run:
        settings = head_of(method, temperature=self.temperature)
        return self._head("frozen-head", dataset, f"data.dataset={dataset}", *shots(shot), *settings)

    def _head(self, recipe: str, dataset: str, *overrides: str) -> Run:
        return self._run("train", recipe, f"init={dataset}-{self.name}/backbone", *overrides)


CPU = CpuScale(
    "cpu",
    tasks=600,
    beside={"tiered-64": "tiered-imagenet", "cifar-fs": "cifar-fs"},
    pixels={"tiered-64": 16, "cifar-fs": 4},
    learned_coefficients=("optimizer.clip=5.0",),
    after_feat=("tiered-64",),
)


HOLDOUT = "data.holdout=0.35"  # 21 of 60 pictures: 5 shots and 15 queries need 20
PRETRAIN = (HOLDOUT, "data.part=pretrained", "validation.tasks=50", "validation.every=180")
TRAIN = (HOLDOUT, "data.part=held-out", "train.views=2", "validation.every=100", "validation.tasks=60")
TASKS = ("train.tasks=200",)
# As narrow as time allows: the stem of large pictures on 36 pixels gives maps of 2x2.
RESNET18 = 'backbone={name = "resnet18", image_size = 36, stem = "7x7"}'
EMBEDDED_TEMPERATURE = 16.0  # for 128 channels
EMBEDDED_MAP_TEMPERATURE = 2048.0  # energies of maps start at about -1
# Around the energies that known and unknown validation queries start with: of E_c or E_f alone, and of both together.
EMBEDDED_MARGINS = {"one": (-9.0, -7.0), "both": (-18.0, -14.0)}


class EmbeddedScale(Scale):
    """The demo's recipes, from nothing, on maps of 3x3.

    A third of each character's pictures is kept from pre-training for the heads, as on the real data sets.  Pictures
    enter at 48 pixels instead of their own 32: top-k and patches say little on maps of 2x2.
    """

    def gel(self, dataset: str, shot: int, variant: str = "ahead", *overrides: str) -> Run:
        return self._gel(self._backbone(), shot, variant, *overrides)

    def baseline(self, dataset: str, shot: int) -> Run:
        return self._head("demo-snatcher-f", self._backbone(), shot)

    def on_frozen_maps(self, method: str, dataset: str, shot: int) -> Run:
        return self._peer(method, self._backbone(), shot)

    def on_resnet18(self, method: str, dataset: str, shot: int) -> Run:
        encoder = self._run("pretrain", "demo-protonet", *PRETRAIN, "pretrain.epochs=2", RESNET18)
        return self._gel(encoder, shot) if method == "gel" else self._peer(method, encoder, shot)

    def _backbone(self) -> Run:
        return self._run("pretrain", "demo-protonet", *PRETRAIN, "pretrain.epochs=3", "backbone.image_size=48")

    def _gel(self, encoder: Run, shot: int, variant: str = "ahead", *overrides: str) -> Run:
        low, high = EMBEDDED_MARGINS["both" if variant == "ahead" else "one"]
        margins: tuple[str, ...] = (f"method.m_known={low}", f"method.m_unknown={high}")
        if variant == "energy-maps":
            margins = (f"method.map_temperature={EMBEDDED_MAP_TEMPERATURE}", *PUBLISHED_MARGINS)
        return self._head("demo-gel", encoder, shot, f"method.variant={variant}", *margins, *overrides)

    def _peer(self, method: str, encoder: Run, shot: int) -> Run:
        return self._head("demo-snatcher-f", encoder, shot, *head_of(method, temperature=EMBEDDED_TEMPERATURE))

    def _head(self, recipe: str, encoder: Run, shot: int, *overrides: str) -> Run:
        return self._run("train", recipe, *TRAIN, *TASKS, *shots(shot), *overrides, init=encoder)


EMBEDDED = EmbeddedScale(
    "embedded",
    tasks=200,
    beside={"embedded": "cifar-fs"},
    pixels={"embedded": 9},
    learned_coefficients=("optimizer.clip=5.0",),
)


# Of 12,000 tasks: rate x0.1 every 2,000, on CIFAR-FS after 6,000 and 9,000.
RFDNET_DROPS = {"cifar-fs": (0.5, 0.75)}
EVERY_2000 = (0.16667, 0.33333, 0.5, 0.66667, 0.83333)


def _rfdnet(dataset: str) -> tuple[str, ...]:
    drops = list(RFDNET_DROPS.get(dataset, EVERY_2000))
    rates = f"lr = 0.1, weight_decay = 1e-4, milestones = {drops}, gamma = 0.1"
    return ("augment={}", f"optimizer={{{rates}}}", "train.backbone=frozen", "train.tasks=12000")


ATT = ("optimizer.lr_backbone=1e-4", "train.tasks=39000", "train.tasks_per_step=2")
SIZES = {
    "mini-imagenet": (84, 92),
    "tiered-imagenet": (84, None),
    "cifar-fs": (32, 40),
}  # side, resized before the crop


# FEAT's program augments only when asked to.  Its DropBlock counts 40,000 encodings anew, 100 of training tasks and 600
# of validation tasks per epoch of 100 steps.
AUTHORS_FEAT = ("augment={}", "train.dropblock_ramp=5714", "validation.every=100")


class PaperScale(Scale):
    """The published training: pre-training, FEAT, GEL, at full width, fine-tuned.

    The comparison methods take FEAT's recipe (pictures, augmentation, tasks) with what their own papers say of rates
    and lengths.  RFDNet learns on frozen maps, as published.
    """

    def gel(self, dataset: str, shot: int, variant: str = "ahead", *overrides: str) -> Run:
        return self._gel(self._backbone(dataset), dataset, shot, f"method.variant={variant}", *overrides)

    def baseline(self, dataset: str, shot: int) -> Run:
        return self.gel(dataset, shot, "baseline")

    def peer(self, method: str, dataset: str, shot: int) -> Run:
        encoder = self._backbone(dataset)
        if method in ("feat", "snatcher-f"):
            feat = self._feat(encoder, dataset, shot)
            return feat if method == "feat" else scored_as("snatcher-f", feat)
        return self._peer(method, encoder, dataset, shot)

    def on_resnet18(self, method: str, dataset: str, shot: int) -> Run:
        side, resize = SIZES[dataset]
        parts = [f"image_size = {side}", *([f"resize = {resize}"] if resize else [])]
        encoder = self._backbone(dataset, f'backbone={{name = "resnet18", {", ".join(parts)}}}')
        if method != "gel":
            return self._peer(method, encoder, dataset, shot)
        # Its maps are 11x11 at 84 pixels and halved before pixels are compared; 4x4 at 32 pixels, and stay.
        return self._gel(encoder, dataset, shot, *(("method.reduce=true",) if side > 32 else ()))

    def _backbone(self, dataset: str, *overrides: str) -> Run:
        return self._run("pretrain", f"{dataset}-pretrain", *overrides)

    def gel_without_feat(self, dataset: str, shot: int) -> Run:
        return self._run("train", self._gel_recipe(dataset, shot), init=self._backbone(dataset))

    def full_peeler(self, dataset: str, shot: int) -> Run | None:
        if dataset != "mini-imagenet":  # the only data set that it was published on
            return None
        return self._run("train", f"{dataset}-peeler-full", *shots(shot))

    def _feat(self, encoder: Run, dataset: str, shot: int) -> Run:
        own = AUTHORS_FEAT if self.settings == "authors" else ()
        return self._run("train", f"{dataset}-feat-{shot}shot", *own, init=encoder)

    def _gel(self, encoder: Run, dataset: str, shot: int, *overrides: str) -> Run:
        feat = self._feat(encoder, dataset, shot)
        return self._run("train", self._gel_recipe(dataset, shot), *overrides, init=feat)

    def _gel_recipe(self, dataset: str, shot: int) -> str:
        return f"{dataset}-gel-{self.settings}-{shot}shot"

    def _peer(self, method: str, encoder: Run, dataset: str, shot: int) -> Run:
        own = _rfdnet(dataset) if method == "rfdnet" else ATT if method in ("att", "att-g") else ()
        learned = (_method(method, PEERS[method].settings, 64.0), *PEERS[method].tuned, *own)
        choose = "acc" if method in ("protonet", "snatcher-t", "snatcher-l") else "auroc"
        return self._run("train", f"{dataset}-feat-{shot}shot", *learned, f"validation.choose={choose}", init=encoder)


PAPER = PaperScale(
    "paper",
    tasks=600,
    beside={name: name for name in SIZES},
    pixels={"mini-imagenet": 25, "tiered-imagenet": 25, "cifar-fs": 4},
)

SCALES: dict[str, Scale] = {scale.name: scale for scale in (PAPER, CPU, EMBEDDED)}

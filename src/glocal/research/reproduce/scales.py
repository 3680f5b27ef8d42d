"""What a scale means: on which data, from which backbone, by which recipes, on how many test tasks.

``embedded`` takes minutes and needs no download, ``cpu`` hours on real pictures with narrow backbones, ``paper`` is the
published training for a GPU.  A scale only says which runs are wanted; ``runs`` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from glocal.research.reproduce.runs import Run
from glocal.research.reproduce.scale import Scale, scored_as

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


def fine_tuned(method: str) -> tuple[str, ...]:
    """Overrides of FEAT's recipe at full width."""
    return (_method(method, PEERS[method].settings, 64.0), *PEERS[method].tuned)


def learns_frozen(method: str) -> bool:
    """ProtoNet has nothing to learn on frozen maps."""
    return method != "protonet"


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

    def peer(self, method: str, dataset: str, shot: int) -> Run:
        if method in ("feat", "snatcher-f"):
            run = self.baseline(dataset, shot)
            return run if method == "snatcher-f" else scored_as("feat", run)
        settings = head_of(method, temperature=self.temperature)
        shots = (f"train.shot={shot}", f"validation.shot={shot}")
        run = self._head("frozen-head", dataset, f"data.dataset={dataset}", *shots, *settings)
        return run if learns_frozen(method) else Run(run.recipe, (*run.overrides, "train.tasks=0"), run.init)

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

    def peer(self, method: str, dataset: str, shot: int) -> Run:
        if method in ("feat", "snatcher-f"):
            run = self.baseline(dataset, shot)
            return run if method == "snatcher-f" else scored_as("feat", run)
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
        settings = head_of(method, temperature=EMBEDDED_TEMPERATURE)
        return self._head("demo-snatcher-f", encoder, shot, *settings, learns=learns_frozen(method))

    def _head(self, recipe: str, encoder: Run, shot: int, *overrides: str, learns: bool = True) -> Run:
        shots = (f"train.shot={shot}", f"validation.shot={shot}")
        run = self._run("train", recipe, *TRAIN, *TASKS, *shots, *overrides, init=encoder)
        return run if learns else Run(run.recipe, (*run.overrides, "train.tasks=0"), run.init)


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
        return self._run("train", f"{dataset}-peeler-full", f"train.shot={shot}", f"validation.shot={shot}")

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
        learned = (*fine_tuned(method), *own)
        choose = "acc" if method in ("protonet", "snatcher-t", "snatcher-l") else "auroc"
        return self._run("train", f"{dataset}-feat-{shot}shot", *learned, f"validation.choose={choose}", init=encoder)


PAPER = PaperScale(
    "paper",
    tasks=600,
    beside={name: name for name in SIZES},
    pixels={"mini-imagenet": 25, "tiered-imagenet": 25, "cifar-fs": 4},
)

SCALES: dict[str, Scale] = {scale.name: scale for scale in (PAPER, CPU, EMBEDDED)}

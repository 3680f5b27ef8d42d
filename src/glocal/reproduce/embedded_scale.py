"""Minutes on two cores and no download: the demo's recipes, from nothing, on maps of 3x3.

A third of each character's pictures is kept from pre-training for the heads, as on the real data sets.  Pictures enter
at 48 pixels instead of their own 32: top-k and patches say little on maps of 2x2.
"""

from __future__ import annotations

from glocal.reproduce.peers import head_of, learns_frozen
from glocal.reproduce.runs import Run
from glocal.reproduce.scales import Scale, scored_as

HOLDOUT = "data.holdout=0.35"  # 21 of 60 pictures: 5 shots and 15 queries need 20
PRETRAIN = (HOLDOUT, "data.part=pretrained", "validation.tasks=50", "validation.every=180")
TRAIN = (HOLDOUT, "data.part=held-out", "train.views=2", "validation.every=100", "validation.tasks=60")
TASKS = ("train.tasks=200",)
# As narrow as time allows: the stem of large pictures on 36 pixels gives maps of 2x2.
RESNET18 = 'backbone={name = "resnet18", image_size = 36, stem = "7x7"}'
TEMPERATURE = 16.0  # for 128 channels
# Around the energies that known and unknown validation queries start with: of E_c or E_f alone, and of both together.
MARGINS = {"one": (-9.0, -7.0), "both": (-18.0, -14.0)}


class EmbeddedScale(Scale):
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
        eye = self._run("pretrain", "demo-protonet", *PRETRAIN, "pretrain.epochs=2", RESNET18)
        return self._gel(eye, shot) if method == "gel" else self._peer(method, eye, shot)

    def _backbone(self) -> Run:
        return self._run("pretrain", "demo-protonet", *PRETRAIN, "pretrain.epochs=3", "backbone.image_size=48")

    def _gel(self, eye: Run, shot: int, variant: str = "ahead", *overrides: str) -> Run:
        low, high = MARGINS["both" if variant == "ahead" else "one"]
        margins = (f"method.m_known={low}", f"method.m_unknown={high}")
        return self._head("demo-gel", eye, shot, f"method.variant={variant}", *margins, *overrides)

    def _peer(self, method: str, eye: Run, shot: int) -> Run:
        settings = head_of(method, temperature=TEMPERATURE)
        return self._head("demo-snatcher-f", eye, shot, *settings, learns=learns_frozen(method))

    def _head(self, recipe: str, eye: Run, shot: int, *overrides: str, learns: bool = True) -> Run:
        shots = (f"train.shot={shot}", f"validation.shot={shot}")
        run = self._run("train", recipe, *TRAIN, *TASKS, *shots, *overrides, init=eye)
        return run if learns else Run(run.recipe, (*run.overrides, "train.tasks=0"), run.init)


EMBEDDED = EmbeddedScale(
    "embedded",
    tasks=200,
    beside={"embedded": "cifar-fs"},
    pixels={"embedded": 9},
    learned_coefficients=("optimizer.clip=5.0",),
)

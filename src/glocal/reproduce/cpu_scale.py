"""Hours on two cores: real pictures, heads on the frozen maps of the shipped narrow backbones.

GEL and its baseline are the shipped recipes; only what a row is about differs from them.
"""

from __future__ import annotations

from glocal.reproduce.peers import head_of, learns_frozen
from glocal.reproduce.runs import Run
from glocal.reproduce.scales import Scale, scored_as

TEMPERATURE = 32.0  # for 192 channels
# Where energies start differs by variant, and the margins with it (chosen on validation classes, docs/results).
MARGINS = {
    ("tiered-64", "energy"): ("method.m_known=5.0", "method.m_unknown=5.6"),
    ("cifar-fs", "energy"): ("method.m_known=-7.5", "method.m_unknown=-5.5"),
    ("cifar-fs", "pixel"): ("method.m_known=-7.5", "method.m_unknown=-5.5", "method.energy_weight=1.0"),
}


class CpuScale(Scale):
    def gel(self, dataset: str, shot: int, variant: str = "ahead", *overrides: str) -> Run:
        own = MARGINS.get((dataset, variant), ())
        return self._run("train", f"{dataset}-cpu-{shot}shot", f"method.variant={variant}", *own, *overrides)

    def baseline(self, dataset: str, shot: int) -> Run:
        return self._run("train", f"{dataset}-cpu-feat-{shot}shot")

    def peer(self, method: str, dataset: str, shot: int) -> Run:
        if method in ("feat", "snatcher-f"):
            run = self.baseline(dataset, shot)
            return run if method == "snatcher-f" else scored_as("feat", run)
        run = self._run(
            "train",
            "frozen-head",
            f"data.dataset={dataset}",
            f"train.shot={shot}",
            f"validation.shot={shot}",
            *head_of(method, temperature=TEMPERATURE),
            init=f"{dataset}-cpu/backbone",
        )
        return run if learns_frozen(method) else Run(run.recipe, (*run.overrides, "train.tasks=0"), run.init)


CPU = CpuScale(
    "cpu",
    tasks=600,
    beside={"tiered-64": "tiered-imagenet", "cifar-fs": "cifar-fs"},
    pixels={"tiered-64": 16, "cifar-fs": 4},
    learned_coefficients=("optimizer.clip=5.0",),
)

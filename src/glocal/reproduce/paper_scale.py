"""The published training, for a machine with a GPU: pre-training, FEAT, GEL, at full width, fine-tuned.

The comparison methods take FEAT's recipe (pictures, augmentation, tasks) with what their own papers say of rates and
lengths.  RFDNet learns on frozen maps, as published.
"""

from __future__ import annotations

from glocal.reproduce.peers import fine_tuned
from glocal.reproduce.runs import Run
from glocal.reproduce.scales import Scale, scored_as

RFDNET = (  # 12,000 tasks, rate x0.1 every 2,000
    "augment={}",
    "optimizer={lr = 0.1, weight_decay = 1e-4, milestones = [0.16667, 0.33333, 0.5, 0.66667, 0.83333], gamma = 0.1}",
    "train.backbone=frozen",
    "train.tasks=12000",
)
ATT = ("optimizer.lr_backbone=1e-4", "train.tasks=39000", "train.tasks_per_step=2")
LENGTHS = {"rfdnet": RFDNET, "att": ATT, "att-g": ATT}
SIZES = {
    "mini-imagenet": (84, 92),
    "tiered-imagenet": (84, None),
    "cifar-fs": (32, 40),
}  # side, resized before the crop


class PaperScale(Scale):
    def gel(self, dataset: str, shot: int, variant: str = "ahead", *overrides: str) -> Run:
        return self._gel(self._backbone(dataset), dataset, shot, f"method.variant={variant}", *overrides)

    def baseline(self, dataset: str, shot: int) -> Run:
        return self.gel(dataset, shot, "baseline")

    def peer(self, method: str, dataset: str, shot: int) -> Run:
        eye = self._backbone(dataset)
        if method in ("feat", "snatcher-f"):
            feat = self._feat(eye, dataset, shot)
            return feat if method == "feat" else scored_as("snatcher-f", feat)
        return self._peer(method, eye, dataset, shot)

    def on_resnet18(self, method: str, dataset: str, shot: int) -> Run:
        side, resize = SIZES[dataset]
        # GEL's extra stage, 11x11 -> 6x6, is for large pictures; on 32 pixels maps are 4x4 without it.
        parts = [f"image_size = {side}", *([f"resize = {resize}"] if resize else [])]
        parts += ["reduce = true"] if method == "gel" and side > 32 else []
        eye = self._backbone(dataset, f'backbone={{name = "resnet18", {", ".join(parts)}}}')
        return self._gel(eye, dataset, shot) if method == "gel" else self._peer(method, eye, dataset, shot)

    def _backbone(self, dataset: str, *overrides: str) -> Run:
        return self._run("pretrain", f"{dataset}-pretrain", *overrides)

    def _feat(self, eye: Run, dataset: str, shot: int) -> Run:
        return self._run("train", f"{dataset}-feat-{shot}shot", init=eye)

    def _gel(self, eye: Run, dataset: str, shot: int, *overrides: str) -> Run:
        feat = self._feat(eye, dataset, shot)
        return self._run("train", f"{dataset}-gel-paper-{shot}shot", *overrides, init=feat)

    def _peer(self, method: str, eye: Run, dataset: str, shot: int) -> Run:
        learned = (*fine_tuned(method), *LENGTHS.get(method, ()))
        choose = "acc" if method in ("protonet", "snatcher-t", "snatcher-l") else "auroc"
        return self._run("train", f"{dataset}-feat-{shot}shot", *learned, f"validation.choose={choose}", init=eye)


PAPER = PaperScale(
    "paper",
    tasks=600,
    beside={name: name for name in SIZES},
    pixels={"mini-imagenet": 25, "tiered-imagenet": 25, "cifar-fs": 4},
)

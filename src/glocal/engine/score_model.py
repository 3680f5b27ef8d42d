"""The score model of ``glocal_runtime.score_model``, which machines without torch use, for tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glocal_runtime import score_model
from glocal_runtime.threshold import Threshold


@dataclass(frozen=True)
class ScoreModel(score_model.ScoreModel):
    def probabilities(
        self, logits: Tensor, open_score: Tensor, threshold: Threshold, *, unknown_share: float = 0.5
    ) -> Tensor:
        """``shares`` of tensors."""
        rows, scores = (each.detach().cpu().numpy() for each in (logits, open_score))
        return torch.from_numpy(self.shares(rows, scores, threshold, unknown_share=unknown_share)).to(logits)

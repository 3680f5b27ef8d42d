"""A support enrolled on one device; see ``glocal_runtime.judge``."""

from __future__ import annotations

import torch

from glocal.engine.head import Head
from glocal.recognizer.brain import Brain
from glocal.recognizer.support import Support
from glocal.types import Views
from glocal_runtime import judge
from glocal_runtime.views import Views as Arrays


class Judge(judge.Judge):
    def __init__(self, brain: Brain, support: Support, device: torch.device) -> None:
        super().__init__(Head(brain.model.method, device), support, score_model=brain.score_model)

    @staticmethod
    def plain(views: Views | Arrays) -> Arrays:
        return views.numpy() if isinstance(views, Views) else views

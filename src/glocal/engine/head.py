"""A method as code without torch sees it: arrays in, arrays out."""

from __future__ import annotations

from typing import Any

import torch

from glocal.methods import Method
from glocal.types import Views
from glocal_runtime import views as arrays
from glocal_runtime.left_out import PARTS, Compared, Labels


class Head:
    """What ``glocal_runtime.left_out.Head`` asks for, by a method on one device."""

    def __init__(self, method: Method, device: torch.device | str = "cpu") -> None:
        self._method, self._device = method, torch.device(device)

    @property
    def min_way(self) -> int:
        return self._method.min_way

    def enroll(self, support: arrays.Views, label: Labels) -> Any:
        with torch.inference_mode():
            return self._method.enroll(self._here(support), torch.from_numpy(label).to(self._device))

    def compare(self, state: Any, query: arrays.Views) -> Compared:
        with torch.inference_mode():
            comparison = self._method.compare(state, self._here(query))
            scores = comparison.open_score(self._method.open_score)
            parts = {name: comparison.own[name]().cpu().numpy() for name in PARTS if name in comparison.own}
        return Compared(comparison.logits.cpu().numpy(), scores.cpu().numpy(), parts)

    def _here(self, views: arrays.Views) -> Views:
        return Views.from_numpy(views, self._device)

"""The recognizer at one version, as everybody may read it at once; it never changes, a change makes a new one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from glocal.recognizer import Recognizer
from glocal.recognizer.support import Photo
from glocal.serve.promises import promise_curve
from glocal_runtime.checkup import Finding


@dataclass(frozen=True)
class Snapshot:
    version: int
    recognizer: Recognizer | None  # None before the first class
    undo_label: str | None
    redo_label: str | None

    @property
    def classes(self) -> tuple[str, ...]:
        return () if self.recognizer is None else self.recognizer.classes

    @property
    def model(self) -> str:
        """Hash of what made the views; empty before the first class."""
        return "" if self.recognizer is None else self.recognizer.contents.brain.sha256

    @cached_property
    def photos(self) -> dict[str, Photo]:
        """By digest."""
        found = () if self.recognizer is None else self.recognizer.contents.support.photos
        return {each.digest: each for each in found}

    @cached_property
    def promise_curve(self) -> list[tuple[float, float]]:
        return [] if self.recognizer is None else promise_curve(self.recognizer)

    @cached_property
    def state(self) -> dict[str, Any]:
        """What the page shows of it."""
        return {
            "version": self.version,
            "can_undo": self.undo_label is not None,
            "can_redo": self.redo_label is not None,
            "undo_label": self.undo_label,
            "redo_label": self.redo_label,
            "model": None if self.recognizer is None else self.recognizer.contents.brain.name,
            "classes": self._classes(),
            "findings": [] if self.recognizer is None else plain_findings(self.recognizer.findings()),
            "threshold": None if self.recognizer is None else self.recognizer.threshold.to_json(),
        }

    def _classes(self) -> list[dict[str, Any]]:
        if self.recognizer is None:
            return []
        return [
            {
                "name": name,
                "photos": [
                    {"id": each.digest, "name": each.name, "thumbnail": f"/photos/{each.digest}/thumbnail"}
                    for each in bank.photos
                ],
            }
            for name, bank in self.recognizer.contents.support.classes.items()
        ]


def plain_findings(findings: list[Finding]) -> list[dict[str, Any]]:
    return [{"kind": each.kind, "text": each.text, "classes": sorted(each.classes)} for each in findings]

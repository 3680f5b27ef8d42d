"""A folder of photos in, a name or "unknown" out.

>>> recognizer = Recognizer.enroll("photos")                                             # doctest: +SKIP
>>> recognizer.predict("new.jpg")[0].label                                               # doctest: +SKIP
'bolt'
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from glocal.engine.calibrate import Threshold
from glocal.engine.checkpoint import Model
from glocal.engine.device import pick_device
from glocal.recognizer.brain import DEFAULT, load_brain
from glocal.recognizer.contents import Contents
from glocal.recognizer.eye import Eye, Image_, Source, Unreadable, as_source, take
from glocal.recognizer.file import read_contents, write_contents
from glocal.recognizer.gather import Labelled, Photos, labelled_sources, nested_folders, sources_of
from glocal.recognizer.judge import Judge
from glocal.recognizer.look import Progress, look, probes_of
from glocal.recognizer.support import Bank, Support, on_cpu
from glocal.types import Views
from glocal_runtime.base import Answered, AnyRecognizer, first_of
from glocal_runtime.checkup import Finding, tidy
from glocal_runtime.decision import Decision, Promise
from glocal_runtime.errors import DataError
from glocal_runtime.threshold import check_promise

__all__ = ["Answered", "Recognizer"]


class Recognizer(AnyRecognizer):
    """Enrolled classes, the model that judges pictures by them, and a threshold with a promise.

    Build it with ``enroll`` or ``load``.  What changes it returns what the check-up has to say about the change.
    """

    contents: Contents
    eye: Eye

    def __init__(self, contents: Contents, eye: Eye, judge: Judge, findings: Sequence[Finding] = ()) -> None:
        self.contents, self.eye, self._judge, self._found = contents, eye, judge, list(findings)

    @classmethod
    def enroll(
        cls,
        photos: Labelled,
        *,
        model: str | Path | Model = DEFAULT,
        score: str | None = None,
        max_false_unknown: float = 0.05,
        per_class: bool = False,
        unknown: Photos | None = None,
        skip_bad: bool = False,
        device: str = "auto",
        workers: int = 2,
        progress: Progress | None = None,
    ) -> Recognizer:
        """From ``folder/<class>/*.jpg``, a zip of that, or a mapping of class names to photos.

        ``unknown``: photos of other things, which make the threshold better.  ``score``: another open score.
        """
        promise = Promise(check_promise(max_false_unknown), per_class)
        classes = labelled_sources(photos)
        others = [] if unknown is None else sources_of(unknown, "unknown/")
        brain = load_brain(model, score=score)
        brain.check_way(len(classes))
        eye = Eye(brain.model, device=pick_device(device), workers=workers)
        flat = [source for some in classes.values() for source in some]
        bank, bad = look(eye, flat + others, skip_bad=skip_bad, progress=progress)
        owner = [name for name, some in classes.items() for _ in some]
        owner = [name for i, name in enumerate(owner) if i not in bad]
        rows = {name: [row for row, each in enumerate(owner) if each == name] for name in classes}
        if empty := [name for name, some in rows.items() if not some]:
            raise DataError(f"class {empty[0]!r} has no usable photo; add some or remove the class")
        support, doubles = tidy(Support({name: bank.rows(some) for name, some in rows.items()}))
        aside = bank.rows(list(range(len(owner), len(bank)))) if others else None
        pending = Decision(Threshold(math.inf, max_false_unknown, None, None, "none"), ())
        judge = Judge(brain, support, eye.device)
        contents = Contents(brain, support, aside, promise, pending, probes_of(eye, first_of(flat, owner, bad)))
        findings = [Finding.unreadable(each.path, each.error) for each in bad.values()]
        findings += [Finding.nested(name, below) for name, below in nested_folders(photos).items()]
        return cls(judge.settled(contents, changed=None), eye, judge, findings + doubles)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", workers: int = 2) -> Recognizer:
        contents = read_contents(Path(path))
        eye = Eye(contents.brain.model, device=pick_device(device), workers=workers)
        return cls(contents, eye, Judge(contents.brain, contents.support, eye.device))

    def save(self, path: str | Path) -> None:
        """One file, the old one or the new one at any moment."""
        write_contents(Path(path), self.contents)

    def embed(self, images: Iterable[Image_]) -> Views:
        """Views of a few pictures, as they would be stored."""
        return on_cpu(self.eye.batch(take(as_source(image), self.eye.preprocess) for image in images).views)

    def _look(
        self, sources: list[Source], *, skip_bad: bool, progress: Progress | None
    ) -> tuple[Bank, dict[int, Unreadable]]:
        return look(self.eye, sources, skip_bad=skip_bad, progress=progress)

    def _judge_of(self, support: Support) -> Judge:
        return Judge(self.contents.brain, support, self.eye.device)

    def _check_way(self, way: int) -> None:
        self.contents.brain.check_way(way)

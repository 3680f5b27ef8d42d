"""An exported recognizer: the classes and answers of glocal, by ONNX graphs.

>>> recognizer = Recognizer.load("parts-export")                                         # doctest: +SKIP
>>> recognizer.predict("new.jpg")[0].label                                               # doctest: +SKIP
'bolt'
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from PIL import Image

from glocal_runtime.base import AnyRecognizer, check_way, first_of
from glocal_runtime.checkup import tidy
from glocal_runtime.decision import Decision, Promise
from glocal_runtime.errors import DataError
from glocal_runtime.explain import explain
from glocal_runtime.eye import Image_, Source, Unreadable, as_source, take
from glocal_runtime.folder import (
    Contents,
    Facts,
    Probes,
    copy_package,
    is_export,
    read_contents,
    read_manifest,
    write_contents,
)
from glocal_runtime.gather import Labelled, Photos, class_folders, sources_of
from glocal_runtime.graphs import EMBED, ENROLL, SCORE, Graph, GraphEye, GraphHead
from glocal_runtime.judge import Judge
from glocal_runtime.look import Progress, probe_images, seen
from glocal_runtime.support import Bank, Support
from glocal_runtime.threshold import Threshold, check_promise
from glocal_runtime.verify import Verified, compared
from glocal_runtime.views import Views


class Model:
    """The graphs, ready to run, and their bytes."""

    def __init__(self, facts: Facts, graphs: Mapping[str, bytes], *, workers: int = 2, threads: int = 0) -> None:
        self.facts, self.graphs = facts, dict(graphs)
        self.eye = GraphEye(Graph(graphs[EMBED], EMBED, threads=threads), facts.preprocess, workers=workers)
        enroll, score = (Graph(graphs[name], name, threads=threads) for name in (ENROLL, SCORE))
        self.head = GraphHead(enroll, score, min_way=facts.min_way)

    def judge(self, support: Support) -> Judge:
        return Judge(self.head, support, score_model=self.facts.score_model)

    def look(
        self, sources: list[Source], *, skip_bad: bool = False, progress: Progress | None = None
    ) -> tuple[Bank, dict[int, Unreadable]]:
        batches, bad = seen(self.eye, sources, stored=Views.stored, skip_bad=skip_bad, progress=progress)
        return Bank.of(batches), bad

    def embed(self, images: Iterable[Image_]) -> Views:
        """Views of a few pictures, as they would be stored."""
        return self.eye.batch(take(as_source(image), self.eye.preprocess) for image in images).views.stored()


class Recognizer(AnyRecognizer):
    """Enrolled classes, the graphs that judge pictures by them, and a threshold with a promise."""

    contents: Contents

    def __init__(self, model: Model, contents: Contents, judge: Judge) -> None:
        self.model, self.eye, self.contents, self._judge = model, model.eye, contents, judge

    @classmethod
    def load(cls, folder: str | Path, *, workers: int = 2, threads: int = 0) -> Recognizer:
        """From a folder of ``glocal export``.  ``threads`` of onnxruntime: 0 is one per core."""
        contents, graphs = read_contents(Path(folder))
        model = Model(contents.facts, graphs, workers=workers, threads=threads)
        return cls(model, contents, model.judge(contents.support))

    @classmethod
    def enroll(
        cls,
        photos: Labelled,
        *,
        model: str | Path | Recognizer,
        max_false_unknown: float = 0.05,
        per_class: bool = False,
        unknown: Photos | None = None,
        progress: Progress | None = None,
    ) -> Recognizer:
        """New classes, from ``folder/<class>/*.jpg`` or a mapping, with the graphs of an export."""
        promise = Promise(check_promise(max_false_unknown), per_class)
        classes = class_folders(photos)
        others = [] if unknown is None else sources_of(unknown, "unknown/")
        brain = (model if isinstance(model, Recognizer) else cls.load(model)).model
        _check_way(brain.facts, len(classes))
        flat = [source for some in classes.values() for source in some]
        owner = [name for name, some in classes.items() for _ in some]
        bank, _ = brain.look(flat + others, progress=progress)
        rows = {name: [row for row, each in enumerate(owner) if each == name] for name in classes}
        support, doubles = tidy(Support({name: bank.rows(some) for name, some in rows.items()}))
        images = probe_images(brain.eye, first_of(flat, owner, ()))
        contents = Contents(
            brain.facts,
            support,
            bank.rows(list(range(len(owner), len(bank)))) if others else None,
            promise,
            Decision(Threshold(math.inf, max_false_unknown, None, None, "none"), ()),
            Probes(images, brain.embed(images)),
        )
        judge = brain.judge(support)
        found = cls(brain, judge.settled(contents, changed=None), judge)
        found._found = doubles
        return found

    def save(self, folder: str | Path) -> None:
        """Into the folder it came from, or any export of the same graphs, or a new one with all that it needs."""
        folder = Path(folder)
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in self.model.graphs.items()}
        if not folder.exists():
            partial = folder.with_name(f".{folder.name[:100]}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            try:
                for name, data in self.model.graphs.items():
                    (partial / name).write_bytes(data)
                copy_package(partial)
                write_contents(partial, self.contents, digests)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            return
        if not is_export(folder) or read_manifest(folder).get("graphs") != digests:
            raise DataError(f"{folder} is there already and has not the graphs of this recognizer; name a new folder")
        write_contents(folder, self.contents, digests)

    def embed(self, images: Iterable[Image_]) -> Views:
        """Views of a few pictures, as they would be stored."""
        return self.model.embed(images)

    def explain(self, image: Image_) -> Image.Image:
        """The answer about one picture as a picture: what matched in which photo."""
        [answered] = self.batches([image])
        [answer] = answered.answers
        if isinstance(answer, Unreadable):
            raise DataError(f"cannot use picture {answer.path}: {answer.error}")
        return explain(self, answered.batch, 0, answer)

    def verify(self) -> list[Verified]:
        """Does this machine give the answers that the export was made with?  Its probes, decoded and scored again."""
        probes = self.contents.probes
        return compared(probes.open_score, probes.logits, *self.scores(self.embed(probes.images)))

    def _look(
        self, sources: list[Source], *, skip_bad: bool, progress: Progress | None
    ) -> tuple[Bank, dict[int, Unreadable]]:
        return self.model.look(sources, skip_bad=skip_bad, progress=progress)

    def _judge_of(self, support: Support) -> Judge:
        return self.model.judge(support)

    def _check_way(self, way: int) -> None:
        _check_way(self.contents.facts, way)


def _check_way(facts: Facts, way: int) -> None:
    check_way(way, method=facts.method, min_way=facts.min_way, score=facts.open_score)

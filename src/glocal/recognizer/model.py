"""An encoder and a head: all that turns the pixels of photos into similarities to classes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from glocal.common.errors import RecipeError
from glocal.common.words import meant
from glocal.recognizer.converted import EMBED, ENROLL, SCORE, ConvertedModel, is_converted
from glocal.recognizer.encoders.builtin import ENCODERS, GEL_EMBED, GEL_ENROLL, GEL_SCORE, GEL_SCORES
from glocal.recognizer.encoders.encoder import (
    VECTORS,
    Encoder,
    Member,
    builtin_encoder,
    encoder_of,
    find_graph,
    read_encoder,
)
from glocal.recognizer.encoders.file import EncoderFile, keep
from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.heads.converted import ConvertedHead
from glocal.recognizer.heads.head import Head
from glocal.recognizer.heads.prototypes import Prototypes
from glocal.recognizer.heads.ridge import WHITEN, Ridge
from glocal.recognizer.photos.images import Preprocess

DEFAULT, DEFAULT_HEAD = "fast", "ridge"
NUMPY = ("ridge", "prototypes")
HEADS = (*NUMPY, "gel")
NEEDS_RIVALS = ("entropy", "doubt", "margin")  # open scores that compare classes with each other


@dataclass(frozen=True)
class Model:
    """Features by the encoder, compared by the head."""

    encoder: Encoder
    head: Head

    @property
    def name(self) -> str:
        return f"{self.head.name} on {self.encoder.name}"

    @property
    def preprocess(self) -> Preprocess:
        return self.encoder.preprocess

    @cached_property
    def sha256(self) -> str:
        """Of all that an answer depends on beside the photos and the threshold."""
        about = json.dumps([self.encoder.sha256, self.head.record()], sort_keys=True)
        return hashlib.sha256(about.encode()).hexdigest()

    def record(self) -> dict[str, Any]:
        """What a file says about it."""
        return {"encoder": self.encoder.record(), "head": self.head.record()}

    def graphs(self) -> dict[str, bytes]:
        """By hash, those that a file must hold: all that neither ship with the package nor are linked."""
        every = (*self.encoder.graphs(), *self.head.graphs())
        return {graph.sha256: graph.data for graph in every if not (graph.ships or graph.linked)}

    def check_way(self, way: int) -> None:
        """Refuse a number of classes that the head, or its open score, is not defined for."""
        if way < self.head.min_way:
            raise RecipeError(
                f"{self.head.name} needs at least {self.head.min_way} classes, got {way}; add one, or use another head "
                f"such as {DEFAULT_HEAD}",
                code="too-few-classes",
            )
        if way == 1 and self.head.open_score in NEEDS_RIVALS:
            others = [name for name in self.head.score_names if name not in NEEDS_RIVALS]
            way_out = f"choose another with --score: {', '.join(others)}" if others else "use another head"
            raise RecipeError(
                f"the open score {self.head.open_score!r} compares classes with each other and says nothing with a "
                f"single one; add a class or {way_out}",
                code="too-few-classes",
            )


def build_model(
    encoder: str | Path = DEFAULT,
    head: str = DEFAULT_HEAD,
    *,
    score: str | None = None,
    device: str = "auto",
    threads: int = 0,
    linked: bool = False,
) -> Model:
    """``encoder`` is fast, better, vectors, an .encoder file or a converted model, whose embedding is taken.

    ``head`` is one of HEADS, ``linked`` of the graph of an .encoder file as in ``Graph``.
    """
    if head not in HEADS:
        raise RecipeError(f"there is no head {head!r}; {meant(head, HEADS)}", code="no-head")
    if head == "gel":
        return _gel(encoder, score, device, threads)
    looks = _encoder(encoder, device=device, threads=threads, linked=linked)
    compares = _numpy_head(head, looks)
    compares.open_score = chosen_score(compares, score)
    return Model(looks, compares)


def _numpy_head(kind: str, encoder: Encoder) -> Head:
    """An encoder that brings no whitening gets that of the support."""
    return Ridge(whiten=0.0 if encoder.whitened else WHITEN) if kind == "ridge" else Prototypes()


def _encoder(encoder: str | Path, *, device: str, threads: int, linked: bool) -> Encoder:
    if encoder == VECTORS:
        return Encoder(VECTORS, ())
    if str(encoder) not in ENCODERS and Path(encoder).is_file() and not is_converted(encoder):
        made = EncoderFile.read(encoder)
        if linked:
            keep(made)
        return encoder_of(made, device=device, threads=threads, linked=linked)
    if linked:
        raise RecipeError(f"an .encoder file can be linked, got {str(encoder)!r}", code="not-linked")
    if str(encoder) not in ENCODERS and is_converted(encoder):
        model = ConvertedModel.read(encoder)
        graph = Graph(model.graphs[EMBED], f"{EMBED} of {encoder}", device=device, threads=threads)
        return Encoder(model.name, (Member(graph, model.preprocess, unit=True),))
    return builtin_encoder(str(encoder), device=device, threads=threads)


def _gel(encoder: str | Path, score: str | None, device: str, threads: int) -> Model:
    """The paper's own head, which was trained on the last map of the encoder fast."""
    if str(encoder) != "fast":
        raise RecipeError(
            f"the head gel fits the encoder fast alone, got {str(encoder)!r}; use ridge or prototypes",
            code="other-encoder",
        )
    neck, enroll, compare = (
        find_graph(each, {}, device=device, threads=threads) for each in (GEL_EMBED, GEL_ENROLL, GEL_SCORE)
    )
    [member] = builtin_encoder("fast", device=device, threads=threads).members
    head = ConvertedHead("gel", enroll, compare, open_score="E", score_names=GEL_SCORES)
    head.open_score = chosen_score(head, score)
    return Model(Encoder("fast", (replace(member, neck=neck),)), head)


def converted_model(made: ConvertedModel, *, score: str | None = None, device: str = "auto", threads: int = 0) -> Model:
    """The encoder and the head that a converted model is."""
    embed, enroll, compare = (
        Graph(made.graphs[name], f"{name} of {made.name}", sha256=made.hashes[name], device=device, threads=threads)
        for name in (EMBED, ENROLL, SCORE)
    )
    head = ConvertedHead(
        made.method,
        enroll,
        compare,
        open_score=made.open_score,
        score_names=made.score_names,
        min_way=made.min_way,
        takes_unknown=made.takes_unknown,
    )
    head.open_score = chosen_score(head, score)
    return Model(Encoder(made.name, (Member(embed, made.preprocess),)), head)


def read_model(
    record: Mapping[str, Any], graphs: Mapping[str, bytes], *, where: str, device: str = "auto", threads: int = 0
) -> Model:
    """The inverse of ``Model.record``; graphs by their hash."""
    encoder = read_encoder(record["encoder"], graphs, where=where, device=device, threads=threads)
    about = dict(record["head"])
    kind = about.pop("kind")
    if kind in NUMPY:
        head = _numpy_head(kind, encoder)
        head.open_score = about["open_score"]
    elif kind != "converted":
        raise ValueError(f"its head is {kind!r}")
    else:
        enroll, score = (
            find_graph(about.pop(name), graphs, where=where, device=device, threads=threads)
            for name in ("enroll", "score")
        )
        head = ConvertedHead(enroll=enroll, score=score, **{**about, "score_names": tuple(about["score_names"])})
    if head.open_score not in head.score_names:
        raise ValueError(f"its open score {head.open_score!r} is none of {', '.join(head.score_names)}")
    return Model(encoder, head)


def chosen_score(head: Head, score: str | None) -> str:
    if score is not None and score not in head.score_names:
        raise RecipeError(
            f"{head.name} has the open scores {', '.join(head.score_names)}, got {score!r}", code="open-score"
        )
    return score or head.open_score

"""From the pixels of photos to their features."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from glocal.common.errors import RecipeError
from glocal.common.words import meant
from glocal.recognizer.encoders.builtin import ENCODERS, FILES, FOLDER, LICENCE, PREPROCESS
from glocal.recognizer.encoders.file import EncoderFile, linked_graph
from glocal.recognizer.encoders.session import Graph, encoding_end
from glocal.recognizer.features import Features, unit
from glocal.recognizer.photos.images import Pixels, Preprocess, fit

VECTORS = "vectors"  # the name of an encoder without members
IMAGES, VEC, LOCAL, MAP = "images", "vec", "local", "map"  # input and outputs


@dataclass(frozen=True)
class Member:
    """A graph, images (B, size, size, 3) uint8 -> vec (B, D), and local (B, C, h, w) if it looks at patches."""

    graph: Graph
    preprocess: Preprocess
    neck: Graph | None = None  # takes the ``map`` of the graph and gives vec, local in its place
    unit: bool = False  # whether vectors and cells are still to be divided by their lengths

    def __call__(self, images: Pixels) -> Features:
        end = encoding_end.get()
        if self.neck is None:
            last, feeds = self.graph, {IMAGES: images}
        else:
            last, feeds = self.neck, {MAP: self.graph({IMAGES: images}, [MAP], end=end)[0]}
        names = [VEC, LOCAL] if LOCAL in last.outputs else [VEC]
        vec, *local = last(feeds, names, end=end)
        last.check(vec, VEC, len(images), None)
        for each in local:
            last.check(each, LOCAL, len(images), None, None, None)
        if not all(np.isfinite(each).all() for each in (vec, *local)):
            raise last.damaged("its outputs are not finite numbers")
        if self.unit:
            vec, local = unit(vec), [unit(each, axis=1) for each in local]
        return Features(vec, tuple(local))

    def record(self) -> dict[str, Any]:
        return {
            "graph": self.graph.sha256,
            "neck": None if self.neck is None else self.neck.sha256,
            "preprocess": self.preprocess.to_json(),
            "unit": self.unit,
        }


class Encoder:
    """One or more members, or none for vectors that other programs made.

    The vectors of members lie side by side; inner products are the mean of theirs.

    Parameters
    ----------
    name : str
        fast, better, or what the user named it.
    members : tuple of Member
        A photo is cut once, for the member that sees the most pixels; the others get it scaled down.
    licence : str
        Of the weights, as their source states it.
    """

    def __init__(self, name: str, members: tuple[Member, ...], *, licence: str = "") -> None:
        self.name, self.members, self.licence = name, members, licence

    @property
    def whitened(self) -> bool:
        """Whether its graphs whiten their vectors enough, as those that ship do."""
        return bool(self.members) and not any(each.unit for each in self.members)

    @cached_property
    def preprocess(self) -> Preprocess:
        """How photos are cut for it."""
        self.check_photos()
        return max((each.preprocess for each in self.members), key=lambda each: each.size)

    def check_photos(self) -> None:
        """Refuse photos where there are vectors alone."""
        if not self.members:
            raise RecipeError(
                "this recognizer was enrolled from vectors and looks at no photos; give it vectors of the same program "
                "with --vectors",
                code="no-photos",
            )

    def __call__(self, images: Pixels) -> Features:
        """(B, size, size, 3) uint8, as ``preprocess`` says."""
        features = [member(_scaled(images, member.preprocess)) for member in self.members]
        if len(features) == 1:
            return features[0]
        scale = np.float32(len(features) ** -0.5)
        return Features(
            np.concatenate([each.vec * scale for each in features], axis=1),
            tuple(local for each in features for local in each.local),
        )

    @cached_property
    def sha256(self) -> str:
        """Of what features depend on: those of equal encoders can be compared."""
        about = json.dumps([each.record() for each in self.members], sort_keys=True)
        return hashlib.sha256(about.encode()).hexdigest()

    def record(self) -> dict[str, Any]:
        members = [each.record() for each in self.members]
        return {"name": self.name, "licence": self.licence, "members": members}

    def graphs(self) -> tuple[Graph, ...]:
        return tuple(graph for each in self.members for graph in (each.graph, each.neck) if graph is not None)


def builtin_encoder(name: str, *, device: str = "auto", threads: int = 0) -> Encoder:
    if name not in ENCODERS:
        raise RecipeError(f"there is no encoder {name!r}; {meant(name, ENCODERS)}", code="no-encoder")
    members = (
        Member(find_graph(sha256, {}, device=device, threads=threads), PREPROCESS[sha256]) for sha256 in ENCODERS[name]
    )
    return Encoder(name, tuple(members), licence=LICENCE)


def encoder_of(made: EncoderFile, *, device: str = "auto", threads: int = 0, linked: bool = False) -> Encoder:
    """``linked`` as in ``Graph``."""
    what = f"the graph of {made.name}"
    graph = Graph(made.graph, what, sha256=made.sha256, device=device, threads=threads, linked=linked)
    member = Member(graph, made.preprocess, unit=True)
    return Encoder(made.name, (member,), licence=made.licence)


def read_encoder(
    record: Mapping[str, Any], graphs: Mapping[str, bytes], *, where: str = "", device: str = "auto", threads: int = 0
) -> Encoder:
    """The inverse of ``Encoder.record``."""

    def graph(sha256: str) -> Graph:
        return find_graph(sha256, graphs, where=where, device=device, threads=threads)

    members = [
        Member(
            graph(each["graph"]),
            Preprocess.from_json(each["preprocess"]),
            None if each["neck"] is None else graph(each["neck"]),
            each["unit"],
        )
        for each in record["members"]
    ]
    if not members and record["name"] != VECTORS:
        raise ValueError("its encoder has no member")
    return Encoder(record["name"], tuple(members), licence=record["licence"])


def find_graph(
    sha256: str, graphs: Mapping[str, bytes], *, where: str = "", device: str = "auto", threads: int = 0
) -> Graph:
    """Of the package, of the file ``where``, or linked by it; by its hash."""
    linked = sha256 not in FILES and sha256 not in graphs
    if linked:
        source: bytes | Path = linked_graph(sha256, Path(where))
    else:
        source = FOLDER / FILES[sha256] if sha256 in FILES else graphs[sha256]
    what = f"the graph {sha256[:16]} of {where}" if isinstance(source, bytes) else f"the graph {source.name}"
    return Graph(source, what, sha256=sha256, device=device, threads=threads, linked=linked)


def _scaled(images: Pixels, preprocess: Preprocess) -> Pixels:
    if images.shape[1] == preprocess.size:
        return images
    whole = Preprocess(preprocess.size, interpolation=preprocess.interpolation)
    return np.stack([fit(each, whole) for each in images])

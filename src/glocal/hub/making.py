"""Make the file of an encoder from an ONNX graph: of a hub repository, a folder laid out like one, or alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from glocal.common.errors import DataError
from glocal.common.hub import PREFIX, Repository
from glocal.hub.about import READERS, About, about_folder
from glocal.hub.graph_files import graph_among, load_graph
from glocal.hub.measuring import labels_that_differ, sketches
from glocal.hub.precision import smaller_graph
from glocal.hub.wrapping import wrap
from glocal.recognizer.encoders.encoder import encoder_of
from glocal.recognizer.encoders.file import EncoderFile

ALONE = "onnx:"
ASKED = 3  # photos that a new encoder must answer: a graph may take the number that was tried alone
WEIGHTS = (".safetensors", ".safetensors.index.json")  # of a network without a graph; files of pickle are left there


class Place(NamedTuple):
    """A folder with a network."""

    folder: Path
    within: Path  # the folder that links in it may lead to
    graph: str | None  # in the folder, if there is one


def located(source: str, variant: str) -> Place | None:
    """The place that ``source`` names; of a repository with the files that are needed.  None for other sources."""
    if source.startswith(ALONE) or source.endswith(".onnx"):
        path = Path(source.removeprefix(ALONE))
        return Place(path.parent, path.parent, path.name)

    def choose(names: Sequence[str]) -> list[str]:
        graph = graph_among(names, variant)
        if graph is not None:
            return [name for name in names if name == graph or name.startswith(f"{graph}_data") or name in READERS]
        return [name for name in names if name in READERS or ("/" not in name and name.endswith(WEIGHTS))]

    if source.startswith(PREFIX):
        folder, within = Repository(source).fetch(choose)
    elif source and (folder := Path(source)).is_dir():
        within = folder
    else:
        return None
    names = (each.relative_to(folder).as_posix() for each in folder.rglob("*.onnx") if each.is_file())
    return Place(folder, within, graph_among(names, variant))


def from_place(place: Place, source: str, given: dict[str, Any]) -> EncoderFile:
    """Of its graph, whose input may say the size, and files beside it the rest; ``given`` is what the user sets."""
    assert place.graph is not None
    model = load_graph(place.folder / place.graph, place.within)
    return from_graph(model, source, _size(model) | about_folder(place.folder) | given)


def from_graph(model: onnx.ModelProto, source: str, given: dict[str, Any]) -> EncoderFile:
    """``given`` are fields of About."""
    about = About(**given)
    preprocess = about.preprocess()
    weights = hashlib.sha256(model.SerializeToString()).hexdigest()
    graph, outputs = wrap(model, preprocess, about, source)
    made = EncoderFile(
        name=about.name or Path(source.rpartition(":")[2].partition("@")[0]).stem,
        source=source,
        licence=about.licence or "",
        preprocess=preprocess,
        outputs=outputs,
        weights=weights,
        graph=graph,
    )
    try:
        encoder_of(made)(sketches(ASKED, preprocess.size))
    except DataError as error:
        raise DataError(f"{source} becomes no encoder: {error}", code="no-encoder-graph") from error
    return made


def smaller(made: EncoderFile, int8: Path | None = None) -> tuple[EncoderFile, int, int]:
    """In less precision; the pictures whose most similar class is another then, and all that were asked."""
    graph, precision, images = smaller_graph(made.graph, made.preprocess, int8)
    small = replace(made, graph=graph, precision=precision)
    return small, *labels_that_differ(encoder_of(made), encoder_of(small), images)


def _size(model: onnx.ModelProto) -> dict[str, Any]:
    """What the input says of the pixels it takes."""
    sides = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim] if model.graph.input else []
    sizes = {side for side in sides[1:] if side > 3}
    return {"size": sizes.pop()} if len(sizes) == 1 else {}

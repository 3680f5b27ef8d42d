"""Make the file of an encoder from an ONNX graph: of a hub repository, a folder laid out like one, or alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

from glocal.common.errors import DataError
from glocal.common.hub import PREFIX, Fetched, Repository
from glocal.hub.about import BESIDE, About, about_folder
from glocal.hub.graph_files import Loaded, files_of, graph_among, load_graph
from glocal.hub.measuring import FEWEST, QUERIES, SHOT, WAY, labels_that_differ, photos, sketches, too_few
from glocal.hub.precision import half_precision, int8_layers
from glocal.hub.wrapping import whiten, wrap
from glocal.recognizer.batches import Embedder
from glocal.recognizer.encoders.encoder import encoder_of
from glocal.recognizer.encoders.file import EncoderFile
from glocal.recognizer.encoders.whitening import fit_whitening
from glocal.recognizer.photos.sources import sources_of

ALONE = "onnx:"
ASKED = 3  # photos that a new encoder must answer: a graph may take the number that was tried alone
WEIGHTS = (".safetensors", ".safetensors.index.json")  # of a network without a graph; files of pickle are left there


class Smaller(NamedTuple):
    """An encoder of less precision than the one it was made from."""

    encoder: EncoderFile
    differ: int  # photos whose most similar class is another
    asked: int


def located(source: str, variant: str) -> Fetched | None:
    """The folder that ``source`` names; of a repository with the files that are needed.  None for other sources."""
    if not source.startswith(PREFIX):
        return Fetched(Path(source), Path(source)) if source and Path(source).is_dir() else None

    def choose(names: Sequence[str]) -> list[str]:
        graph = graph_among(names, variant)
        if graph is not None:
            return files_of(graph, names)
        return [each for each in names if each in BESIDE or ("/" not in each and each.endswith(WEIGHTS))]

    return Repository(source).fetch(choose)


def from_folder(place: Fetched, source: str, given: dict[str, Any], variant: str) -> EncoderFile | None:
    """``given`` are fields of About that the user sets.  None where the folder has no graph."""
    names = [each.relative_to(place.folder).as_posix() for each in place.folder.rglob("*.onnx") if each.is_file()]
    graph = graph_among(names, variant)
    if graph is None:
        return None
    loaded = load_graph(place.folder / graph, place.within)
    return from_graph(loaded, source, about_folder(place.folder) | given)


def from_file(source: str, given: dict[str, Any]) -> EncoderFile:
    """A graph alone; its input may say the size, and files beside it the rest."""
    path = Path(source.removeprefix(ALONE))
    if not path.is_file():
        raise DataError(f"there is no graph {path}; check the name", code="no-encoder-graph")
    loaded = load_graph(path, path.parent)
    return from_graph(loaded, source, _size(loaded.model) | about_folder(path.parent) | given)


def from_graph(loaded: Loaded, source: str, given: dict[str, Any]) -> EncoderFile:
    about = About(**given)
    preprocess = about.preprocess()
    graph, outputs = wrap(loaded.model, preprocess, about, source)
    made = EncoderFile(
        name=about.name or Path(source.rpartition(":")[2].partition("@")[0]).stem,
        source=source,
        licence=about.licence or "",
        preprocess=preprocess,
        outputs=outputs,
        weights=loaded.sha256,
        graph=graph,
    )
    try:
        encoder_of(made)(sketches(ASKED, preprocess.size))
    except DataError as error:
        raise DataError(f"{source} becomes no encoder: {error}", code="no-encoder-graph") from error
    return made


def whitened(made: EncoderFile, folder: Path) -> EncoderFile:
    """With a whitening by all photos below a folder; those of one folder count as one class."""
    embedder = Embedder(encoder_of(made))
    vectors, folders = [], []
    for batch in embedder.batches(sources_of(folder)):
        vectors.append(batch.features.vec)
        folders += [str(Path(each.name).parent) for each in batch.readable]
    if len(folders) < FEWEST:
        raise too_few(folder, len(folders))
    matrix = fit_whitening(np.concatenate(vectors), np.array(folders)).matrix
    return replace(made, graph=whiten(made.graph, matrix), whitened_by=len(folders))


def smaller(made: EncoderFile, *, int8: Path | None = None) -> Smaller:
    """Weights of half precision, or 8-bit layers scaled by the photos in a folder; what that changes is measured."""
    if int8 is None:
        images = sketches(WAY * SHOT + QUERIES, made.preprocess.size)
        small = replace(made, graph=half_precision(made.graph), precision="half")
    else:
        images = photos(int8, made.preprocess)
        small = replace(made, graph=int8_layers(made.graph, images), precision="int8")
    differ, asked = labels_that_differ(encoder_of(made), encoder_of(small), images)
    return Smaller(small, differ, asked)


def _size(model: onnx.ModelProto) -> dict[str, Any]:
    """What the input says of the pixels it takes."""
    sides = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim] if model.graph.input else []
    sizes = {side for side in sides[1:] if side > 3}
    return {"size": sizes.pop()} if len(sizes) == 1 else {}

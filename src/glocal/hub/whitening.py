"""Whitening: vectors in which the directions that vary within a class count less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from glocal.common.errors import DataError
from glocal.hub.measuring import FEWEST, too_few
from glocal.hub.wrapping import Steps
from glocal.recognizer.batches import Embedder
from glocal.recognizer.encoders.encoder import VEC, encoder_of
from glocal.recognizer.encoders.file import EncoderFile
from glocal.recognizer.features import Array, class_means
from glocal.recognizer.photos.sources import sources_of

SHRINK = 0.5  # of the way from the covariance to its mean variance


def whitened(made: EncoderFile, folder: Path) -> EncoderFile:
    """With a whitening by all photos below a folder; those of one folder count as one class."""
    vectors, folders = [], []
    for batch in Embedder(encoder_of(made)).batches(sources_of(folder)):
        vectors.append(batch.features.vec)
        folders += [str(Path(each.name).parent) for each in batch.readable]
    if len(folders) < FEWEST:
        raise too_few(folder, len(folders))
    matrix = fit_whitening(np.concatenate(vectors), np.array(folders))
    return replace(made, graph=_whiten(made.graph, matrix), whitened_by=len(folders))


def fit_whitening(vectors: Array, groups: Array) -> Array:
    """The matrix (D, D) that whitens vectors (B, D) by how those of one group (B,) differ.

    The covariance is drawn half of the way to its mean variance, so that fewer vectors than numbers are enough.
    The mean stays: without it convolutional networks catch fewer unknown photos.
    """
    vec, numbers = vectors.astype(np.float64), np.unique(groups, return_inverse=True)[1]
    off = vec - class_means(vec, numbers)[numbers]
    variance, directions = np.linalg.eigh(off.T @ off)
    if not variance.sum() > 0:
        raise DataError("a whitening needs photos that differ, two or more of a class; add photos", code="few-photos")
    drawn = (1 - SHRINK) * variance.clip(0) / variance.mean() + SHRINK
    matrix: Array = (directions * drawn**-0.5) @ directions.T
    return matrix.astype(np.float32)


def _whiten(graph: bytes, matrix: Array) -> bytes:
    """With the unit vector of unit vec @ matrix in place of vec, and unit cells."""
    model = onnx.load_from_string(graph)
    plain = {name: f"plain/{name}" for name in (each.name for each in model.graph.output)}
    for node in model.graph.node:
        for names in (node.output, node.input):
            names[:] = [plain.get(name, name) for name in names]
    steps = Steps("whitening")
    plain[VEC] = steps("MatMul", steps("LpNormalization", plain[VEC], axis=1), matrix)
    for name, source in plain.items():
        steps("LpNormalization", source, name=name, axis=1)
    model.graph.node.extend(steps.nodes)
    data: bytes = model.SerializeToString()
    return data

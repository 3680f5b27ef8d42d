"""ONNX graphs as a stranger may give them, and the file of a converted model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from glocal.common.errors import DataError, RecipeError
from glocal.recognizer.converted import EMBED, GRAPHS, RECORD, ConvertedModel
from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.photos.images import Preprocess


def graph(nodes: Iterable[NodeProto]) -> bytes:
    """x (B, 2) -> y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", None]) for name in "xy")
    made = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


ADD = graph([helper.make_node("Add", ["x", "x"], ["y"])])
MODEL = ConvertedModel("run", "gel", "E", ("E", "E_c"), Preprocess(32), dict.fromkeys(GRAPHS, ADD), min_way=2)


def test_a_graph_gives_arrays_by_name_and_ignores_inputs_it_does_not_have() -> None:
    [y] = Graph(ADD, "y.onnx")({"x": np.ones((3, 2), np.float32), "local": np.ones(1)}, ["y"])
    assert y.tolist() == [[2, 2]] * 3


@pytest.mark.parametrize("data", [b"", b"no graph", ADD[: len(ADD) // 2]], ids=["empty", "other", "cut"])
def test_what_is_no_graph_is_a_damaged_file_at_the_first_answer(data: bytes) -> None:
    made = Graph(data, "m.onnx")
    with pytest.raises(DataError, match=r"m\.onnx cannot be used by onnxruntime") as error:
        made({"x": np.ones((1, 2), np.float32)}, ["y"])
    assert error.value.code == "damaged-file"


def test_a_graph_that_fails_or_answers_in_another_shape_is_a_damaged_file() -> None:
    fails = Graph(graph([helper.make_node("MatMul", ["x", "x"], ["y"])]), "m.onnx")
    with pytest.raises(DataError) as error:
        fails({"x": np.ones((3, 2), np.float32)}, ["y"])
    assert error.value.code == "damaged-file"
    with pytest.raises(DataError, match=r"output y is float32 \(3,\), not floating point \(any, 2\)"):
        fails.check(np.ones(3, np.float32), "y", None, 2)


def test_devices_are_named() -> None:
    with pytest.raises(RecipeError, match="device must be one of auto, cpu, cuda, got 'tpu'"):
        Graph(ADD, "m.onnx", device="tpu")


def test_a_converted_model_comes_back_from_its_file(tmp_path: Path) -> None:
    MODEL.write(tmp_path / "gel.model")
    again = ConvertedModel.read(tmp_path / "gel.model")
    assert again == MODEL
    assert again.sha256 == MODEL.sha256
    assert replace(MODEL, graphs={**MODEL.graphs, EMBED: b"other"}).sha256 != MODEL.sha256
    with pytest.raises(DataError, match="is there already"):
        MODEL.write(tmp_path / "gel.model", new=True)


def test_a_damaged_model_is_refused_wherever_it_was_hit(tmp_path: Path) -> None:
    path = tmp_path / "gel.model"
    MODEL.write(path)
    whole = path.read_bytes()
    for at in (whole.index(b'"method"'), whole.index(ADD) + 8, whole.index(RECORD.encode()) + 2, len(whole) - 30):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DataError, match=r"gel\.model is (damaged|no converted model)"):
            ConvertedModel.read(path)
    path.write_bytes(b"PK")
    with pytest.raises(DataError, match="is no converted model; `glocal convert RUN"):
        ConvertedModel.read(path)

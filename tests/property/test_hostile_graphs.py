"""Graphs that a stranger made: weights outside of the graph, and outputs of any shape and type."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto, helper

from glocal.common.errors import DataError, GlocalError
from glocal.recognizer import Recognizer
from glocal.recognizer.converted import EMBED, ENROLL, GRAPHS, SCORE, ConvertedModel
from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.photos.images import Preprocess
from refusal import refused

FLOAT = TensorProto.FLOAT
IN_MEMORY = "*/_ORT_MEM_ADDR_/*"  # by which onnxruntime itself means an address
X, Y, O = (helper.make_tensor_value_info(name, FLOAT, None) for name in "xyo")
ADD = helper.make_node("Add", ["x", "w"], ["y"])
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
many = pytest.mark.parametrize("cases", [50, pytest.param(500, marks=pytest.mark.long)])


def outside(place: str, offset: int = 0) -> TensorProto:
    weight = TensorProto(name="w", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": place, "offset": str(offset), "length": "8"}.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    return weight


def model(*nodes: NodeProto) -> ModelProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [X], [Y]), opset_imports=opsets, ir_version=9)


def holding(weight: TensorProto, place: str) -> bytes:
    made = model(ADD)
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [0, 1])
    sparse = SparseTensorProto(dims=[2], values=weight, indices=indices)
    constant = helper.make_node("Constant", [], ["w"], value=weight)
    if place == "initializer":
        made.graph.initializer.append(weight)
    elif place == "sparse initializer":
        made.graph.sparse_initializer.append(sparse)
    elif place == "constant":
        made = model(constant, ADD)
    elif place == "sparse constant":
        made = model(helper.make_node("Constant", [], ["w"], sparse_value=sparse), ADD)
    elif place == "branch":
        true = helper.make_node("Constant", [], ["t"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True]))
        branch = helper.make_graph([helper.make_node("Identity", ["w"], ["o"])], "b", [], [O], [weight])
        made = model(true, helper.make_node("If", ["t"], ["w"], then_branch=branch, else_branch=branch), ADD)
    else:
        made = model(helper.make_node("F", ["x"], ["y"], domain="own"))
        opsets = [helper.make_opsetid("", 17)]
        made.functions.append(helper.make_function("own", "F", ["x"], ["y"], [constant, ADD], opsets))
    return made.SerializeToString()


PLACES = ("initializer", "sparse initializer", "constant", "sparse constant", "branch", "function")


@many
def test_weights_outside_of_a_graph_are_refused_wherever_they_hide(
    cases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases of onnxruntime read some of them, in files or at an address in memory, and 1.31 none."""
    monkeypatch.chdir(tmp_path)
    numbers = np.array([7, 9], np.float32)
    numbers.tofile("secret")
    locations = st.sampled_from(["secret", "./secret", str(tmp_path / "secret"), IN_MEMORY, ""]) | st.text(max_size=20)

    @settings(max_examples=cases)
    @given(st.sampled_from(PLACES), locations, st.sampled_from([0, 4, numbers.ctypes.data]))
    def holds(place: str, location: str, offset: int) -> None:
        graph = Graph(holding(outside(location, offset), place), "m.onnx")
        with pytest.raises(DataError, match=r"its tensor 'w' is not inside of the graph") as error:
            graph({"x": np.zeros((1, 2), np.float32)}, ["y"])
        assert error.value.code == "damaged-file"

    holds()


@pytest.mark.parametrize("place", PLACES)
def test_weights_inside_of_a_graph_are_taken(place: str) -> None:
    weight = helper.make_tensor("w", FLOAT, [2], [7, 9])
    [y] = Graph(holding(weight, place), "m.onnx")({"x": np.zeros((1, 2), np.float32)}, ["y"])
    assert y.tolist() == [[7, 9]]


def test_the_format_of_onnxruntime_is_not_taken(tmp_path: Path) -> None:
    """It can name other files too."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    inside = holding(helper.make_tensor("w", FLOAT, [2], [7, 9]), "initializer")
    onnxruntime.InferenceSession(inside, options, providers=["CPUExecutionProvider"])
    with refused("damaged-file", "m.onnx"):
        Graph((tmp_path / "m.ort").read_bytes(), "m.onnx")({"x": np.zeros((1, 2), np.float32)}, ["y"])


def test_a_graph_that_does_not_end_is_ended() -> None:
    kinds = {"turn": (TensorProto.INT64, []), "go": (TensorProto.BOOL, []), "last": (FLOAT, [1, 2])}
    begin = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    end = [helper.make_tensor_value_info(f"{name} after", *kinds[name]) for name in ("go", "last")]
    body = [
        helper.make_node("Identity", ["go"], ["go after"]),
        helper.make_node("Add", ["last", "last"], ["last after"]),
    ]
    loop = helper.make_node("Loop", ["", "", "x"], ["y"], body=helper.make_graph(body, "b", begin, end))
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    made = model(helper.make_node("Constant", [], ["true"], value=true), loop)
    made.graph.node[1].input[1] = "true"
    began = time.monotonic()
    with refused("slow-encoder", "too long"):
        Graph(made.SerializeToString(), "m.onnx")({"x": np.zeros((1, 2), np.float32)}, ["y"], end=began + 0.5)
    assert time.monotonic() - began < 20


Output = tuple[list[str], int | None, float]  # sides, type (None: a sequence of arrays) and value
IMAGES = helper.make_tensor_value_info("images", TensorProto.UINT8, [None] * 4)
LABEL, VEC, STATE = (helper.make_tensor_value_info(name, FLOAT, None) for name in ("label", "vec", "state_0"))
INPUTS = {EMBED: [IMAGES], ENROLL: [LABEL, VEC], SCORE: [STATE, VEC]}
OUTPUTS = {  # as they should be; a side is a number or the axis of an input
    EMBED: {"vec": ["images 0", "4"]},
    ENROLL: {"state_0": ["label 1", "4"]},
    SCORE: {"logits": ["vec 0", "state_0 0"], "E": ["vec 0"]},
}


def nodes_of(name: str, sides: list[str], kind: int | None, value: float) -> Iterator[NodeProto]:
    def constant(name: str, *numbers: int) -> NodeProto:
        tensor = helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers)
        return helper.make_node("Constant", [], [name], value=tensor)

    for i, side in enumerate(sides):
        source, _, axis = side.rpartition(" ")
        if source:
            yield helper.make_node("Shape", [source], [f"{name}{i}"], start=int(axis), end=int(axis) + 1)
        else:
            yield constant(f"{name}{i}", int(side))
    yield constant(f"{name}none")
    yield helper.make_node("Concat", [f"{name}none", *(f"{name}{i}" for i in range(len(sides)))], [f"{name}s"], axis=0)
    filled = helper.make_tensor("value", FLOAT, [1], [value])
    yield helper.make_node("ConstantOfShape", [f"{name}s"], [f"{name}f"], value=filled)
    last, settings = ("SequenceConstruct", {}) if kind is None else ("Cast", {"to": kind})
    yield helper.make_node(last, [f"{name}f"], [name], **settings)


def graph_of(inputs: list[ValueInfoProto], outputs: Mapping[str, Output]) -> bytes:
    infos = [
        helper.make_tensor_sequence_value_info(name, FLOAT, None)
        if kind is None
        else helper.make_tensor_value_info(name, kind, None)
        for name, (_, kind, _) in outputs.items()
    ]
    nodes = [node for name, each in outputs.items() for node in nodes_of(name, *each)]
    made = helper.make_graph(nodes, "g", inputs, infos)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def made_up(graphs: Mapping[str, bytes], *names: str) -> ConvertedModel:
    return ConvertedModel("made up", "gel", "E", ("E", *names), Preprocess(8), graphs)


TYPES = st.sampled_from([TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.STRING, None])


@st.composite
def models(draw: st.DrawFn) -> ConvertedModel:
    """Each output is right in most models, so that the others are met at every step."""

    def either(right: Any, others: st.SearchStrategy[Any]) -> Any:
        return draw(others) if draw(st.integers(0, 9)) == 0 else right

    graphs = {}
    for file, outputs in OUTPUTS.items():
        if file == EMBED and draw(st.booleans()):
            outputs = outputs | {"local": ["images 0", "3", "2", "2"]}
        axes = [f"{each.name} 0" for each in INPUTS[file]]
        odd = st.lists(st.sampled_from([*axes, "0", "1", "2"]), max_size=4)
        graphs[file] = graph_of(
            INPUTS[file],
            {
                either(name, st.just("other")): (
                    either(sides, odd),
                    either(FLOAT, TYPES),
                    either(0.5, st.sampled_from([float("nan"), float("inf"), 1e38])),
                )
                for name, sides in outputs.items()
            },
        )
    return made_up(graphs, *either([], st.just(["E_c"])))


@many
def test_outputs_of_any_shape_and_type_are_an_answer_or_a_sentence(cases: int, tmp_path: Path) -> None:
    @settings(max_examples=cases)
    @given(models(), st.sampled_from([1, 3, 35]), st.sampled_from([None, "ridge", "prototypes"]))
    def holds(made: ConvertedModel, shots: int, head: str | None) -> None:
        photos = {"a": list(PIXELS[:shots]), "b": list(PIXELS[-2:])}
        try:
            if head is None:
                who = Recognizer.enroll(photos, model=made)
            else:
                made.write(tmp_path / "m.model")
                who = Recognizer.enroll(photos, encoder=tmp_path / "m.model", head=head)
            answers = who.predict(list(PIXELS))
            who.save(tmp_path / "a.glocal")
            assert Recognizer.load(tmp_path / "a.glocal").predict(list(PIXELS)) == answers
        except GlocalError as refusal:
            code = refusal.code
        else:
            code = "damaged-file"
            assert np.isfinite([each.open_score for each in answers]).all()
        assert code in ("damaged-file", "not-finite")

    holds()


@pytest.mark.parametrize("place", [*GRAPHS, "encoder"])
def test_every_graph_of_a_model_is_looked_at(place: str, tmp_path: Path) -> None:
    graphs = {
        file: graph_of(INPUTS[file], {name: (sides, FLOAT, 0.5) for name, sides in outputs.items()})
        for file, outputs in OUTPUTS.items()
    }
    photos = {"a": list(PIXELS[:3]), "b": list(PIXELS[-3:])}
    path = tmp_path / "m.model"
    option = {"encoder": path} if place == "encoder" else {"model": path}
    made_up(graphs).write(path)
    assert len(Recognizer.enroll(photos, **option).predict(photos["a"])) == 3
    graphs[EMBED if place == "encoder" else place] = holding(outside("secret"), "initializer")
    made_up(graphs).write(path)
    with refused("damaged-file", "its tensor 'w' is not inside of the graph"):
        Recognizer.enroll(photos, **option).predict(photos["a"])

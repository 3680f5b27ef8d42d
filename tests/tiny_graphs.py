"""Tiny ONNX graphs as other programs write them, and folders laid out as hub repositories with graphs are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE, PATCH, WIDE = 16, 4, 24  # pixels of a photo and of a patch, numbers of a token
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.5]
PREPARATION = {
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_center_crop": True,
    "image_mean": MEAN,
    "image_std": STD,
    "resample": 3,
    "rescale_factor": 1 / 255,
    "size": {"shortest_edge": 20},
}
CARD = "---\nlibrary_name: transformers.js\nlicense: apache-2.0\n---\n# A network\n"


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "kernel": rng.normal(size=(WIDE, 3, PATCH, PATCH)).astype(np.float32),
        "leading": rng.normal(size=(1, 3, WIDE)).astype(np.float32),  # the class token and two registers
    }


def transformer(
    *, half: bool = False, outputs: tuple[str, ...] = ("last_hidden_state", "pooler_output")
) -> onnx.ModelProto:
    """pixel_values (B, 3, 16, 16) -> last_hidden_state (B, 3 + 16, 24), and their mean as pooler_output (B, 24)."""
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    numbers = np.float16 if half else np.float32
    constants = {
        **{name: each.astype(numbers) for name, each in weights().items()},
        "rows": np.array([0, WIDE, -1]),
        "three": np.array([3]),
        "ones": np.array([1, 1]),
    }
    nodes = [
        helper.make_node("Conv", ["pixel_values", "kernel"], ["map"], strides=[PATCH, PATCH]),
        helper.make_node("Reshape", ["map", "rows"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("Shape", ["patches"], ["photos"], start=0, end=1),
        helper.make_node("Concat", ["photos", "ones"], ["repeats"], axis=0),
        helper.make_node("Tile", ["leading", "repeats"], ["first"]),
        helper.make_node("Concat", ["first", "patches"], ["last_hidden_state"], axis=1),
        helper.make_node("ReduceMean", ["last_hidden_state"], ["pooler_output"], axes=[1], keepdims=0),
        helper.make_node("Identity", ["pooler_output"], ["logits"]),
    ]
    shapes = {"last_hidden_state": ["B", 19, WIDE], "pooler_output": ["B", WIDE], "logits": ["B", WIDE]}
    graph = helper.make_graph(
        nodes,
        "elsewhere",
        [helper.make_tensor_value_info("pixel_values", kind, ["B", 3, "H", "W"])],
        [helper.make_tensor_value_info(name, kind, shapes[name]) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (B, 19, 24) of that network, in numpy."""
    pixels = ((images / 255 - MEAN) / STD).astype(np.float32)
    side = SIDE // PATCH
    patches = pixels.reshape(-1, side, PATCH, side, PATCH, 3).transpose(0, 1, 3, 5, 2, 4).reshape(len(images), -1, 48)
    tokens = patches @ weights()["kernel"].reshape(WIDE, -1).T
    every = np.concatenate([weights()["leading"].repeat(len(images), axis=0), tokens], axis=1)
    return every, every.mean(axis=1)


def repository(folder: Path, *, config: dict[str, object] | None = None) -> Path:
    """With the graph in single precision, its weights beside it, and in half precision."""
    (folder / "onnx").mkdir(parents=True)
    onnx.save(
        transformer(),
        folder / "onnx" / "model.onnx",
        save_as_external_data=True,
        location="model.onnx_data",
        size_threshold=0,
    )
    onnx.save(transformer(half=True), folder / "onnx" / "model_fp16.onnx")
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARATION))
    (folder / "config.json").write_text(json.dumps({"num_register_tokens": 2} if config is None else config))
    (folder / "README.md").write_text(CARD)
    return folder

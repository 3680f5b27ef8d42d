"""Encoders from graphs that other programs made: what they answer, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from glocal.common.stored_zip import write_stored
from glocal.hub.about import read_about
from glocal.hub.making import from_place, located, smaller
from glocal.hub.measuring import sketches
from glocal.hub.whitening import fit_whitening, whitened
from glocal.recognizer import Recognizer
from glocal.recognizer.batches import Embedder
from glocal.recognizer.encoders.encoder import encoder_of
from glocal.recognizer.encoders.file import EncoderFile
from glocal.recognizer.features import unit
from photos import some, write_classes
from refusal import refused
from tiny_graphs import CARD, MEAN, PREPARATION, SIDE, STD, WIDE, expected, repository, transformer

ABOUT = {"size": SIDE, "mean": tuple(MEAN), "std": tuple(STD)}


def made(source: str | Path, variant: str = "model", given: dict[str, object] | None = None) -> EncoderFile:
    place = located(str(source), variant)
    assert place is not None
    return from_place(place, str(source), given or {})


@pytest.fixture(scope="module")
def place(home: Path) -> Path:
    return repository(home / "net")


def cells(tokens: np.ndarray) -> np.ndarray:
    """(B, 16, C) -> (B, C, 4, 4)."""
    return unit(tokens.transpose(0, 2, 1).reshape(len(tokens), WIDE, 4, 4), axis=1)


def test_a_repository_with_graphs(place: Path, tmp_path: Path) -> None:
    encoder = made(place)
    images = sketches(3, SIDE)
    tokens, pooled = expected(images)
    features = encoder_of(encoder)(images)
    np.testing.assert_allclose(features.vec, unit(pooled), atol=1e-5)
    np.testing.assert_allclose(features.local[0], cells(tokens[:, 3:]), atol=1e-5)
    assert (encoder.name, encoder.licence) == ("net", "apache-2.0")
    assert encoder.outputs == {"vec": "pooler_output", "local": "last_hidden_state"}
    assert (encoder.preprocess.size, encoder.preprocess.resize) == (SIDE, 20)
    encoder.write(tmp_path / "net.encoder")
    assert EncoderFile.read(tmp_path / "net.encoder") == encoder


def test_of_several_graphs_the_one_that_is_named(place: Path) -> None:
    images = sketches(3, SIDE)
    features = encoder_of(made(place, "fp16"))(images)
    _, pooled = expected(images)
    assert features.vec.dtype == np.float32
    np.testing.assert_allclose(features.vec, unit(pooled), atol=1e-2)
    assert made(place, "onnx/model_fp16.onnx").sha256 == made(place, "fp16").sha256
    with refused("no-graph", "'q4'", "onnx/model.onnx"):
        made(place, "q4")


@pytest.mark.parametrize(
    ("outputs", "config", "vec"),
    [
        (("last_hidden_state",), {"num_register_tokens": 2}, "first token of last_hidden_state"),
        (("last_hidden_state", "pooler_output"), {"num_register_tokens": 2, "model_type": "vit"}, "first token of "),
        (("pooler_output", "logits"), {}, "pooler_output"),
    ],
)
def test_which_output_is_the_vector(
    outputs: tuple[str, ...], config: dict[str, object], vec: str, tmp_path: Path
) -> None:
    folder = repository(tmp_path / "net", config=config)
    onnx.save(transformer(outputs=outputs), folder / "onnx" / "model.onnx")
    encoder = made(folder)
    images = sketches(3, SIDE)
    tokens, pooled = expected(images)
    assert encoder.outputs["vec"].startswith(vec)
    wanted = tokens[:, 0] if vec.startswith("first") else pooled
    np.testing.assert_allclose(encoder_of(encoder)(images).vec, unit(wanted), atol=1e-5)


def test_outputs_may_have_the_names_of_ours(tmp_path: Path) -> None:
    model = transformer()
    model.graph.node.extend(
        onnx.helper.make_node("Identity", [each.name], [name])
        for each, name in zip(model.graph.output, ("local", "vec"), strict=True)
    )
    for each, name in zip(model.graph.output, ("local", "vec"), strict=True):
        each.name = name
    onnx.save(model, tmp_path / "net.onnx")
    encoder = made(f"onnx:{tmp_path}/net.onnx", given=ABOUT | {"leading": 3})
    images = sketches(3, SIDE)
    tokens, pooled = expected(images)
    features = encoder_of(encoder)(images)
    np.testing.assert_allclose(features.vec, unit(pooled), atol=1e-5)
    np.testing.assert_allclose(features.local[0], cells(tokens[:, 3:]), atol=1e-5)
    assert encoder.outputs == {"vec": "vec", "local": "local"}


def test_a_graph_alone_and_what_a_user_says(tmp_path: Path) -> None:
    path = tmp_path / "alone.onnx"
    onnx.save(transformer(), path)
    with refused("no-preparation", "size", "mean", "--about"):
        made(f"onnx:{path}", given={})
    with refused("no-output", "19 tokens", "leading"):
        made(f"onnx:{path}", given=ABOUT)
    (tmp_path / "about.toml").write_text(
        f"size = {SIDE}\nmean = {MEAN}\nstd = {STD}\nleading = 3\nname = 'mine'\nlicence = 'MIT'\n"
    )
    encoder = made(f"onnx:{path}", given=read_about(tmp_path / "about.toml"))
    assert (encoder.name, encoder.licence) == ("mine", "MIT")
    images = sketches(2, SIDE)
    tokens, _ = expected(images)
    np.testing.assert_allclose(encoder_of(encoder)(images).local[0], cells(tokens[:, 3:]), atol=1e-5)
    (tmp_path / "odd.toml").write_text("sizes = 3")
    with refused("bad-about", "'sizes'"):
        read_about(tmp_path / "odd.toml")


@pytest.mark.parametrize(
    ("changed", "size", "resize", "mean", "interpolation"),
    [
        ({}, 16, 20, 0.5, "bicubic"),
        ({"size": 16, "crop_size": None, "do_center_crop": None, "resample": 2}, 16, None, 0.5, "bilinear"),
        ({"size": {"shortest_edge": 14}, "crop_size": None, "crop_pct": 0.875}, 14, 16, 0.5, "bicubic"),
        ({"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]}, 16, 20, 0.5, "bicubic"),
        ({"do_normalize": False}, 16, 20, 0.0, "bicubic"),
        ({"crop_pct": 1e-308}, 16, 20, 0.5, "bicubic"),
    ],
)
def test_how_repositories_say_what_photos_they_take(
    changed: dict[str, object], size: int, resize: int | None, mean: float, interpolation: str, tmp_path: Path
) -> None:
    from glocal.hub.about import About, about_folder

    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PREPARATION | changed))
    preprocess = About(**about_folder(tmp_path)).preprocess()
    assert (preprocess.size, preprocess.resize, preprocess.interpolation) == (size, resize, interpolation)
    assert preprocess.mean[0] == pytest.approx(mean)


def test_a_name_of_a_hub_is_no_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    assert located("net", "model") == (Path("net"), Path("net"), "onnx/model.onnx")
    assert located("", "model") is None
    for name in ("hf:net", "hf:"):
        with refused("no-repository", repr(name)):
            located(name, "model")


def test_a_size_that_is_none(tmp_path: Path) -> None:
    from glocal.hub.about import About, about_folder

    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": {"height": [1], "width": [1]}}))
    with refused("no-preparation", "size"):
        About(**about_folder(tmp_path)).preprocess()


def test_the_licence_is_that_of_the_card(place: Path, tmp_path: Path) -> None:
    from glocal.hub.about import about_folder

    for card, licence in (
        (CARD, "apache-2.0"),
        ("---\nlicense: other\nlicense_name: dinov3-license\n---\n", "dinov3-license"),
        ("license: mit", None),
        ("---" + 500_000 * "\n", None),  # in a moment
        ("---\nlicense: mit\n---\n\udcff", "mit"),
    ):
        (tmp_path / "README.md").write_text(card, errors="surrogateescape")
        assert about_folder(tmp_path)["licence"] == licence


def test_smaller_graphs_and_the_labels_that_differ(place: Path, tmp_path: Path) -> None:
    whole = made(place)
    half, int8 = smaller(whole), smaller(whole, write_classes(tmp_path / "photos", ["zero", "one"], 0, 20))
    assert half[1:] == (0, 20)
    assert int8[2] == 25
    assert (half[0].precision, int8[0].precision) == ("half", "int8")
    images = sketches(4, SIDE)
    exact = encoder_of(whole)(images).vec
    for (small, *_), least in ((half, 0.9999), (int8, 0.98)):
        cosine = (encoder_of(small)(images).vec * exact).sum(axis=1)
        assert least < cosine.min() < 1 - 1e-9, small.precision
    with refused("too-few-photos", "32"):
        smaller(whole, tmp_path / "photos" / "zero")


def test_a_recognizer_holds_the_graph(place: Path, tmp_path: Path) -> None:
    made(place).write(tmp_path / "net.encoder")
    shown = {"one": some("one", 0, 4), "zero": some("zero", 0, 4)}
    taught = Recognizer.enroll(shown, encoder=tmp_path / "net.encoder")
    taught.save(tmp_path / "a.glocal")
    assert Recognizer.enroll(shown, model=tmp_path / "net.encoder").contents.identity == taught.contents.identity
    (tmp_path / "net.encoder").unlink()
    again = Recognizer.load(tmp_path / "a.glocal")
    assert again.contents.model.name == "ridge on net"
    assert all(each.same for each in again.verify())
    assert [answer.nearest for answer in again.predict(some("zero", 0, 2))] == ["zero", "zero"]


def test_what_is_no_encoder(place: Path, tmp_path: Path) -> None:
    text = transformer()
    text.graph.input.append(onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["B", "T"]))
    only = transformer(outputs=("logits",))
    single = transformer()
    [rows] = [each for each in single.graph.initializer if each.name == "rows"]
    rows.CopyFrom(onnx.numpy_helper.from_array(np.array([1, WIDE, -1]), "rows"))
    for name, model, code, words in (
        ("text", text, "no-encoder-graph", ("input_ids",)),
        ("only", only, "no-output", ("logits",)),
        ("single", single, "no-output", ()),
    ):
        onnx.save(model, tmp_path / f"{name}.onnx")
        with refused(code, *words):
            made(f"onnx:{tmp_path / name}.onnx", given=ABOUT)
    with refused("no-encoder-graph", "(2, 24)"):  # it answers two photos, and two alone
        two = transformer(outputs=("pooler_output",))
        two.graph.node[-1].CopyFrom(onnx.helper.make_node("Slice", ["every", "none", "two"], ["pooler_output"]))
        two.graph.node[-2].output[0] = "every"
        numbers = {"none": np.array([0]), "two": np.array([2])}
        two.graph.initializer.extend(onnx.numpy_helper.from_array(each, name) for name, each in numbers.items())
        onnx.save(two, tmp_path / "two.onnx")
        made(f"onnx:{tmp_path}/two.onnx", given=ABOUT)
    onnx.save(transformer(outputs=("last_hidden_state",)), tmp_path / "tokens.onnx")
    with refused("no-output", "leading"):
        made(f"onnx:{tmp_path}/tokens.onnx", given=ABOUT | {"leading": -6})  # 25 are a square
    (tmp_path / "no.onnx").write_bytes(b"no graph")
    with refused("no-encoder-graph"):
        made(f"onnx:{tmp_path}/no.onnx", given=ABOUT)


@pytest.mark.parametrize("location", ["../weights", "/etc/hostname", "link", "pipe"])
def test_weights_are_read_from_beside_the_graph_alone(location: str, tmp_path: Path) -> None:
    folder = repository(tmp_path / "net")
    path = folder / "onnx" / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    (tmp_path / "net" / "weights").write_bytes((folder / "onnx" / "model.onnx_data").read_bytes())
    (tmp_path / "outside").write_bytes((folder / "onnx" / "model.onnx_data").read_bytes())
    (folder / "onnx" / "link").symlink_to(tmp_path / "outside")
    for name in ("pipe", "model_pipe.onnx"):
        os.mkfifo(folder / "onnx" / name)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    path.write_bytes(model.SerializeToString())
    with refused("no-encoder-graph", location):
        made(folder)
    with refused("no-graph", "'pipe'"):
        made(folder, "pipe")


def test_a_damaged_encoder_file_is_refused(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.encoder"
    made(place).write(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"apache-2.0", b"apache-2"))
    with refused("damaged-file"):
        EncoderFile.read(path)
    path.write_bytes(whole[:100])
    with refused("no-encoder", "net.encoder", "glocal encoder"):
        Recognizer.enroll({"one": some("one", 0, 2)}, encoder=path)


def test_a_linked_encoder_is_sought_beside_the_file_and_in_the_cache(
    place: Path, tmp_path: Path, own_cache: Path
) -> None:
    file, encoder = tmp_path / "a.glocal", tmp_path / "net.encoder"
    made(place).write(encoder)
    shown = {"one": some("one", 0, 3), "zero": some("zero", 0, 3)}
    whole = Recognizer.enroll(shown, encoder=encoder)
    whole.save(tmp_path / "whole.glocal")
    Recognizer.enroll(shown, encoder=encoder, link_encoder=True).save(file)
    graph = len(made(place).graph)
    assert (tmp_path / "whole.glocal").stat().st_size - file.stat().st_size > graph
    asked = some("zero", 3, 6)
    expected = [each.open_score for each in whole.predict(asked)]
    for gone in (encoder, own_cache / "encoders"):  # beside it, then in the cache
        again = Recognizer.load(file)
        assert [each.open_score for each in again.predict(asked)] == expected
        again.save(file)
        assert file.stat().st_size < graph + 60_000
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    made(place, "fp16").write(encoder)  # the same network, other weights
    os.mkfifo(tmp_path / "a-pipe.encoder")
    write_stored(tmp_path / "a-damaged.encoder", {"encoder.json": b""})
    with refused("no-encoder", "a.glocal", made(place).sha256[:16]):
        Recognizer.load(file)
    with refused("not-linked", "fast"):
        Recognizer.enroll(shown, link_encoder=True)


def test_a_whitening_is_a_step_of_the_graph(place: Path, tmp_path: Path) -> None:
    photos = write_classes(tmp_path / "photos", ["zero", "one", "two"], 0, 12)
    plain = made(place)
    white = whitened(plain, photos)
    assert white.whitened_by == 36
    images = sketches(5, SIDE)
    vectors = [
        Embedder(encoder_of(plain)).embed(sorted((photos / word).iterdir())).vec for word in ("zero", "one", "two")
    ]
    whitening = fit_whitening(np.concatenate(vectors), np.repeat([0, 1, 2], 12))
    before, after = (encoder_of(each)(images) for each in (plain, white))
    np.testing.assert_allclose(after.vec, unit(before.vec @ whitening), atol=1e-4)
    np.testing.assert_allclose(after.local[0], before.local[0], atol=1e-6)
    assert not encoder_of(white).whitened, "the support adds its own"
    with refused("too-few-photos", "32"):
        whitened(plain, photos / "zero")

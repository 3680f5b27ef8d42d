"""Checkpoints: what goes in comes out, and what is not ours or not whole is refused by a sentence."""

from __future__ import annotations

import copy
import importlib
import json
import resource
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from glocal.common.errors import WeightsError
from glocal.research.backbones import build_backbone
from glocal.research.engine import checkpoint, records
from glocal.research.engine.checkpoint import (
    TrainedModel,
    load_model,
    load_strictly,
    read_checkpoint,
    save_model,
    write_checkpoint,
)
from glocal.research.engine.records import shipped_models
from glocal.research.methods import METHODS
from glocal.research.types import Episode, Preprocess
from refusal import refused
from tiny_models import tiny_model

SETTINGS = {"width": 4, "image_size": 16}


def small_model(**record: Any) -> TrainedModel:
    torch.manual_seed(0)
    backbone = build_backbone("conv4", SETTINGS)
    described = {"backbone": {"name": "conv4", "settings": SETTINGS}, "method": {"name": "gel", "settings": {}}}
    return TrainedModel(
        backbone, METHODS["gel"](backbone.channels), described | record, {"classifier": torch.arange(3.0)}
    )


def refuse(path: Path, code: str, *words: str) -> None:
    with refused(code, str(path), *words):
        load_model(path)


def test_weights_and_record_survive(tmp_path: Path) -> None:
    model = small_model(note="é", step=3)
    model.backbone.on("cpu")  # channels-last weights must come back with the same values
    save_model(tmp_path / "m.safetensors", model)
    again = load_model(tmp_path / "m.safetensors")
    assert again.tensors().keys() == model.tensors().keys()
    for name, value in model.tensors().items():
        assert torch.equal(again.tensors()[name], value), name
    assert (again.record["note"], again.record["step"]) == ("é", 3)
    assert again.backbone.fingerprint() == model.backbone.fingerprint()
    images = torch.randn(2, 3, 16, 16)
    # Not to the last bit: the weights lie in another memory layout, and some processors sum in another order there.
    torch.testing.assert_close(again.eval().backbone(images), model.eval().backbone(images))


def test_float16_is_half_the_size_and_close_or_refused(tmp_path: Path) -> None:
    model = small_model()
    save_model(tmp_path / "full.safetensors", model)
    save_model(tmp_path / "half.safetensors", model, half=True)
    full, half = (
        sum(tensor.numel() * tensor.element_size() for tensor in load_file(tmp_path / f"{name}.safetensors").values())
        for name in ("full", "half")
    )
    assert half < 0.55 * full
    narrow = load_model(tmp_path / "half.safetensors")
    for name, value in model.tensors().items():
        assert narrow.tensors()[name].dtype == value.dtype, "what was narrowed is widened, counters stay integers"
        torch.testing.assert_close(narrow.tensors()[name], value, rtol=1e-3, atol=1e-6)
    with pytest.raises(WeightsError, match=r"big has values beyond the range of float16"):
        write_checkpoint(tmp_path / "x", {"big": torch.tensor([7e4])}, {}, half=True)
    assert {path.name for path in tmp_path.iterdir()} == {"full.safetensors", "half.safetensors"}


def test_the_file_is_safetensors_the_same_bytes_each_time_and_holds_shared_tensors_apart(tmp_path: Path) -> None:
    model = small_model()
    for name in ("a", "b"):
        save_model(tmp_path / name, model)
    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    record = json.loads(header["__metadata__"]["glocal"])
    assert record["format"] == checkpoint.FORMAT
    assert record["method"]["name"] == "gel"
    base = torch.arange(12.0).view(3, 4)
    write_checkpoint(tmp_path / "x", {"a": base, "b": base.T, "c": base[0]}, {})
    tensors, _ = read_checkpoint(tmp_path / "x")
    assert torch.equal(tensors["a"], base)
    assert torch.equal(tensors["b"], base.T)
    assert torch.equal(tensors["c"], base[0])


DAMAGES = {
    "empty": lambda content: b"",
    "text": lambda content: b"%PDF-1.4 this is something else entirely, and long enough",
    "cut": lambda content: content[:-7],
    "header": lambda content: content[:40] + b"\xff" + content[41:],
    # One bit of a weight: safetensors alone would not notice.
    "flipped": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
}


def test_damaged_files_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_model(path, small_model())
    content = path.read_bytes()
    for damage in DAMAGES.values():
        path.write_bytes(damage(content))
        refuse(path, "damaged")
    torch.save({"a": torch.ones(2)}, path)
    refuse(path, "damaged")


def test_foreign_and_newer_files(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"a": torch.ones(2)}, path)
    refuse(path, "foreign")
    for odd in ("not json", "[]", "{}", '"text"', "7"):
        save_file({"a": torch.ones(2)}, path, metadata={"glocal": odd})
        refuse(path, "foreign")
    save_file(
        {"a": torch.ones(2)}, path, metadata={"glocal": json.dumps({"format": 99, "version": "9.0", "sha256": ""})}
    )
    refuse(path, "newer", "format 99")
    # A record too deep to read.
    deep = tmp_path / "deep.safetensors"
    deep.write_bytes(save({"x": torch.zeros(1)}, metadata={"glocal": "[" * 50_000}))
    with refused("foreign"):
        read_checkpoint(deep)


def test_a_model_that_this_version_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for code, described in (
        ("no-plugin", {"method": {"name": "tomorrow", "settings": {}}}),
        ("cannot-build", {"method": {"name": "gel", "settings": {"tomorrow": 1}}}),
        ("no-plugin", {"backbone": {"name": "tomorrow", "settings": {}}}),
        ("cannot-build", {"backbone": {"name": "conv4", "settings": {"tomorrow": 1}}}),
    ):
        save_model(path, small_model(**described))
        refuse(path, code, "tomorrow")
    write_checkpoint(path, {}, {})
    refuse(path, "cannot-build")


def test_loading_is_strict_and_names_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    model = small_model()
    tensors = model.tensors()
    lacking = {name: value for name, value in tensors.items() if name != "backbone.layer2.0.weight"}
    write_checkpoint(path, lacking, model.record)
    refuse(path, "does-not-fit", "layer2.0.weight")
    write_checkpoint(path, tensors | {"method.surplus": torch.ones(1)}, model.record)
    refuse(path, "does-not-fit", "surplus")
    write_checkpoint(path, tensors | {"backbone.layer1.0.bias": torch.ones(7)}, model.record)
    refuse(path, "does-not-fit", "layer1.0.bias")
    with pytest.raises(WeightsError) as caught:
        load_strictly(build_backbone("resnet12", {"width": 4}), {}, "nothing")
    assert len(str(caught.value)) < 600, "a sentence, not a listing of a hundred names"


HEADS = json.loads((Path(__file__).parents[1] / "reference/heads.json").read_text())


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
def test_shipped_models_say_what_they_said_when_they_were_made(every: int) -> None:
    """On random maps: two logits and two open scores, as they gave them before frozen-gel had a name of its own."""
    for name in list(shipped_models())[::every]:
        model = load_model(name).eval()
        assert all(torch.isfinite(t).all() for t in model.tensors().values() if t.is_floating_point()), name
        rng = torch.Generator().manual_seed(7)
        support, query = (0.3 * torch.randn(n, model.backbone.channels, 4, 4, generator=rng).relu() for n in (10, 12))
        label = torch.tensor([0, 1, 2, 3, 4, 0] + [-1] * 6)
        with torch.no_grad():
            logits, score = model.method(Episode(support, torch.arange(10) % 5, query, label))
        found = [logits[0, 0].item(), logits[3, 2].item(), score[0].item(), score[7].item()]
        assert found == pytest.approx(HEADS[name], rel=1e-4, abs=1e-4), name


def test_research_heads_are_found_when_their_package_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, beside those of this package; without it a sentence says how to get them."""
    monkeypatch.setattr(records, "MODELS", "stand_in_for_models")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list(shipped_models()) == [
        "cifar-fs-cpu/backbone", "embedded-gel", "embedded-protonet", "photos-better", "photos-fast",
        "photos-gel", "photos-protonet", "tiered-64-cpu/backbone",
    ]  # fmt: skip
    with refused("models-not-installed", "cifar-fs-cpu/mine", "pip install ./models"):
        load_model("cifar-fs-cpu/mine")
    package = tmp_path / "stand_in_for_models"
    save_model(package / "cifar-fs-cpu" / "mine.safetensors", small_model())
    (package / "__init__.py").write_text("")
    importlib.invalidate_caches()
    assert "cifar-fs-cpu/mine" in shipped_models()
    assert load_model("cifar-fs-cpu/mine").record["method"]["name"] == "gel"
    with refused("no-model", "cifar-fs-cpu/other"):
        load_model("cifar-fs-cpu/other")


def test_a_packaged_backbone_is_named_and_not_stored(tmp_path: Path) -> None:
    model = load_model("photos-protonet")
    assert model.backbone.preprocess.size == 224
    assert not any(name.startswith("backbone.") for name in model.tensors())
    other = copy.deepcopy(model.record) | {"backbone": model.record["backbone"] | {"packaged": "0" * 64}}
    write_checkpoint(tmp_path / "other.safetensors", {}, other)
    with refused("other-weights", "efficientnet-lite0"):
        load_model(tmp_path / "other.safetensors")


def test_a_head_on_a_shipped_backbone_stores_the_head_alone(tmp_path: Path) -> None:
    base = load_model("embedded-protonet")
    named = base.record["backbone"] | {"packaged": base.backbone.fingerprint(), "model": "embedded-protonet"}
    head = TrainedModel(base.backbone, base.method, base.record | {"backbone": named})
    save_model(tmp_path / "head.safetensors", head)
    assert not any(name.startswith("backbone.") for name in read_checkpoint(tmp_path / "head.safetensors")[0])
    again = load_model(tmp_path / "head.safetensors").backbone
    assert again.fingerprint() == base.backbone.fingerprint()
    with torch.no_grad():
        next(base.backbone.parameters()).add_(1)  # as fine-tuning does
    save_model(tmp_path / "tuned.safetensors", head)
    tuned = load_model(tmp_path / "tuned.safetensors")
    assert tuned.backbone.fingerprint() == base.backbone.fingerprint()
    assert not {"packaged", "model"} & tuned.record["backbone"].keys()  # shipped, it would be the backbone of heads
    write_checkpoint(tmp_path / "other.safetensors", {}, head.record | {"backbone": named | {"packaged": "0" * 64}})
    with refused("other-weights", "embedded-protonet"):
        load_model(tmp_path / "other.safetensors")


def test_preprocessing_belongs_to_the_weights(tmp_path: Path) -> None:
    model = load_model("embedded-protonet")
    own = Preprocess(32, resize=40, mean=(0.1, 0.2, 0.3), std=(1, 1, 1))
    save_model(
        tmp_path / "own.safetensors",
        TrainedModel(model.backbone, model.method, model.record | {"preprocess": own.to_json()}),
    )
    assert load_model(tmp_path / "own.safetensors").backbone.preprocess == own


def test_settings_of_a_giant_take_no_memory(tmp_path: Path) -> None:
    """Nine kilobytes that describe a model of gigabytes."""
    model = tiny_model()
    model.record["backbone"]["settings"] = {"width": 6000, "image_size": 16}
    path = tmp_path / "giant.safetensors"
    save_model(path, model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with refused("cannot-build"):
        load_model(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB

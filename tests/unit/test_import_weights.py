"""Published files become models that compute what the source computes."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from typer.testing import CliRunner

from glocal.cli.research.studies import import_
from glocal.common.errors import RecipeError
from glocal.research.engine.checkpoint import load_model, save_model
from glocal.research.engine.import_weights import import_weights
from glocal.research.types import Episode, Preprocess
from reference.published import WIDTHS, Feat, Gel, Pretrained, Tane, shaken, write
from refusal import refused

MEAN = (120.39586422 / 255, 115.59361427 / 255, 104.54012653 / 255)
STD = (70.68188272 / 255, 68.27635443 / 255, 72.54505529 / 255)


def images(n: int, size: int = 32) -> Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def stored(imported, path: Path):
    """What a later command gets: through the checkpoint on disk."""
    save_model(path, imported.model)
    return load_model(path).eval()


def task(maps: Tensor) -> Episode:
    return Episode(maps[:4], torch.tensor([0, 0, 1, 2]), maps[4:], torch.tensor([0, 1, 2, -1]))


def sq_distance(q: Tensor, p: Tensor) -> Tensor:
    return ((q[:, None] - p) ** 2).sum(dim=-1)


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize(("layout", "method"), [("feat", "feat"), ("snatcher", "snatcher-f")])
def test_feat_and_snatcher_compute_what_the_source_computes(tmp_path, prefix, layout, method):
    source = shaken(Feat(base_classes=64))
    file = write(tmp_path / "max_acc.pth", source, prefix=prefix)
    imported = import_weights(file, layout=layout, dataset="mini-imagenet")
    model = stored(imported, tmp_path / "m.safetensors")
    with torch.no_grad():
        maps = source.encoder(images(8))
        assert torch.equal(model.backbone(images(8)), maps)
        e = maps.mean(dim=(2, 3))
        raw = torch.stack([e[:2].mean(dim=0), e[2], e[3]])
        proto = source.slf_attn(raw)
        out = model.method(task(maps))
        logits = -sq_distance(e[4:], proto) / 64
        torch.testing.assert_close(out.logits, logits, rtol=1e-5, atol=1e-6)
        if layout == "snatcher":
            moved = []
            for q, c in zip(e[4:], logits.argmax(dim=1), strict=True):
                changed = raw.clone()
                changed[c] = q
                moved.append((source.slf_attn(changed) - proto).pow(2).sum() / 64)
            torch.testing.assert_close(out.open_score, torch.stack(moved), rtol=1e-4, atol=1e-7)
    assert model.record["method"]["name"] == method
    assert torch.equal(model.extra["base.weight"], source.fc.weight)
    assert torch.equal(model.extra["base.bias"], source.fc.bias)
    assert model.backbone.preprocess == Preprocess(84, 92, MEAN, STD)
    assert imported.report.counts == {"backbone": 96, "method": 7, "extra": 2, "ignored": 0}


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("ahead", [True, False])
def test_gel_computes_what_the_source_computes(tmp_path, prefix, ahead):
    """A run without --ahead_combine has the energy of the pixels alone, in its loss and as its open score."""
    source = shaken(Gel(ahead_combine=ahead))
    file = write(tmp_path / "gel.pth", source, prefix=prefix)
    imported = import_weights(file, dataset="tiered-imagenet", shot=5)
    assert imported.report.layout == "gel"
    assert imported.report.settings == {"variant": "ahead" if ahead else "pixel", "top_k": 5}
    assert any("--ahead_combine" in note for note in imported.report.notes) is not ahead
    assert list(imported.report.ignored) == ["EnergyLoss.awl.params"] * ahead
    assert imported.report.counts == {"backbone": 96, "method": 15, "extra": 0, "ignored": int(ahead)}
    model = stored(imported, tmp_path / "m.safetensors")
    assert model.backbone.preprocess == Preprocess(84, None, MEAN, STD)
    with torch.no_grad():
        maps = source.encoder(images(8, size=48))  # 3 x 3 maps
        assert torch.equal(model.backbone(images(8, size=48)), maps)
        fine = source.conv(maps)
        assert torch.equal(model.method.embed(maps).local, fine)
        e = maps.mean(dim=(2, 3))
        proto = source.slf_attn(torch.stack([e[:2].mean(dim=0), e[2], e[3]]))
        s_class = -sq_distance(e[4:], proto) / 64
        local = torch.stack([fine[:2].mean(dim=0), fine[2], fine[3]]).flatten(2)
        cosine = F.cosine_similarity(fine[4:].flatten(2)[:, None, :, :, None], local[None, :, :, None], dim=2)
        s_pixel = cosine.topk(5, dim=-1).values.sum(dim=(2, 3)) / 5
        out = model.method(task(maps))
        torch.testing.assert_close(out.logits, s_class, rtol=1e-5, atol=1e-6)
        expected = -s_pixel.logsumexp(1) - ahead * s_class.logsumexp(1)
        torch.testing.assert_close(out.open_score, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["max_auroc.pth", "CIFAR-FS-OpenNet-Res12-10w01s15q-DIS-Energy/run/max_acc.pth"])
def test_gel_without_pixels_is_recognised_by_where_its_program_puts_it(tmp_path, monkeypatch, name):
    source = shaken(Feat())
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    imported = import_weights(write(tmp_path / name, source), dataset="cifar-fs")
    assert (imported.report.layout, imported.report.method) == ("gel-maps", "gel")
    assert imported.report.settings == {"variant": "energy-maps"}
    with torch.no_grad():
        maps = source.encoder(images(8))
        class_maps = torch.stack([maps[:2].mean(dim=0), maps[2], maps[3]])
        logits = -(maps[4:, None] - class_maps).square().sum(dim=(2, 3, 4)) / 64 / 10
        out = stored(imported, tmp_path / "m.safetensors").method(task(maps))
        torch.testing.assert_close(out.open_score, -logits.logsumexp(1), rtol=1e-5, atol=1e-6)
    monkeypatch.chdir((tmp_path / name).parent)  # the path that is given may say less than where it lies
    assert import_weights(Path(Path(name).name), dataset="cifar-fs").report.layout == "gel-maps"
    elsewhere = import_weights(write(tmp_path / "mine.pth", source), dataset="cifar-fs").report
    assert elsewhere.layout == "feat"
    assert "gel-maps" in " ".join(elsewhere.notes), "the same names: the file alone does not tell"


@pytest.mark.parametrize(
    ("layout", "mlp", "prefix"),
    [("auto", False, ""), ("auto", True, "module."), ("att", False, "module."), ("att", True, "")],
)
def test_att_and_att_g_compute_what_the_source_computes(tmp_path, layout, mlp, prefix):
    source, base = shaken(Tane(meta=True, mlp=mlp)), layout == "auto"
    # Seen in real files: numpy numbers beside the weights.
    file = write(
        tmp_path / "max_auroc.pth", source, prefix=prefix, container="cls_params", epoch=3, acc_auroc=(np.float64(0.7),)
    )
    imported = import_weights(file, layout=layout, dataset="cifar-fs")
    model, report = stored(imported, tmp_path / "m.safetensors"), imported.report
    with torch.no_grad():
        maps = source.feature(images(8))
        assert torch.equal(model.backbone(images(8)), maps)
        e = maps.mean(dim=(2, 3))
        expected = source.logits(torch.stack([e[:2].mean(dim=0), e[2], e[3]]), e[4:], base=base)
        out = model.method(task(maps))
        torch.testing.assert_close(out.logits, expected[:, :-1], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(out.open_score, expected.softmax(dim=-1)[:, -1], rtol=1e-5, atol=1e-6)
    assert (report.layout, report.method, report.container) == (("att-g" if base else "att"),) * 2 + ("cls_params",)
    assert report.beside == ["epoch", "acc_auroc"]
    assert set(report.ignored) >= {"metric.temp", "cls_classifier.calibrator.map_sem.0.bias"}
    assert torch.equal(model.extra["base.weight"], source.cls_classifier.weight_base)
    assert model.backbone.preprocess == Preprocess(32, None, (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


def test_a_head_that_needs_word_vectors_gives_its_backbone(tmp_path):
    source = shaken(Tane(meta=True, words=True))
    model, report = import_weights(write(tmp_path / "seman.pth", source), dataset="cifar-fs")
    with torch.no_grad():
        maps = source.feature(images(8))
        e = maps.mean(dim=(2, 3))
        proto = torch.stack([e[:2].mean(dim=0), e[2], e[3]])
        logits = 10 * F.cosine_similarity(e[4:, None], proto, dim=-1)
        torch.testing.assert_close(model.method(task(maps)).logits, logits, rtol=1e-5, atol=1e-5)
    assert (report.layout, report.method) == ("tane", "protonet")
    assert report.counts == {"backbone": 96, "method": 0, "extra": 0, "ignored": 27}
    assert "SEMAN-G" in report.notes[0]


@pytest.mark.parametrize(("combined", "ignored"), [(False, []), (True, ["cls_classifier.temp"])])
def test_the_classifier_of_tane_pretraining_is_kept(tmp_path, combined, ignored):
    source = shaken(Tane(meta=False, combined=combined))
    model, report = import_weights(write(tmp_path / "last.pth", source, epoch=90), dataset="mini-imagenet")
    linear = source.cls_classifier.classifier if combined else source.cls_classifier
    assert torch.equal(model.extra["base.weight"], linear.weight)
    assert torch.equal(model.extra["base.bias"], linear.bias)
    assert list(report.ignored) == ignored
    assert model.backbone.preprocess == Preprocess(84, None, MEAN, STD)  # TANE reads stored 84 px as they are


def test_a_file_without_attention_is_a_pretrained_backbone(tmp_path):
    source = shaken(Pretrained())
    model, report = import_weights(write(tmp_path / "Res12-pre.pth", source), dataset="cifar-fs")
    assert (report.layout, report.method) == ("pretrained", "protonet")
    assert torch.equal(model.extra["base.weight"], source.fc.weight)
    assert model.backbone.preprocess == Preprocess(32, 40, MEAN, STD)
    with torch.no_grad():
        assert torch.equal(model.backbone(images(2)), source.encoder(images(2)))


def test_bare_and_state_dict_and_old_files_and_a_parallel_backbone(tmp_path):
    source = shaken(Feat())
    expected = import_weights(write(tmp_path / "a.pth", source), dataset="cifar-fs").model.tensors()
    state = source.state_dict()
    parallel = {name.replace("encoder.", "encoder.module."): value for name, value in state.items()}
    files: dict[str, Any] = {
        "bare": state,
        "resume": {"state_dict": state, "args": argparse.Namespace(lr=0.1, seen=np.float32(2)), "epoch": 4},
        "parallel": {"params": parallel},
    }
    for name, content in files.items():
        for zipped in (True, False):
            torch.save(content, tmp_path / name, _use_new_zipfile_serialization=zipped)
            found = import_weights(tmp_path / name, dataset="cifar-fs").model.tensors()
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_the_record_says_where_the_weights_came_from(tmp_path):
    file = write(tmp_path / "mine.pth", shaken(Feat()))
    before = torch.get_rng_state()
    imported = import_weights(file, dataset="cifar-fs")
    assert torch.equal(torch.get_rng_state(), before)
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    record = stored(imported, tmp_path / "m.safetensors").record
    assert record["recipe"] == {
        "stage": "import", "file": "mine.pth", "sha256": sha256, "layout": "feat", "dataset": "cifar-fs"
    }  # fmt: skip
    assert record["backbone"]["settings"]["width"] == list(WIDTHS)
    assert imported.report.added == ["backbone.layer3.drop.step", "backbone.layer4.drop.step"]
    entry = imported.report.tensors["encoder.layer2.0.downsample.0.weight"]
    assert entry == {"to": "backbone.layer2.downsample.0.weight", "shape": [6, 4, 1, 1]}


def test_the_dataset_is_told_by_351_base_classes_or_asked_for_and_settings_follow(tmp_path):
    tiered = import_weights(write(tmp_path / "t.pth", shaken(Feat(base_classes=351)))).report
    assert tiered.dataset == "tiered-imagenet"
    assert "351" in tiered.dataset_why
    with pytest.raises(RecipeError, match=r"64 base classes do not tell it; add --dataset, one of mini-imagenet"):
        import_weights(write(tmp_path / "m.pth", shaken(Feat(base_classes=64))))
    with pytest.raises(RecipeError, match="no classifier of the base classes; add --dataset"):
        import_weights(write(tmp_path / "n.pth", shaken(Feat())))
    gel, feat = write(tmp_path / "g.pth", Gel()), write(tmp_path / "f.pth", Feat())
    top_k = [
        import_weights(gel, dataset=dataset, shot=shot).model.method.top_k
        for dataset in ("mini-imagenet", "tiered-imagenet", "cifar-fs")
        for shot in (1, 5)
    ]
    assert top_k == [10, 1, 2, 5, 1, 1]
    method = import_weights(feat, dataset="tiered-imagenet", shot=5).model.method
    assert (method.contrast_weight, method.temperature, method.contrast_temperature) == (0.1, 32.0, 64.0)


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(import_)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_writes_a_checkpoint_and_a_report(tmp_path):
    source, out = shaken(Gel()), tmp_path / "gel.safetensors"
    file = write(tmp_path / "gel.pth", source, prefix="module.", epoch=2)
    assert hashlib.sha256(file.read_bytes()).hexdigest() in run(str(file), "-o", str(out), "--dataset", "mini-imagenet")
    with torch.no_grad():
        assert torch.equal(load_model(out).eval().backbone(images(2)), source.encoder(images(2)))

    report = json.loads(run(str(file), "-o", str(out), "--dataset", "mini-imagenet", "--json", "--force"))
    assert report["counts"] == {"backbone": 96, "method": 15, "extra": 0, "ignored": 1}
    assert report["tensors"]["conv.2.weight"] == {"to": "method.calibrate.2.weight", "shape": [1]}
    assert report["checkpoint"] == str(out)
    assert report["parameters"]["backbone"] == sum(p.numel() for p in source.encoder.parameters())


PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "published"


def conv4() -> nn.Sequential:
    """As the program that published it builds it."""
    layers: list[nn.Module] = []
    for inside in (3, 64, 64, 64):
        layers += [nn.Conv2d(inside, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten()).double().eval()


def assert_computes_what_the_source_computes(file: Path, source: nn.Sequential, tmp_path: Path) -> None:
    imported = import_weights(file)
    model = stored(imported, tmp_path / "m.safetensors")
    pictures = images(8, 84)
    with torch.no_grad():
        vec = source(pictures.double())
        maps = model.backbone(pictures)
        assert maps.shape == (8, 1600, 1, 1)
        torch.testing.assert_close(maps[:, :, 0, 0].double(), vec, rtol=1e-4, atol=1e-4)
        out = model.method(task(maps))
    proto = torch.stack([vec[:2].mean(dim=0), vec[2], vec[3]])
    torch.testing.assert_close(out.logits.double(), -sq_distance(vec[4:], proto), rtol=1e-4, atol=1e-3)
    report = imported.report
    about = (report.layout, report.backbone, report.method, report.dataset)
    assert about == ("conv4", "conv4", "protonet", "mini-imagenet")
    assert (report.widths, report.parameters) == ([64] * 4, {"backbone": 113_088, "method": 0})
    assert report.counts == {"backbone": 28, "method": 0, "extra": 0, "ignored": 0}
    assert "24 tensors are float64 in the file and float32 here." in report.notes
    assert model.backbone.preprocess == Preprocess(84)


def test_a_prototypical_network_computes_what_the_source_computes(tmp_path: Path) -> None:
    source = shaken(conv4())
    torch.save(source.state_dict(), tmp_path / "protonet.pth")
    assert_computes_what_the_source_computes(tmp_path / "protonet.pth", source, tmp_path)
    torch.save({**source.state_dict(), "17.weight": torch.ones(5, 1600)}, tmp_path / "more.pth")
    with refused("weights", "has 17.weight, which has no place here"):
        import_weights(tmp_path / "more.pth")
    with refused("recipe", "dataset must be one of mini-imagenet, got 'cifar-fs'"):
        import_weights(tmp_path / "protonet.pth", dataset="cifar-fs")


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published files are not in ../shared/data/published")
@pytest.mark.parametrize("shot", [1, 5])
def test_the_published_prototypical_networks(tmp_path: Path, shot: int) -> None:
    file = PUBLISHED / f"protonet-mini-conv4-{shot}shot.pth"
    source = conv4()
    source.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    assert_computes_what_the_source_computes(file, source, tmp_path)

"""The .glocal file: written whole or not at all, and read without believing it."""

from __future__ import annotations

import errno
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from glocal.recognizer import Recognizer
from glocal.recognizer import file as glocal_file
from glocal.recognizer.file import read_contents, read_manifest
from glocal.recognizer.verify import verify
from glocal_runtime.errors import DataError, GlocalError
from photos import recognizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("file") / "digits.glocal"
    recognizer({"zero": 3, "one": 2}).save(path)
    return path.read_bytes()


@pytest.fixture
def path(saved: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "digits.glocal"
    path.write_bytes(saved)
    return path


def repack(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def edit(members: dict[str, bytes], **fields: object) -> None:
    members["manifest.json"] = json.dumps(json.loads(members["manifest.json"]) | fields).encode()


def test_the_manifest_tells_what_a_person_asks(path: Path) -> None:
    manifest = read_manifest(path)
    assert manifest.schema_version == 1
    assert [each.name for each in manifest.classes] == ["zero", "one"]
    assert manifest.n_photos == 5
    assert manifest.model.name == "embedded-gel"
    assert manifest.model.preprocess["size"] == 32
    assert len(manifest.model.backbone_sha256) == 64
    assert manifest.threshold["source"] == "leave-one-out"
    assert 0 < len(manifest.probes) <= 4
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert [name for name in names if name.startswith("thumbnails/")] == [f"thumbnails/{i}.jpg" for i in range(5)]
    assert not [name for name in names if name.endswith((".pkl", ".pt", ".pickle"))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: edit(m, schema_version=2, version="9.0"), r"newer glocal \(9.0, schema 2\).* update glocal"),
        (lambda m: edit(m, format="other"), "a zip, but not a recognizer"),
        (lambda m: m.pop("manifest.json"), "not a recognizer of glocal: it has no manifest.json"),
        (lambda m: m.update({"manifest.json": b"{"}), "its manifest is not JSON"),
        (lambda m: edit(m, classes=[]), "its manifest does not make sense"),
        (lambda m: edit(m, surprise=1), "surprise"),
        (lambda m: edit(m, threshold={"value": "x", "max_false_unknown": 0.05}), "does not make sense"),
        (lambda m: m.pop("thumbnails/4.jpg"), "thumbnails/4.jpg is missing"),
        (lambda m: m.pop("support.safetensors"), "support.safetensors is missing"),
        (lambda m: m.update({"support.safetensors": b"junk"}), "support.safetensors is not what was written"),
        (lambda m: m.update({"../evil.txt": b"x"}), "points outside"),
    ],
)
def test_a_changed_file_gets_a_sentence(path: Path, change, message: str) -> None:
    repack(path, change)
    with pytest.raises(DataError, match=message):
        read_contents(path)


def test_foreign_files_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.glocal").write_text("hello")
    (tmp_path / "empty.glocal").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "zip.glocal", "w") as archive:
        archive.writestr("a.txt", "a")
    for name, message in {
        "text.glocal": "is not a recognizer",
        "empty.glocal": "is not a recognizer",
        "zip.glocal": "is a zip, but not a recognizer",
        "none.glocal": "there is no such file",
        ".": "is a folder",
    }.items():
        with pytest.raises(DataError, match=message):
            read_contents(tmp_path / name)


def test_a_truncated_file_gets_a_sentence(path: Path, saved: bytes) -> None:
    for share in (0.001, 0.3, 0.9, 0.9999):
        path.write_bytes(saved[: int(share * len(saved))])
        with pytest.raises(DataError, match=r"damaged or was cut short|cut short or damaged"):
            read_contents(path)


def test_flipped_bits_are_noticed_or_harmless(path: Path, saved: bytes) -> None:
    """Harmless: in fields of the zip that nobody reads, such as times and attributes."""
    expected = read_manifest(path)
    rng, noticed = np.random.default_rng(0), 0
    for at in rng.integers(0, len(saved), 40):
        damaged = bytearray(saved)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            read_contents(path)
        except GlocalError:
            noticed += 1
        else:
            assert read_manifest(path) == expected
    assert noticed >= 35


def test_a_model_of_other_weights_is_refused(path: Path) -> None:
    def other(members: dict[str, bytes]) -> None:
        model = json.loads(members["manifest.json"])["model"]
        edit(members, model=model | {"backbone_sha256": "0" * 64})

    repack(path, other)
    with pytest.raises(DataError, match="other backbone weights"):
        read_contents(path)


def test_a_full_disk_leaves_the_old_file(path: Path, saved: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    who = Recognizer.load(path, device="cpu")
    who.rename_class("one", "uno")

    def full(*args: object, **how: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(glocal_file.zipfile.ZipFile, "writestr", full)
    with pytest.raises(DataError, match=r"could not be written \(No space left on device\); what was there before"):
        who.save(path)
    assert path.read_bytes() == saved
    assert list(path.parent.iterdir()) == [path]


def test_verify_tells_the_same_machine_from_another(path: Path) -> None:
    who = Recognizer.load(path, device="cpu")
    found = verify(who)
    assert len(found) == 2
    assert all(each.same and each.difference < 1e-5 for each in found)
    with torch.no_grad():
        next(who.contents.brain.model.backbone.parameters()).mul_(1.5)
    assert not any(each.same for each in verify(who))

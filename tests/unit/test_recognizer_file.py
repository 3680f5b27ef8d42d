"""The .glocal file: written whole or not at all, and read without believing it."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load, save

from converted import model_file
from faults import full
from glocal.common.errors import GlocalError
from glocal.recognizer import Recognizer
from glocal.recognizer import file as glocal_file
from glocal.recognizer.enrolled import Enrolled
from glocal.recognizer.file import holds_recognizer, read_contents, read_manifest
from photos import recognizer, some
from refusal import refused


@pytest.fixture(scope="module", params=["fast", "embedded-gel"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("file") / "digits.glocal"
    model = "fast" if request.param == "fast" else model_file(request.param)
    recognizer({"zero": 3, "one": 2}, model=model).save(path)
    return path.read_bytes()


@pytest.fixture
def path(saved: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "digits.glocal"
    path.write_bytes(saved)
    return path


def repack(path: Path, change: Callable[[dict[str, bytes]], None], **how: int) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", **how) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def edit(members: dict[str, bytes], **fields: object) -> None:
    members["manifest.json"] = json.dumps(json.loads(members["manifest.json"]) | fields).encode()


def inside(members: dict[str, bytes], *way: str | int, **fields: object) -> None:
    """A change of what lies deeper in the manifest."""
    manifest = json.loads(members["manifest.json"])
    part = manifest
    for key in way:
        part = part[key]
    part |= fields
    members["manifest.json"] = json.dumps(manifest).encode()


def crafted(members: dict[str, bytes], change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Other arrays, whole by their hash."""
    arrays = load(members["support.safetensors"])
    change(arrays)
    members["support.safetensors"] = save(arrays)
    sha256 = json.loads(members["manifest.json"])["sha256"]
    edit(members, sha256=sha256 | {"support.safetensors": hashlib.sha256(save(arrays)).hexdigest()})


def test_the_manifest_tells_what_a_person_asks(path: Path) -> None:
    manifest = read_manifest(path)
    assert manifest["schema_version"] == 4
    assert {each["name"]: len(each["photos"]) for each in manifest["classes"]} == {"zero": 3, "one": 2}
    encoder, head = manifest["model"]["encoder"], manifest["model"]["head"]
    [member] = encoder["members"]
    assert (encoder["name"], head["kind"], member["preprocess"]["size"]) in [
        ("fast", "ridge", 224),
        ("embedded-gel", "converted", 32),
    ]
    assert manifest["threshold"]["source"] == "leave-one-out"
    assert 0 < len(manifest["probes"]) <= 4
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    own = [] if encoder["name"] == "fast" else [member["graph"], head["enroll"], head["score"]]
    assert [name for name in names if name.startswith("model/")] == [f"model/{each}.onnx" for each in own]
    assert [name for name in names if name.startswith("thumbnails/")] == [f"thumbnails/{i}.jpg" for i in range(5)]
    assert holds_recognizer(path)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda m: edit(m, schema_version=5, version="9.0"), "newer-file", "glocal (9.0, schema 5)"),
        (lambda m: edit(m, format="other"), "no-recognizer", "a zip, but not a recognizer"),
        (lambda m: m.pop("manifest.json"), "no-recognizer", "has no manifest.json"),
        (lambda m: m.update({"manifest.json": b"{"}), "damaged-file", "not JSON"),
        (lambda m: edit(m, classes=[]), "damaged-file", "no class"),
        (lambda m: edit(m, surprise=1), "damaged-file", "surprise"),
        (lambda m: edit(m, threshold={"value": "x", "target_rate": 0.05}), "damaged-file", "x"),
        (lambda m: inside(m, "threshold", target_rate=7), "damaged-file", "target_rate"),
        (lambda m: inside(m, "threshold", interval=[0.9, 0.1]), "damaged-file", "interval"),
        (lambda m: inside(m, "threshold", spread=-5.0), "damaged-file", "spread"),
        (lambda m: edit(m, promise={"target_rate": float("nan"), "with_unknown": None}), "damaged-file", "NaN"),
        (lambda m: edit(m, schema_version=3), "damaged-file", "its schema is 3"),
        (lambda m: edit(m, schema_version=4.0), "damaged-file", "schema_version"),
        (
            lambda m: inside(m, "classes", -1, name=json.loads(m["manifest.json"])["classes"][0]["name"]),
            "damaged-file",
            "two classes",
        ),
        (lambda m: inside(m, "classes", -1, name="a\u200bb"), "damaged-file", "visible letters"),
        (lambda m: inside(m, "model", "head", open_score="doom"), "damaged-file", "doom"),
        (
            lambda m: inside(m, "model", encoder={"name": "fast", "licence": "", "members": []}),
            "damaged-file",
            "probes/0.png",
        ),
        (lambda m: m.pop("thumbnails/4.jpg"), "damaged-file", "thumbnails/4.jpg is missing"),
        (lambda m: m.pop("support.safetensors"), "damaged-file", "support.safetensors is missing"),
        (lambda m: m.update({"support.safetensors": b"junk"}), "damaged-file", "is not what was written"),
        (lambda m: m.update({"../evil.txt": b"x"}), "damaged-file", "'../evil.txt' does not belong"),
        (
            lambda m: crafted(m, lambda a: a["photo.vec"].__setitem__((0, 0), np.nan)),
            "damaged-file",
            "features do not belong",
        ),
    ],
)
def test_a_changed_file_gets_a_sentence(path: Path, change, code: str, words: str) -> None:
    repack(path, change)
    with refused(code, words):
        read_contents(path)


def wider(arrays: dict[str, np.ndarray], *names: str) -> None:
    for name in names:
        arrays[name] = np.concatenate([arrays[name]] * 2, axis=1)


def huge_picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (9000, 9000)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: crafted(m, lambda a: wider(a, "photo.vec", "probe.vec")),
        lambda m: crafted(m, lambda a: wider(a, "photo.local.0", "probe.local.0")),
        lambda m: crafted(m, lambda a: (a.pop("photo.local.0"), a.pop("probe.local.0"))),
        lambda m: crafted(m, lambda a: a["probe.local.0"].__setitem__((0, 0, 0, 0), np.nan)),  # seen by `verify` alone
        lambda m: inside(m, "threshold", interval=["a", "b"]),
        lambda m: inside(m, "threshold", value=10**400),
        lambda m: edit(m, usual={"open_score": ["nan", 1]}),
        lambda m: edit(m, promise={"target_rate": 7, "with_unknown": None}),
        lambda m: m.update({"thumbnails/0.jpg": huge_picture()}),
        lambda m: m.update({"probes/0.png": m["probes/0.png"][:20]}),
    ],
)  # fmt: skip
def test_a_crafted_file_is_refused_at_the_door(path: Path, change) -> None:
    """Whole by every hash, and not what a recognizer is: neither a traceback nor an answer."""
    repack(path, change)
    with refused("damaged-file"):
        Recognizer.load(path, device="cpu").predict(some("one", 0, 1))


def test_every_broken_manifest_is_a_sentence(path: Path) -> None:
    whole = read_manifest(path)
    broken = [{**whole, key: value} for key in whole for value in (None, 7, "x", [], {}, [{"name": "../x"}])]
    broken += [{key: value for key, value in whole.items() if key != gone} for gone in whole]
    accepted = []
    for each in (each for each in broken if each != whole):
        repack(path, lambda members, each=each: members.update({"manifest.json": json.dumps(each).encode()}))
        with suppress(GlocalError):
            read_contents(path)
            accepted.append(next(key for key in whole if each.get(key) != whole[key]))
    assert set(accepted) <= {"version", "identity", "usual", "unknown", "probes"}, "these may be empty"


def test_members_that_are_packed_or_there_twice_are_refused(path: Path) -> None:
    """Nothing that could unpack to more than it is."""
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("manifest.json", "{}")
    with refused("damaged-file"):
        read_contents(path)
    repack(path, lambda members: None, compression=zipfile.ZIP_DEFLATED)
    with refused("damaged-file", "packed by another program"):
        read_contents(path)


def test_foreign_files_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.glocal").write_text("hello")
    (tmp_path / "empty.glocal").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "zip.glocal", "w") as archive:
        archive.writestr("a.txt", "a")
    for name, words in {
        "text.glocal": "is not a recognizer",
        "empty.glocal": "is not a recognizer",
        "zip.glocal": "is a zip, but not a recognizer",
        "none.glocal": "there is no such file",
        ".": "is a folder",
    }.items():
        with refused("no-recognizer", words):
            read_contents(tmp_path / name)


def test_damage_is_noticed_or_harmless(path: Path, saved: bytes) -> None:
    """Harmless: in fields of the zip that nobody reads, such as times and attributes."""
    for share in (0.001, 0.3, 0.9, 0.9999):
        path.write_bytes(saved[: int(share * len(saved))])
        with refused("damaged-file", "cut short"):
            read_contents(path)
    path.write_bytes(saved)
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


def test_what_a_file_says_about_its_model_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "digits.glocal"
    recognizer().save(path)
    repack(path, lambda members: inside(members, "model", "head", min_way=3))
    with refused("too-few-classes", "3 classes, got 2"):
        Recognizer.load(path).remove_class("one")


def test_a_graph_that_is_none_is_found_out_by_the_first_answer(tmp_path: Path) -> None:
    path = tmp_path / "digits.glocal"
    recognizer({"zero": 2, "one": 2}).save(path)

    def spoil(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        [member] = manifest["model"]["encoder"]["members"]
        del members[f"model/{member['graph']}.onnx"], manifest["sha256"][f"model/{member['graph']}.onnx"]
        member["graph"] = hashlib.sha256(b"no graph").hexdigest()
        members[f"model/{member['graph']}.onnx"] = b"no graph"
        manifest["sha256"][f"model/{member['graph']}.onnx"] = member["graph"]
        members["manifest.json"] = json.dumps(manifest).encode()

    repack(path, spoil)
    who = Recognizer.load(path)
    with refused("damaged-file", str(path)):
        who.predict(some("one", 0, 1))


def test_a_full_disk_leaves_the_old_file(path: Path, saved: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    who = Recognizer.load(path, device="cpu")
    who.rename_class("one", "uno")
    monkeypatch.setattr(glocal_file.zipfile.ZipFile, "writestr", full)
    with refused("not-written", "(No space left on device); what was there before is unchanged"):
        who.save(path)
    assert path.read_bytes() == saved
    assert list(path.parent.iterdir()) == [path]


def test_of_two_who_change_one_file_the_second_is_told(path: Path, tmp_path: Path) -> None:
    one, other = (Recognizer.load(path, device="cpu") for _ in range(2))
    one.rename_class("one", "uno")
    one.save(path)
    other.rename_class("zero", "nil")
    with refused("changed-meanwhile", str(path)):
        other.save(path)
    assert Recognizer.load(path, device="cpu").classes == ("zero", "uno")
    one.rename_class("uno", "un")
    one.save(path)  # its own change does not count
    other.save(tmp_path / "elsewhere.glocal")
    other.save(tmp_path / "elsewhere.glocal")
    assert Recognizer.load(path, device="cpu").classes == ("zero", "un")


def test_verify_tells_the_same_machine_from_another(path: Path) -> None:
    who = Recognizer.load(path, device="cpu")
    found = who.verify()
    assert len(found) == 2
    assert all(each.same and each.difference < 1e-5 for each in found)
    who.contents.support.classes["one"].features.vec[:] *= 1.5
    who = Recognizer(who.contents, who.embedder, Enrolled(who.contents.model, who.contents.support))
    assert not any(each.same for each in who.verify())

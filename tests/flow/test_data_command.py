"""``glocal data``: what people have, prepared, verified, shown and used, by the commands they type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from glocal.research.data import DATASETS, loader, open_dataset
from glocal.research.data.splits import CATALOGUE
from glocal.research.engine.checkpoint import save_model
from glocal.research.engine.pretrain import PretrainStage
from glocal.research.engine.recipe import Recipe
from glocal.research.engine.train import TrainStage
from pictures import write_classes
from refusal import one_sentence
from tiny_models import tiny_model
from tiny_runs import fields, make_dataset

GIVEN = os.environ.get("GLOCAL_DATA")  # before tests set their own
SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """GLOCAL_DATA, empty."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("GLOCAL_DATA", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def class_folders(root: Path, classes: int) -> Path:
    return write_classes(root, *(f"class {c}" for c in range(classes)), per_class=4, side=16)


def test_list(glocal: Any, home: Path) -> None:
    code, shown, err = glocal("data", "list", "--json")
    assert (code, err) == (0, "")
    found = {each["name"]: each for each in json.loads(shown)}
    assert set(found) == {*CATALOGUE} >= {*DATASETS, "mini-imagenet", "tiered-imagenet", "cifar-fs", "fc100", "cub"}
    assert found["tiered-imagenet"]["parts"]["val"] == {"classes": 97, "images": 124_261}
    assert found["mini-imagenet"]["images"] == 60_000
    assert set(found["mini-imagenet"]["variants"]) >= {"original-jpeg", "84px-pickle", "cache-pickle"}
    assert {each["here"] for each in found.values()} == {"no", "in the package"}
    (home / "cifar-fs").mkdir()
    _, shown, _ = glocal("data", "list")
    assert "448,695 / 124,261 / 206,209" in shown
    assert shown.count("a folder as it came") == 1
    assert all(each.terms in shown and each.home in shown and each.todo in shown for each in CATALOGUE.values())


def test_pictures_of_ones_own_from_folder_to_evaluation(glocal: Any, home: Path, tmp_path: Path) -> None:
    """Divided already: prepared and not, by its name, it is the same data set to everything that follows."""
    folder = make_dataset(tmp_path / "folder")
    code, shown, err = glocal("data", "prepare", "mine", "--from", folder, "--json")
    assert (code, err) == (0, ""), err
    prepared = json.loads(shown)
    assert (prepared["folder"], prepared["variant"]) == (str(home / "mine"), "own")
    for split, classes in {"train": 5, "val": 4, "test": 4}.items():
        plain, mapped = open_dataset(folder, split), open_dataset("mine", split)
        assert (mapped.manifest, mapped.classes) == (plain.manifest, plain.classes)
        record = prepared["splits"][split]
        assert (record["classes"], record["images"]) == (classes, 8 * classes)
        assert record["manifest"] == plain.manifest

    code, shown, _ = glocal("data", "verify", "mine", "--json")
    verdict = json.loads(shown)
    assert (code, verdict["problems"]) == (0, 0)
    assert verdict["splits"]["test"]["per_class"] == {f"test{c}": 8 for c in range(4)}

    save_model(tmp_path / "model.safetensors", tiny_model())
    shape = ["--way", "2", "--query", "3", "--tasks", "5", "--device", "cpu", "--json"]
    results = []
    for dataset in (folder, "mine"):
        code, shown, err = glocal("evaluate", tmp_path / "model.safetensors", "--dataset", dataset, *shape)
        assert code == 0, err
        results.append({**json.loads(shown), "dataset": None})
    assert results[0] == results[1]


@pytest.mark.parametrize(("stage", "build"), [("pretrain", PretrainStage), ("train", TrainStage)])
def test_training_has_the_same_numbers_from_memory_and_through_the_map(
    glocal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, build: Any
) -> None:
    """A split that takes more than the limit is not held in memory; a folder always is."""
    folder = make_dataset(tmp_path / "folder")
    assert glocal("data", "prepare", "mine", "--from", folder)[0] == 0
    losses = []
    for dataset, limit, held in ((folder, 0, True), ("mine", 5 * 8 * 3 * 16**2, True), ("mine", 0, False)):
        monkeypatch.setattr(loader, "HELD_UP_TO", limit)
        made = build(Recipe(**fields(Path(dataset), stage, augment={"flip": True})), torch.device("cpu"))
        assert isinstance(made.images, torch.Tensor) == held
        assert len(made.images) == 40
        losses.append([made.losses(step) for step in range(3)])
    assert losses[0] == losses[1] == losses[2]


def test_another_spelling_of_a_published_name_leads_to_one_folder(glocal: Any, home: Path, tmp_path: Path) -> None:
    write_classes(tmp_path / "in", "apple", "beaver", "baby")  # of train, val and test
    assert glocal("data", "prepare", "CIFAR_FS", "--from", tmp_path / "in")[0] == 0
    assert [path.name for path in home.iterdir()] == ["cifar-fs"]
    code, shown, _ = glocal("data", "verify", "CIFAR_FS", "--json")
    verdict = json.loads(shown)
    assert (code, verdict["name"]) == (1, "cifar-fs")
    assert {each["about"] for each in verdict["findings"] if each["severity"] == "problem"} == {"counts", "classes"}


def test_undivided_classes_are_dealt_by_seed_and_shares(glocal: Any, tmp_path: Path) -> None:
    """That they are dealt the same way each time is ``test_recognise``'s."""
    source, dealt = class_folders(tmp_path / "photos", 10), []
    for seed in ("0", "1"):
        out = tmp_path / f"out{seed}"
        options = ("--out", out, "--seed", seed, "--shares", "50,20,30")
        code, shown, err = glocal("data", "prepare", "photos", "--from", source, *options)
        assert (code, err) == (0, "")
        assert f"Next: glocal data verify photos {out}" in shown
        dealt.append({split: set(open_dataset(out, split).classes) for split in ("train", "val", "test")})
        assert [len(classes) for classes in dealt[-1].values()] == [5, 2, 3]
    assert dealt[0] != dealt[1]
    code, shown, _ = glocal("data", "verify", "photos", out)
    assert (code, "photos: nothing wrong" in shown) == (0, True)


def test_a_leak_ends_with_one(glocal: Any, tmp_path: Path) -> None:
    source = make_dataset(tmp_path / "leaky")
    os.replace(source / "train/train0/0.png", source / "test/test1/copy.png")
    (source / "train/train0/0.png").write_bytes((source / "test/test1/copy.png").read_bytes())
    assert glocal("data", "prepare", "leaky", "--from", source)[0] == 0
    code, shown, _ = glocal("data", "verify", "leaky")
    assert code == 1
    assert "✗ problem repeats  2 images make 1 group of equal ones across splits (1 in train and test)" in shown
    assert "train/train0 #" in shown
    assert shown.endswith("leaky: 1 problem\n")


def test_show(glocal: Any, tmp_path: Path) -> None:
    source = class_folders(tmp_path / "photos", 6)
    code, shown, err = glocal("data", "show", source, "--split", "all", "-o", tmp_path / "sheet.png", "--json")
    assert (code, err) == (0, "")
    assert len(json.loads(shown)["classes"]) == 5
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
    for arguments, part in (
        (["--split", "all", "--classes", "9", "-o", tmp_path / "no.png"], "photos has 6 classes, so 1 to that many"),
        (["--split", "all", "-o", tmp_path / "no.jpg"], "its name must end in .png, got no.jpg"),
        (["-o", tmp_path / "no.png"], "use --split all"),
        (["--split", "all", "-o", tmp_path / "sheet.png"], "is there already; write over it with --force"),
    ):
        one_sentence(glocal("data", "show", source, *arguments), part)
    assert not list(tmp_path.glob("no.*"))


def test_what_the_user_can_mend(glocal: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = class_folders(tmp_path / "photos", 6)
    (tmp_path / "taken").mkdir()

    def refused(words: str, *arguments: Any) -> None:
        one_sentence(glocal("data", *arguments), words)

    of_source = ("--from", source)
    refused("taken exists already and is not overwritten", "prepare", "x", *of_source, "--out", tmp_path / "taken")
    refused("nowhere: there is no such file or folder", "prepare", "x", "--from", tmp_path / "nowhere")
    for shares in ("1,2", "-1,5,5", "nan,1,1"):
        refused(f"got '{shares}'", "prepare", "x", *of_source, f"--shares={shares}")
    refused("has a plain name, got 'a/b'; rename it, or say --out DIR", "prepare", "a/b", *of_source)
    refused("class 'class 0' is not one of the classes of cifar-fs", "prepare", "cifar-fs", *of_source)
    refused("embedded is opened by its name as it is", "prepare", "embedded", *of_source)
    refused("there is no prepared form of it", "verify", "caltech-photos")
    refused("holds no prepared data set", "verify", "photos", source)
    (source / "class 0" / "bad.jpg").write_bytes(b"no picture")
    refused("bad.jpg", "prepare", "x", *of_source)
    monkeypatch.delenv("GLOCAL_DATA")
    refused("below GLOCAL_DATA, which is not set; set it, or say --out DIR", "prepare", "x", *of_source)
    refused("which is not set; set it, or say DIR", "verify", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "photos", "taken"]
    assert list(home.iterdir()) == []

    code, shown, said = glocal("data", "prepare", "x", "--from", source, "--out", tmp_path / "x", "--skip-bad")
    assert code == 0
    assert ", 1 left out" in shown
    assert "bad.jpg" in said
    code, _, said = glocal("data", "show", source, "--split", "all", "--skip-bad", "-o", tmp_path / "sheet.png")
    assert (code, "bad.jpg" in said) == (0, True)
    code, shown, _ = glocal("data", "verify", "x", tmp_path / "x")
    assert (code, "1 image left out when preparing" in shown) == (0, True)


@pytest.fixture
def cifar_fs(tmp_path: Path) -> Path:
    """The unpacked pictures: below the GLOCAL_DATA of whoever runs this, or unpacked from beside the repository."""
    if GIVEN and (Path(GIVEN) / "cifar-fs" / "train").is_dir():
        return Path(GIVEN) / "cifar-fs"
    if (SHARED / "cifar-fs").is_dir():
        subprocess.run([sys.executable, SHARED / "unpack.py", "cifar-fs", tmp_path / "cifar-fs"], check=True)
        return tmp_path / "cifar-fs"
    pytest.skip("CIFAR-FS is neither unpacked below GLOCAL_DATA nor in ../shared/data")


@pytest.mark.long
def test_the_real_cifar_fs(glocal: Any, home: Path, cifar_fs: Path) -> None:
    """Prepared by name, 60,000 pictures, and as many repeats as a slow count over the PNG files finds."""
    assert glocal("data", "prepare", "cifar-fs", "--from", cifar_fs)[0] == 0
    code, shown, _ = glocal("data", "verify", "cifar-fs", home / "cifar-fs", "--json")
    verdict = json.loads(shown)
    assert (code, verdict["problems"], verdict["variant"]) == (0, 0, "32px")
    assert {split: state["classes"] for split, state in verdict["splits"].items()} == {
        "train": 64,
        "val": 16,
        "test": 20,
    }
    assert {n for state in verdict["splits"].values() for n in state["per_class"].values()} == {600}
    assert sum(state["images"] for state in verdict["splits"].values()) == 60_000
    assert "every class is in the split it was published in" in [each["text"] for each in verdict["findings"]]

    places: defaultdict[bytes, list[str]] = defaultdict(list)
    for path in sorted(cifar_fs.glob("*/*/*.png")):
        with Image.open(path) as image:
            places[image.convert("RGB").tobytes()].append(path.parts[-3])
    groups = [Counter(splits) for splits in places.values() if len(splits) > 1]
    within = [n for group in groups for n in group.values() if n > 1]
    across = [group.total() for group in groups if len(group) > 1]
    assert (len(within), sum(within), len(across), sum(across)) == (11, 22, 15, 30)
    for kind, counted in (("within", within), ("across", across)):
        assert (verdict[kind]["groups"], verdict[kind]["images"]) == (len(counted), sum(counted))
    assert CATALOGUE["cifar-fs"].repeats == (11, 15)
    for split in ("train", "val", "test"):
        assert open_dataset("cifar-fs", split).manifest == open_dataset(cifar_fs, split).manifest

"""verify: every sentence it can say, on small data sets that were made to earn it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from glocal.research.data import verify as module
from glocal.research.data.prepare import prepare
from glocal.research.data.prepared import open_prepared, write_index
from glocal.research.data.splits import CATALOGUE, Entry, SplitSize, Variant, published_classes
from glocal.research.data.verify import Verdict, verify
from pictures import png, write_file

Rows = list[tuple[str, np.ndarray]]  # class name, pixels

TOY = Entry(
    name="toy",
    title="Toy",
    parts={"train": SplitSize(2, 6), "test": SplitSize(2, 6)},
    per_class=3,
    size="8 px",
    source="nobody",
    home="https://example.org",
    terms="none",
    todo="nothing",
    variants={
        "8px": Variant("8 px pickles", "compare with pickles"),
        "8px-files": Variant("8 px files", "compare with files"),
        "original": Variant("original size", "compare with originals"),
    },
    repeats=(1, 1),
)


def rows(classes: str, *, seed: int, per_class: int = 3, side: int = 8) -> Rows:
    rng = np.random.default_rng(seed)
    return [(c, rng.integers(0, 256, (side, side, 3), dtype=np.uint8)) for c in classes for _ in range(per_class)]


def made(folder: Path, splits: Mapping[str, Rows], *, name: str = "toy", variant: str = "8px") -> Path:
    """Prepared as one's own data, and then called so."""
    for split, each in splits.items():
        for i, (class_name, pixels) in enumerate(each):
            write_file(folder.with_suffix(".in") / split / class_name / f"{i}.png", png(pixels))
    index = prepare(folder, "mine", folder.with_suffix(".in"))
    write_index(folder, index.model_copy(update={"name": name, "variant": variant}))
    return folder


def findings_on(verdict: Verdict, about: str) -> list[tuple[str, str]]:
    return [(each.severity, each.text) for each in verdict.findings if each.about == about]


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.CATALOGUE, "toy", TOY)  # type: ignore[index]


@pytest.fixture
def good() -> dict[str, Rows]:
    return {"train": rows("ab", seed=0), "test": rows("cd", seed=1)}


def test_all_as_published(tmp_path: Path, good: dict[str, Rows]) -> None:
    verdict = verify(made(tmp_path / "toy", good), "toy")
    assert verdict.problems == 0
    assert {each.severity for each in verdict.findings} == {"ok"}
    assert findings_on(verdict, "counts")[0][1] == "train: 2 classes and 6 images, as published"
    assert findings_on(verdict, "form") == [("ok", "8 px pickles: compare with pickles")]
    assert verdict.splits["test"].per_class == {"c": 3, "d": 3}
    plain = json.loads(json.dumps(verdict.to_json()))
    assert plain["within"] == {"groups": 0, "images": 0, "mixed": 0, "by": {}, "examples": []}
    assert plain["problems"] == 0


def test_other_counts_are_problems(tmp_path: Path, good: dict[str, Rows]) -> None:
    good["train"] = good["train"][:-1]
    good["val"] = rows("e", seed=3)
    del good["test"]
    verdict = verify(made(tmp_path / "toy", good), "toy")
    assert findings_on(verdict, "splits") == [
        ("problem", "Toy needs a split test; prepare all at once"),
        ("problem", "Toy has no split called val"),
    ]
    assert findings_on(verdict, "counts") == [
        ("problem", "train: 2 classes and 5 images instead of 2 and 6 as published"),
        ("problem", "train: not 3 images in 1 class: b (2)"),
    ]
    assert verdict.problems == 4
    verdict = verify(made(tmp_path / "x", good, name="mine"), "toy")
    assert findings_on(verdict, "name") == [
        ("problem", "this was prepared as 'mine', not as 'toy'; verify it by its name")
    ]


def test_repeats_within_and_across(tmp_path: Path, good: dict[str, Rows]) -> None:
    train, test = good["train"], good["test"]
    train[1] = train[0]  # a, a
    train[5] = ("b", train[2][1])  # a, b: two classes
    test[0] = ("c", train[2][1])  # the same one again, in the other split
    test[4] = ("d", train[4][1])
    verdict = verify(made(tmp_path / "toy", good), "toy")
    within, across = verdict.within, verdict.across
    assert (within.groups, within.images, within.mixed, within.by) == (2, 4, 1, {"train": 2})
    assert (across.groups, across.images, across.mixed, across.by) == (2, 5, 2, {"train and test": 2})
    shared = {frozenset((place.split, place.class_name) for place in group) for group in across.examples}
    assert shared == {
        frozenset({("train", "a"), ("train", "b"), ("test", "c")}),
        frozenset({("train", "b"), ("test", "d")}),
    }
    (note, inside), (problem, outside) = findings_on(verdict, "repeats")
    assert (note, problem) == ("note", "problem")  # one of each is published
    assert "4 images make 2 groups of equal ones within splits (2 in train), 1 of them under different" in inside
    assert "5 images make 2 groups of equal ones across splits (2 in train and test)" in outside
    assert "; 1 were published" in outside


def test_shared_pictures_are_published_or_a_leak(tmp_path: Path, good: dict[str, Rows]) -> None:
    good["test"][2] = ("c", good["train"][3][1])
    folder = made(tmp_path / "toy", good)
    verdict = verify(folder, "toy")
    (group,) = verdict.across.examples
    images = [open_prepared(folder, place.split).image(place.index) for place in group]
    np.testing.assert_array_equal(images[0], images[1])
    assert findings_on(verdict, "repeats")[1][0] == "note"  # as many as are published
    verdict = verify(made(tmp_path / "mine", good, name="mine"), "mine")
    assert [each.about for each in verdict.findings if each.severity == "problem"] == ["repeats"]
    assert findings_on(verdict, "counts")[0] == ("ok", "train: 2 classes and 6 images")
    assert (verdict.variant, findings_on(verdict, "form")) == (None, [])


def test_class_lists(tmp_path: Path) -> None:
    """FC100's classes by their superclasses: one moved, one strange, one missing; and names that say nothing."""
    lists = published_classes("fc100")

    def one_each(names: Mapping[str, list[str]]) -> dict[str, Rows]:
        numbers = {name: i for i, name in enumerate(sorted(c for each in names.values() for c in each))}
        return {s: [(c, np.full((8, 8, 3), numbers[c], np.uint8)) for c in each] for s, each in names.items()}

    right = {split: list(classes) for split, classes in lists.items()}
    verdict = verify(made(tmp_path / "right", one_each(right), name="fc100"), "fc100")
    assert findings_on(verdict, "classes") == [("ok", "every class is in the split it was published in")]
    wrong = {split: list(classes) for split, classes in lists.items()}
    moved, gone = wrong["test"].pop(), wrong["train"].pop()
    wrong["train"].append(moved)
    wrong["test"].append("unicorn")
    verdict = verify(made(tmp_path / "wrong", one_each(wrong), name="fc100"), "fc100")
    texts = [text for severity, text in findings_on(verdict, "classes") if severity == "problem"]
    assert texts == [
        f"train: 1 class of another split: {moved} (of test)",
        f"train: 1 class missing: {gone}",
        "test: 1 class in no published list: unicorn",
        f"test: 1 class missing: {moved}",
    ]
    numbered = {split: [f"{split} {i}" for i in range(len(c))] for split, c in lists.items()}
    verdict = verify(made(tmp_path / "numbers", one_each(numbered), name="fc100"), "fc100")
    ((severity, text),) = findings_on(verdict, "classes")
    assert severity == "note"
    assert "not called as published" in text


def test_the_catalogue_fits_the_published_lists() -> None:
    total = {"mini-imagenet": 60_000, "tiered-imagenet": 779_165, "cifar-fs": 60_000, "fc100": 60_000, "cub": 11_788}
    for name, images in total.items():
        entry = CATALOGUE[name]
        assert entry.images == images
        lists = published_classes(name)
        assert {split: part.classes for split, part in entry.parts.items()} == {s: len(c) for s, c in lists.items()}
    for entry in CATALOGUE.values():
        if entry.per_class is not None:
            assert all(part.images == part.classes * entry.per_class for part in entry.parts.values())

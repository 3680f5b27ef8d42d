"""``glocal check`` through the API: labelled pictures, and how many of them it gets right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from glocal.recognizer.diagnosis.check import check
from glocal.serve import schemas
from glocal.serve.forms import with_folder
from photos import recognizer, some, write_classes
from serving import client, detail, ok, png

WORDS = ("one", "two", "seven")


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    file = tmp_path_factory.mktemp("check") / "digits.glocal"
    recognizer().save(file)
    with client(file) as asking:
        yield asking


def labelled(folder: str, word: str, start: int, stop: int) -> list[tuple[str, tuple[str, bytes, str]]]:
    pictures = zip(range(start, stop), some(word, start, stop), strict=True)
    return [("images", (f"{folder}/{i:03d}.png", png(pixels), "image/png")) for i, pixels in pictures]


def test_it_is_what_the_command_finds(asking: httpx.Client, tmp_path: Path) -> None:
    files = [each for word in WORDS for each in labelled(f"test/{word}", word, 20, 28)]
    found = ok(asking.post("/check", files=files))
    schemas.CheckBody.model_validate(found)
    offline = check(recognizer(), write_classes(tmp_path, WORDS, 20, 28)).to_json()
    for name in (
        "pictures",
        "accuracy",
        "named_right",
        "false_unknown",
        "caught",
        "trade_off",
        "confusion",
        "not_enrolled",
    ):
        assert found[name] == offline[name], name
    assert sorted(found["confusion"]) == ["one", "two", "unknown"]
    assert [each["label"] for each in found["worst"]] == [each["label"] for each in offline["worst"]]
    assert {each["path"].split("/")[0] for each in found["worst"]} <= set(WORDS)
    assert ok(asking.get("/review"))["recent"] == [], "nothing is remembered"


def test_portions_add_up_and_bad_pictures_are_told_of(asking: httpx.Client) -> None:
    bad = ("images", ("one/bad.png", b"junk", "image/png"))
    one = ok(asking.post("/check", files=[*labelled("one", "one", 20, 24), bad]))
    two = ok(asking.post("/check", files=labelled("ones", "seven", 20, 23)))
    assert [each["path"] for each in one["unreadable"]] == ["one/bad.png"]
    assert (one["accuracy"]["n"], one["caught"]["n"]) == (4, 0)
    assert one["caught"]["value"] is None
    assert (two["accuracy"]["n"], two["caught"]["n"]) == (0, 3)
    assert "'one' misspelt" in two["not_enrolled"]["ones"]
    none = ok(httpx.post(asking.base_url.join("/check"), files=[bad], timeout=60))  # no change: it needs no header
    assert (none["pictures"], len(none["unreadable"])) == (0, 1)


@pytest.mark.parametrize("name", ['5" bolt', "ä ☃", "x" * 200])
def test_a_label_arrives_as_it_is(name: str) -> None:
    sent = name.replace('"', "%22")  # by browsers and httpx alike
    assert with_folder(f"a/{sent}/1.png") == f"{name}/1.png"


def test_a_picture_without_a_label_is_refused(asking: httpx.Client) -> None:
    [(key, (_, data, kind))] = labelled("one", "one", 20, 21)
    for name in ("1.png", "/1.png"):
        assert "in no folder" in detail(asking.post("/check", files=[(key, (name, data, kind))]), 422, "invalid")


def test_a_row_of_the_trade_off_can_be_set(asking: httpx.Client) -> None:
    files = [each for word in WORDS for each in labelled(word, word, 20, 28)]
    before = ok(asking.post("/check", files=files))
    assert [row["target"] for row in before["trade_off"]] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.3]
    row = before["trade_off"][-1]
    changed = ok(asking.put("/threshold", json={"target_rate": row["target"]}))
    after = ok(asking.post("/check", files=files))
    assert changed["version"] == after["version"] != before["version"]
    assert ok(asking.get("/threshold"))["value"] == pytest.approx(row["threshold"])
    assert (after["false_unknown"], after["caught"]) == (row["false_unknown"], row["caught"])
    assert after["trade_off"] == before["trade_off"], "it does not depend on the threshold that is set"

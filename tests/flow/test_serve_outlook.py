"""What the API says about a recognizer and about each change: the outlook, thresholds by class, answers that differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from glocal.recognizer import Recognizer
from glocal.serve import schemas
from photos import recognizer
from serving import client, detail, ok, uploads

TAUGHT = {"zero": 5, "one": 5, "two": 5}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outlook") / "digits.glocal"


@pytest.fixture(scope="module")
def taught(file: Path) -> Iterator[httpx.Client]:
    recognizer(TAUGHT).save(file)
    with client(file) as asking:
        ok(asking.post("/predict", files=[*uploads("one", 20, 26), *uploads("seven", 20, 28)]))
        yield asking


@pytest.fixture
def asking(taught: httpx.Client) -> Iterator[httpx.Client]:
    """And after the test everything is as before."""
    yield taught
    while ok(taught.get("/state"))["can_undo"]:
        ok(taught.post("/undo"))


def answers(asking: httpx.Client) -> dict[str, str]:
    return {each["id"]: each["label"] for each in ok(asking.get("/review"))["recent"]}


def test_the_state_leads_with_the_words_of_the_command_line(asking: httpx.Client, file: Path) -> None:
    found = ok(asking.get("/state"))["outlook"]
    schemas.OutlookBody.model_validate(found)
    offline = Recognizer.load(file, device="cpu").outlook()
    assert found == {**offline.to_json(), "lines": offline.lines()}
    assert found["lines"][0] == found["verdict"]
    assert found["verdict"].startswith("usable")
    assert found["named_right"]["n"] == 15


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.post("/classes", data={"name": "seven"}, files=uploads("seven", 0, 4)),
        lambda c: c.delete("/classes/one"),
        lambda c: c.put("/threshold", json={"target_rate": 0.5}),
        lambda c: c.post("/unknowns", files=uploads("seven", 0, 6)),
    ],
)
def test_a_change_says_which_recent_answers_are_others_now(asking: httpx.Client, change: Any) -> None:
    before = answers(asking)
    done = ok(change(asking))
    schemas.ChangedBody.model_validate(done)
    after = answers(asking)
    told = {each["id"]: (each["from"], each["to"]) for each in done["answers_changed"]}
    assert told == {id_: (before[id_], after[id_]) for id_ in before if before[id_] != after[id_]}
    assert done["n_recent"] == len(before) == 14
    back = ok(asking.post("/undo"))
    assert {each["id"]: (each["to"], each["from"]) for each in back["answers_changed"]} == told


def test_known_unknowns_come_from_photos_and_from_answers(asking: httpx.Client, file: Path) -> None:
    assert ok(asking.get("/state"))["known_unknowns"] == []
    twice = [*uploads("seven", 0, 6), *uploads("seven", 5, 6), ("images", ("x.png", b"junk", "image/png"))]
    done = ok(asking.post("/unknowns", files=twice))
    assert "known unknowns" in done["message"]
    assert "unreadable" in {each["kind"] for each in done["findings"]}
    known = ok(asking.get("/state"))["known_unknowns"]
    assert [each["name"] for each in known] == [f"seven-{i}.png" for i in range(6)]
    assert asking.get(known[0]["thumbnail"]).headers["content-type"] == "image/jpeg"

    recent = ok(asking.get("/review"))
    groups = {item["id"] for group in recent["groups"] for item in group["items"]}
    assert groups, "something is unknown"
    chosen = sorted(groups)[:2]
    ok(asking.post("/review/unknowns", json={"items": [*chosen, chosen[0]]}))
    assert len(ok(asking.get("/state"))["known_unknowns"]) == 8
    after = ok(asking.get("/review"))
    assert not {item["id"] for group in after["groups"] for item in group["items"]} & set(chosen)
    assert {each["id"] for each in after["recent"] if each["known_unknown"]} == set(chosen)
    again = Recognizer.load(file, device="cpu").contents.unknown
    assert again is not None
    assert len(again) == 8

    refused = asking.post("/unknowns", files=uploads("one", 0, 1))
    assert "support photo of 'one'" in detail(refused, 422, "rule")
    ok(asking.put("/threshold", json={"target_rate": 0.001}))
    before = ok(asking.get("/threshold"))
    done = ok(asking.put("/threshold", json={"with_unknown": 0.4}))
    view = ok(asking.get("/threshold"))
    assert view["with_unknown"] == 0.4
    assert 0.001 < view["expected"] <= 0.4, "a lower threshold catches more of them"
    assert view["value"] < before["value"]
    assert [each["kind"] for each in done["findings"]] == ["threshold moved"]
    assert "at least" in detail(asking.put("/threshold", json={"with_unknown": 0.0005}), 422, "rule")


def test_a_known_unknown_that_gets_a_name_is_unknown_no_longer(asking: httpx.Client) -> None:
    some = [each["id"] for each in ok(asking.get("/review"))["recent"] if each["is_unknown"]][:2]
    ok(asking.post("/review/unknowns", json={"items": some}))
    for left, id_ in ((1, some[0]), (0, some[1])):
        ok(asking.post(f"/review/queries/{id_}", json={"class": "seven"}))
        assert len(ok(asking.get("/state"))["known_unknowns"]) == left
    ok(asking.delete("/classes/seven"))
    ok(asking.post("/review/unknowns", json={"items": some}))
    assert len(ok(asking.get("/state"))["known_unknowns"]) == 2


def test_without_a_class_there_are_no_known_unknowns(tmp_path: Path) -> None:
    with client(tmp_path / "new.glocal") as asking:
        assert ok(asking.get("/state"))["outlook"] is None
        assert detail(asking.post("/unknowns", files=uploads("one", 0, 1)), 409, "empty")

"""The HTTP API as the page uses it: teach, ask, decide, review, export, and the way back."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from glocal.recognizer import Recognizer
from glocal.serve import schemas
from photos import some
from serving import client, detail, ok, png, taught_names, teach, tiny_file, uploads

TAUGHT = ("zero", "one", "two")
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def taught(home: Path) -> Iterator[httpx.Client]:
    """Three digits; tests leave them as they find them."""
    with client(home / "digits.glocal") as asking:
        assert detail(asking.post("/predict", files=uploads("one", 0, 1)), 409, "empty").startswith("there is no class")
        assert ok(asking.get("/state"))["classes"] == []
        assert detail(asking.get("/threshold"), 409, "empty")
        assert detail(asking.get("/export/file"), 409, "empty")
        assert ok(asking.get("/review"))["groups"] == []
        teach(asking, TAUGHT, 5)
        yield asking


@pytest.fixture
def asking(taught: httpx.Client) -> Iterator[httpx.Client]:
    """And after the test everything is as before."""
    before = ok(taught.get("/state"))["classes"]
    yield taught
    for _ in range(20):
        if ok(taught.get("/state"))["classes"] == before:
            break
        ok(taught.post("/undo"))
    assert ok(taught.get("/state"))["classes"] == before


def test_answers_are_those_of_predict(asking: httpx.Client, home: Path) -> None:
    pictures = [*some("one", 20, 30), *some("six", 20, 30)]
    files = [("images", (f"{i}.png", png(pixels), "image/png")) for i, pixels in enumerate(pictures)]
    found = ok(asking.post("/predict", files=[*files, ("images", ("bad.jpg", b"junk", "image/jpeg"))]))
    schemas.AnswerList.model_validate(found)
    *answers, bad = found["answers"]
    assert (bad["name"], bad["ok"]) == ("bad.jpg", False)
    assert "not a picture" in bad["error"]
    offline = Recognizer.load(home / "digits.glocal", device="cpu").predict(pictures)
    assert {each.label for each in offline} >= {"one", "unknown"}
    for i, (answer, alone) in enumerate(zip(answers, offline, strict=True)):
        allowed = 1e-4 * max(1, abs(alone.open_score))
        assert abs(answer["open_score"] - alone.open_score) <= allowed
        if abs(alone.open_score - alone.threshold) > allowed:
            assert (answer["label"], answer["is_unknown"]) == (alone.label, alone.is_unknown)
        assert answer["name"] == f"{i}.png"
        assert answer["probabilities"] == pytest.approx(dict(alone.probabilities), abs=1e-3)
        assert (answer["nearest"], answer["threshold"]) == (alone.nearest, alone.threshold)


def test_the_state_is_what_the_page_needs(asking: httpx.Client) -> None:
    state = ok(asking.get("/state"))
    schemas.State.model_validate(state)
    assert [each["name"] for each in state["classes"]] == list(TAUGHT)
    assert state["undo_label"] == "class two added"
    assert state["threshold"]["source"] == "leave-one-out"
    photo = state["classes"][0]["photos"][0]
    small = asking.get(photo["thumbnail"])
    assert (small.headers["content-type"], small.headers["cache-control"][:7]) == ("image/jpeg", "private")
    assert Image.open(io.BytesIO(small.content)).format == "JPEG"
    schemas.Health.model_validate(ok(asking.get("/health")))
    ok(asking.post("/predict?remember=false", files=uploads("one", 0, 2)))
    families = text_string_to_metric_families(asking.get("/metrics").text)
    metrics = {sample.name: sample.value for family in families for sample in family.samples}
    assert metrics["glocal_batch_pictures_sum"] >= metrics["glocal_batch_pictures_count"] >= 1
    assert (metrics["glocal_classes"], metrics["glocal_photos"], metrics["glocal_queue_pictures"]) == (3, 15, 0)
    documented = (Path(__file__).parents[2] / "docs/how-to/serve.md").read_text("utf-8")
    assert set(re.findall(r"`(glocal_[a-z_]+)`", documented)) == {
        re.sub(r"_(bucket|count|sum)$", "", name) for name in metrics
    }
    assert ok(asking.get("/classes"))[0] == {"name": "zero", "n_photos": 5}


def test_every_change_is_a_version_that_can_be_taken_back(asking: httpx.Client) -> None:
    before = ok(asking.get("/state"))
    changes = [
        asking.post("/classes", data={"name": "six"}, files=[*uploads("six", 0, 2), ("images", ("x", b"junk"))]),
        asking.post("/photos", data={"class": "six"}, files=uploads("six", 2, 6)),
        asking.delete(f"/photos/{before['classes'][0]['photos'][0]['id']}"),
        asking.patch("/classes/one", json={"name": "uno ☃"}),
        asking.delete("/classes/uno%20%E2%98%83"),
        asking.put("/threshold", json={"target_rate": 0.2}),
        asking.put("/threshold", json={"value": 1.5}),
    ]
    versions = [schemas.ChangedBody.model_validate(ok(each)).version for each in changes]
    assert versions == list(range(before["version"] + 1, before["version"] + 1 + len(changes)))
    assert [each["kind"] for each in changes[0].json()["findings"]] == ["unreadable", "few photos", "threshold moved"]
    assert taught_names(asking) == ["zero", "two", "six"]
    assert ok(asking.get("/state"))["threshold"]["value"] == 1.5
    labels = [ok(asking.post("/undo"))["message"] for _ in changes]
    assert labels[0] == "undone: threshold set by hand"
    after = ok(asking.get("/state"))
    assert after["classes"] == before["classes"]
    assert after["threshold"] == before["threshold"]
    assert after["redo_label"] == "class six added"
    assert ok(asking.post("/redo"))["version"] == after["version"] + 1
    assert taught_names(asking)[-1] == "six"
    for _ in changes[1:]:
        ok(asking.post("/redo"))
    end = asking.post("/redo")
    assert detail(end, 422, "rule") == "there is nothing to redo"
    assert end.json()["code"] == "nothing-to-redo"


@pytest.mark.parametrize(
    ("send", "status", "kind", "words"),
    [
        (lambda c: c.post("/classes", data={"name": "one"}, files=uploads("six", 0, 1)), 422, "rule", "already"),
        (lambda c: c.post("/classes", data={"name": "../x"}, files=uploads("six", 0, 1)), 422, "rule", "path"),
        (lambda c: c.post("/classes", data={"name": "six"}, files=uploads("one", 0, 1)), 422, "rule", "same picture"),
        (lambda c: c.post("/classes", data={"name": "six"}), 415, "invalid", "multipart"),
        (lambda c: c.post("/classes", files=uploads("six", 0, 1)), 422, "invalid", "lacks the part 'name'"),
        (lambda c: c.post("/photos", data={"class": "six"}, files=uploads("six", 0, 1)), 404, "not-found", "'six'"),
        (lambda c: c.post("/photos", data={"class": "one"}, files={"images": ("x", b"x")}), 422, "rule", "none of the"),
        (lambda c: c.post("/predict", files={"other": ("x", b"x")}), 422, "invalid", "'other'"),
        (lambda c: c.patch("/classes/one", json={"name": "two"}), 422, "rule", "already"),
        (lambda c: c.patch("/classes/six", json={"name": "two"}), 404, "not-found", "no class 'six'"),
        (lambda c: c.patch("/classes/one", json={}), 422, "invalid", "name"),
        (lambda c: c.patch("/classes/one", content=b"\xff" * 9, headers=JSON), 400, "invalid", "body"),
        (lambda c: c.patch("/classes/one", content=b"[" * 60_000, headers=JSON), 400, "invalid", "body"),
        (lambda c: c.patch("/classes/one", content=b" " * 70_000, headers=JSON), 413, "too-large", "65,536 bytes"),
        (lambda c: c.delete("/photos/" + "0" * 64), 404, "not-found", "photo"),
        (lambda c: c.put("/threshold", json={"value": 1, "target_rate": 0.1}), 422, "invalid", "either"),
        (lambda c: c.put("/threshold", content=b'{"value": NaN}', headers=JSON), 422, "invalid", "finite"),
        (lambda c: c.put("/threshold", json={"target_rate": 2}), 422, "invalid", "less than or equal to 0.9999"),
        (lambda c: c.get("/threshold/preview"), 422, "invalid", "either"),
        (lambda c: c.get("/queries/" + "0" * 64 + "/overlay"), 404, "not-found", "recent photo"),
        (lambda c: c.post("/review/queries/" + "0" * 64, json={"class": "one"}), 404, "not-found", "recent photo"),
        (lambda c: c.post("/review/groups/" + "0" * 16, json={"name": "x"}), 409, "stale", "group"),
        (lambda c: c.get("/nowhere"), 404, "not-found", "Not Found"),
        (lambda c: c.put("/classes"), 405, "method", "Method"),
    ],
)
def test_what_is_refused_is_a_sentence_and_changes_nothing(
    asking: httpx.Client, send: Any, status: int, kind: str, words: str
) -> None:
    before = ok(asking.get("/state"))["version"]
    assert words in detail(send(asking), status, kind)
    assert ok(asking.get("/state"))["version"] == before


def test_deciding_shows_what_would_change_before_it_does(asking: httpx.Client) -> None:
    ok(asking.post("/predict", files=[*uploads("one", 20, 26), *uploads("seven", 20, 26)]))
    view = ok(asking.get("/threshold"))
    schemas.ThresholdView.model_validate(view)
    edges, low, high = view["histogram"]["edges"], *view["range"]
    recent = ok(asking.get("/review"))["recent"]
    assert sum(view["histogram"]["support"]) == 15
    assert sum(view["histogram"]["recent"]) == len(recent)
    assert low == edges[0] < view["value"] < edges[-1] == high
    before = {each["id"]: each["label"] for each in recent}
    expected = []
    for value in (low, view["value"], high):
        shown = ok(asking.get("/threshold/preview", params={"value": value}))
        schemas.Preview.model_validate(shown)
        expected.append(shown["expected_false_unknown"])
        assert expected[-1] == pytest.approx(shown["support_rejected"] / shown["n_support"], abs=0.1)
        done = ok(asking.put("/threshold", json={"value": value}))
        assert done["answers_changed"] == shown["would_change"]
        after = {each["id"]: each["label"] for each in ok(asking.get("/review"))["recent"]}
        changed = {each["id"]: (each["from"], each["to"]) for each in shown["would_change"]}
        assert changed == {id_: (before[id_], after[id_]) for id_ in before if before[id_] != after[id_]}
        assert ok(asking.get("/state"))["threshold"]["source"] == "user"
        ok(asking.post("/undo"))
    assert expected == sorted(expected, reverse=True)
    assert expected[0] > 0.9
    promised = ok(asking.get("/threshold/preview", params={"target_rate": 0.3}))
    assert promised["value"] < view["value"]
    assert (promised["expected_false_unknown"], promised["n_support"]) == (0.3, 15)
    assert promised["support_rejected"] == pytest.approx(0.3 * 15, abs=2)


def test_a_group_gets_a_name_and_a_wrong_answer_its_class(asking: httpx.Client) -> None:
    ok(asking.post("/predict", files=uploads("four", 20, 28)))
    review = ok(asking.get("/review"))
    schemas.Review.model_validate(review)
    assert review == ok(asking.get("/review"))
    group = review["groups"][0]
    assert group["n"] == len(group["items"]) >= 2
    assert all(item["is_unknown"] for each in review["groups"] for item in each["items"])
    shown = asking.get(group["items"][0]["thumbnail"])
    assert shown.headers["content-type"] == "image/jpeg"
    overlay = asking.get(f"/queries/{group['items'][0]['id']}/overlay")
    assert Image.open(io.BytesIO(overlay.content)).format == "PNG"

    ok(asking.post(f"/review/groups/{group['id']}", json={"name": "four"}))
    assert len(ok(asking.get("/state"))["classes"][-1]["photos"]) == group["n"]
    ok(asking.post("/undo"))
    wrong, *items = (item["id"] for item in group["items"])
    ok(asking.post(f"/review/groups/{group['id']}", json={"name": "four", "items": items}))
    photos = ok(asking.get("/state"))["classes"][-1]["photos"]
    assert sorted(each["id"] for each in photos) == sorted(items)
    after = ok(asking.get("/review"))
    assert not {item["id"] for each in after["groups"] for item in each["items"]} & set(items)
    assert all(each["label"] == "four" for each in after["recent"] if each["id"] in items)

    ok(asking.post(f"/review/queries/{wrong}", json={"class": "four"}))
    now = {each["id"]: each for each in ok(asking.get("/review"))["recent"]}
    assert (now[wrong]["label"], now[wrong]["enrolled"]) == ("four", True)
    gone = asking.post(f"/review/groups/{group['id']}", json={"name": "x", "items": ["0" * 64]})
    assert detail(gone, 404, "not-found")
    assert asking.delete(f"/review/queries/{wrong}").status_code == 204
    assert wrong not in {each["id"] for each in ok(asking.get("/review"))["recent"]}


def test_exports(asking: httpx.Client, home: Path) -> None:
    odd = [("images", ("=HYPERLINK(1).png", png(some("one", 40, 41)[0]))), *uploads("six", 40, 41)]
    ok(asking.post("/predict", files=odd))
    rows = list(csv.DictReader(io.StringIO(asking.get("/export/results.csv").text)))
    assert [row["path"] for row in rows[:2]] == ["six-40.png", "'=HYPERLINK(1).png"]
    assert float(rows[0]["open_score"]) == pytest.approx(ok(asking.get("/review"))["recent"][0]["open_score"], rel=1e-4)
    exported = asking.get("/export/file")
    assert exported.content == (home / "digits.glocal").read_bytes()
    assert "attachment" in exported.headers["content-disposition"]
    (home / "copy.glocal").write_bytes(exported.content)
    assert Recognizer.load(home / "copy.glocal", device="cpu").classes == TAUGHT


def test_the_share_of_unknowns_is_a_number_for_watchers(tmp_path: Path) -> None:
    def numbers() -> dict[str, float]:
        families = text_string_to_metric_families(asking.get("/metrics").text)
        return {sample.name: sample.value for family in families for sample in family.samples}

    with client(tiny_file(tmp_path, shots=5)) as asking:
        black = [("images", ("black.png", png(np.zeros((32, 32, 3), np.uint8))))] * 25
        assert all(each["is_unknown"] for each in ok(asking.post("/predict", files=black))["answers"])
        assert math.isnan(numbers()["glocal_unknown_share"])
        assert ok(asking.get("/review"))["drift"] == ""
        for _ in range(7):
            ok(asking.post("/predict", files=black, params={"remember": False}))
        assert numbers()["glocal_unknown_share"] == 1
        assert 0 < numbers()["glocal_unknown_share_limit"] < 1
        assert "100 % of the last 200 photos are unknown" in ok(asking.get("/review"))["drift"]

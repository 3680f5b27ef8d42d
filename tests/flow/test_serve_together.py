"""Several at once: two tabs, many clients, another program, and the next start of the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from glocal.recognizer import Recognizer
from photos import some
from serving import client, detail, ok, taught_names, teach, uploads

TAUGHT = ("zero", "one", "two")


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[httpx.Client]:
    with client(tmp_path / "digits.glocal") as asking:
        teach(asking, TAUGHT, 2)
        yield asking


def test_two_tabs_do_not_lose_each_others_changes(asking: httpx.Client) -> None:
    state = ok(asking.get("/state"))
    seen = {"If-Match": str(state["version"])}
    ok(asking.post("/classes", data={"name": "first"}, files=uploads("six", 0, 2), headers=seen))
    late = asking.patch("/classes/one", json={"name": "uno"}, headers=seen)
    assert "meant for version" in detail(late, 409, "stale")
    assert late.json()["version"] == state["version"] + 1
    assert taught_names(asking) == [*TAUGHT, "first"]
    again = asking.patch("/classes/one", json={"name": "uno"}, headers={"If-Match": f'"{late.json()["version"]}"'})
    assert again.headers["etag"] == f'"{ok(again)["version"]}"'
    assert taught_names(asking) == ["zero", "uno", "two", "first"]
    for odd in ("0", "x", "", 'W/"1"', "-1"):
        assert detail(asking.post("/undo", headers={"If-Match": odd}), 409, "stale")


def test_changes_at_the_same_time_all_happen(asking: httpx.Client) -> None:
    start = threading.Barrier(4)

    def add(i: int) -> int:
        start.wait()
        form = {"data": {"name": f"new {i}"}, "files": uploads("six", 2 * i, 2 * i + 2)}
        return int(ok(asking.post("/classes", **form))["version"])  # type: ignore[arg-type]

    with ThreadPoolExecutor(4) as tabs:
        versions = list(tabs.map(add, range(4)))
    assert len(set(versions)) == 4
    assert sorted(taught_names(asking)[3:]) == [f"new {i}" for i in range(4)]


def test_undo_and_what_was_asked_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "new.glocal"
    with client(file) as asking:
        teach(asking, TAUGHT, 2)
        asked = ok(asking.post("/predict", files=uploads("six", 20, 23)))
        ok(asking.delete("/classes/two"))
        before, review = ok(asking.get("/state")), ok(asking.get("/review"))
    with client(file) as asking:
        assert ok(asking.get("/state")) == before | {"findings": ok(asking.get("/state"))["findings"]}
        again = ok(asking.get("/review"))
        assert again["recent"] == review["recent"]  # answers too: what was kept is what was seen
        assert {each["id"] for each in again["recent"]} == {each["id"] for each in asked["answers"]}
        assert [each["id"] for each in again["groups"]] == [each["id"] for each in review["groups"]]
        ok(asking.post("/undo"))
        assert taught_names(asking) == list(TAUGHT)
        for _ in TAUGHT:
            ok(asking.post("/undo"))
        assert taught_names(asking) == []
        assert not file.exists()
        assert detail(asking.post("/undo"), 422, "rule") == "there is nothing to undo"
        ok(asking.post("/redo"))
        assert taught_names(asking) == ["zero"]
        assert file.exists()


def test_what_another_program_did_is_not_lost(tmp_path: Path) -> None:
    file = tmp_path / "new.glocal"
    with client(file) as asking:
        teach(asking, ("zero", "one"), 2)
        seen = ok(asking.get("/state"))["version"]
        other = Recognizer.load(file, device="cpu")
        other.add_class("two", some("two", 0, 2))
        other.save(file)
        late = asking.patch("/classes/one", json={"name": "uno"}, headers={"If-Match": str(seen)})
        assert detail(late, 409, "stale")
        ok(asking.patch("/classes/one", json={"name": "uno"}))
        assert taught_names(asking) == ["zero", "uno", "two"]
        ok(asking.post("/undo"))
        ok(asking.post("/undo"))
        assert taught_names(asking) == ["zero", "one"]
